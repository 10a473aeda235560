"""A step of the reference engine, and which were larger than any that was measured."""

import math

from windtunnel.models.step_time.model import MeasuredBounds
from windtunnel.workload.request import Request


class PlannedStep:
    """One step: how many tokens each request computes in it."""

    def __init__(self, tokens: list[tuple[Request, int]], start_s: float, end_s: float) -> None:
        self.tokens = tokens
        self.start_s = start_s
        self.end_s = end_s
        self.admitted: list[Request] = []
        self.produces: list[Request] = []
        self.sizes = {"tokens": 0, "decodes": 0, "context": 0.0, "prompt": 0}


class Beyond:
    """Steps, and the time in them, that are larger than any that were measured; also by what."""

    def __init__(self, bounds: MeasuredBounds | None) -> None:
        self.bounds = bounds
        self.counts = {"steps": 0, "tokens": 0, "decodes": 0, "context": 0}
        self.most = {"tokens": 0.0, "decodes": 0.0, "context": 0.0}
        self.time_s = 0.0

    def excesses(self, step: PlannedStep) -> list[str]:
        bounds = self.bounds
        if bounds is None:
            return []
        sizes = step.sizes
        over = [name for name in ("tokens", "decodes") if sizes[name] > getattr(bounds, name)]
        if sizes["context"] > bounds.context or sizes["prompt"] > bounds.prompt:
            over.append("context")
        return over

    def pass_time(self, step: PlannedStep, until_s: float) -> None:
        if self.excesses(step):
            self.time_s += until_s - step.start_s

    def count(self, step: PlannedStep) -> None:
        """A step has ended."""
        self.pass_time(step, step.end_s)
        over = self.excesses(step)
        self.counts["steps"] += bool(over)
        for name in over:
            self.counts[name] += 1
            size = step.sizes[name]
            if name == "context":
                size = max(math.ceil(size), step.sizes["prompt"])
            self.most[name] = max(self.most[name], size)
