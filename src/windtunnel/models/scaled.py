"""Another model's step times, all longer or shorter by one factor: what if they are off?"""

from __future__ import annotations

from typing import Final

from windtunnel.models.steptime import Bounds, StepTimeModel, StepWork

__all__ = ["Scaled"]


class Scaled(StepTimeModel):
    """Every step takes `factor` times what the inner model says."""

    def __init__(self, inner: StepTimeModel, factor: float) -> None:
        assert factor > 0.0
        self.inner: Final = inner
        self.factor: Final = factor

    def step_s(self, work: StepWork) -> float:
        return self.factor * self.inner.step_s(work)

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        base, slope, until = self.inner.decode_line(decodes, context)
        return self.factor * base, self.factor * slope, until

    def measured(self) -> Bounds | None:
        return self.inner.measured()
