"""Counts the steps of a server that are larger than what its step-time model was measured at."""

from typing import Final

from mypy_extensions import i64

from windtunnel.engine.step import Step, StepClock
from windtunnel.models.step_time.model import MeasuredBounds


class Extrapolation:
    """Steps, and the time in them, beyond the bounds of a model; also by what is beyond."""

    def __init__(self, bounds: MeasuredBounds) -> None:
        self.bounds: Final = bounds
        self.steps: i64 = 0  # beyond in at least one respect
        self.time_s = 0.0
        self.over_tokens: i64 = 0  # steps
        self.over_decodes: i64 = 0
        self.over_context: i64 = 0
        self.most_tokens: i64 = 0  # the largest among those steps
        self.most_decodes: i64 = 0
        self.most_context: i64 = 0

    def add(self, step: Step, clock: StepClock, steps: i64, begun: i64, elapsed_s: float) -> None:
        """Counts the first `steps` of a run of equal steps, of which `begun` have taken a time.

        In such a run contexts alone grow, so it is within bounds up to some step and beyond from
        there on.
        """
        bounds = self.bounds
        decodes: i64 = step.decodes
        tokens: i64 = step.new_tokens + decodes
        within = self._within(step, decodes)
        if within < steps:
            self.over_context += steps - within
            self._note_context(step, decodes, steps)
        if tokens > bounds.tokens:
            within = 0
            self.over_tokens += steps
            if steps:
                self.most_tokens = max(self.most_tokens, tokens)
        if decodes > bounds.decodes:
            within = 0
            self.over_decodes += steps
            if steps:
                self.most_decodes = max(self.most_decodes, decodes)
        if within < steps:
            self.steps += steps - within
        if within == 0:
            self.time_s += elapsed_s
        elif within < begun:
            self.time_s += elapsed_s - clock.span(step, within)

    def _within(self, step: Step, decodes: i64) -> i64:
        """How many of the steps go by before a context is beyond its bound."""
        bounds = self.bounds
        if step.prompt > bounds.prompt:
            return 0
        if not decodes:
            return 1
        limit: i64 = bounds.context * decodes
        context: i64 = step.context
        return 0 if context > limit else (limit - context) // decodes + 1

    def _note_context(self, step: Step, decodes: i64, steps: i64) -> None:
        longest: i64 = step.prompt
        if decodes:
            mean: i64 = (step.context + decodes - 1) // decodes + steps - 1
            longest = max(longest, mean)
        self.most_context = max(self.most_context, longest)
