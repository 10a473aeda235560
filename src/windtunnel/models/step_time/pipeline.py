"""Pipeline parallelism: layers in stages, and batches that follow each other through them.

A server's work is a round of batches, as many as there are stages, if there are sequences enough.
Each sequence is in one of them. While one batch is in the second stage the next is in the first, so
a round takes as long as its largest batch through all stages.
"""

from __future__ import annotations

from typing import Final

from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.model import (
    MeasuredBounds,
    StepTimeModel,
    StepWork,
    largest_share,
    tokens_of,
)

__all__ = ["Pipelined", "pipelined"]

HOP_S: Final = 10e-6  # to start a transfer between two stages; from aiconfigurator


class Pipelined(StepTimeModel):
    """Rounds of a pipeline in which all stages together take a step of `inner` for each batch."""

    def __init__(
        self, inner: StepTimeModel, stages: int, token_s: float, batch_tokens: int
    ) -> None:
        self.inner: Final = inner
        self.stages: Final = stages
        self.token_s: Final = token_s  # of one token's vector between two stages
        self.batch_tokens: Final = batch_tokens  # most of one batch

    def step_s(self, work: StepWork) -> float:
        if not work.chunks and not work.drafted:
            if work.decodes == 0:
                return 0.0
            base, slope, _ = self.decode_line(work.decodes, work.context)
            return base + slope * work.context
        largest = largest_share(work, self.stages, self.batch_tokens)
        return self.inner.step_s(largest) + self._hops_s(tokens_of(largest))

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        own = (decodes + self.stages - 1) // self.stages
        share = own / decodes
        base, slope, until = self.inner.decode_line(own, int(context * share))
        # Rounding may put the end of the line at this very context.
        return base + self._hops_s(own), slope * share, max(until / share, context + 0.5)

    def _hops_s(self, tokens: int) -> float:
        return (self.stages - 1) * (HOP_S + self.token_s * tokens)

    def measured(self) -> MeasuredBounds | None:
        return self.inner.measured()


def pipelined(
    inner: StepTimeModel, shape: ModelShape, gpu: Accelerator, stages: int, batch_tokens: int
) -> Pipelined:
    """A pipeline of this model, with stages connected by the accelerator's links."""
    token_s = shape.hidden * shape.activation_bytes / gpu.link_bytes_per_s
    return Pipelined(inner, stages, token_s, batch_tokens)
