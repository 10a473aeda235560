"""Steps of speculative decoding: the drafter's passes in addition to the model's verifying pass.

The first pass of a drafter sees every token of the step, prompts and drafts alike, so that its KV
is complete; each further one adds a token to the draft of every sequence that continues.
"""

from __future__ import annotations

from typing import Final

from windtunnel.models.step_time.model import MeasuredBounds, StepTimeModel, StepWork
from windtunnel.models.step_time.physics import Physics

__all__ = ["Speculating"]


class Speculating(StepTimeModel):
    """Another model's steps, plus the time of drafting in each of them."""

    def __init__(
        self, inner: StepTimeModel, drafter: StepTimeModel | None, passes: int, fixed_s: float = 0.0
    ) -> None:
        self.inner: Final = inner
        self.drafter: Final = drafter  # None: drafting takes `fixed_s`, or none
        self.passes: Final = passes
        self.fixed_s: Final = fixed_s
        # A drafter's pass is part of a step, whose gaps and sampling count only once.
        self._between_s = drafter.kernels.parameters.step_s if isinstance(drafter, Physics) else 0.0

    def step_s(self, work: StepWork) -> float:
        time_s = self.inner.step_s(work) + self.fixed_s
        drafter = self.drafter
        if drafter is None:
            return time_s
        going_on = work.samples - work.drafted
        first = StepWork(work.chunks, work.decodes, work.context, going_on, work.drafted)
        time_s += drafter.step_s(first) - self._between_s
        if going_on == 0 or self.passes == 1:
            return time_s
        context = work.context
        for new, cached, prompt in work.chunks:
            if new + cached >= prompt:
                context += prompt
        next_token = StepWork([], going_on, context, going_on)
        return time_s + (self.passes - 1) * (drafter.step_s(next_token) - self._between_s)

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        """The line for steps without drafts; the engine does not sum steps with drafts in closed
        form."""
        return self.inner.decode_line(decodes, context)

    def measured(self) -> MeasuredBounds | None:
        return self.inner.measured()
