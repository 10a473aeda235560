"""The `linear` step-time model: a fixed cost plus a cost per unit of work, independent of
hardware."""

from __future__ import annotations

import math

from windtunnel.core.errors import InputError
from windtunnel.models.step_time.model import StepTimeModel, StepWork

__all__ = ["Linear"]


class Linear(StepTimeModel):
    """Seconds per step, per new prompt token, per decoding sequence and per token of their context.

    The numbers are the user's own measurements, so no hardware peak applies.
    """

    def __init__(
        self,
        *,
        fixed_s: float,
        prefill_token_s: float = 0.0,
        decode_s: float = 0.0,
        context_token_s: float = 0.0,
    ) -> None:
        costs = (fixed_s, prefill_token_s, decode_s, context_token_s)
        if not all(math.isfinite(cost) and cost >= 0.0 for cost in costs):
            found = ", ".join(str(cost) for cost in costs)
            allowed = "finite numbers of seconds, 0 or more"
            raise InputError(f"costs are {found}", where="linear step time", allowed=allowed)
        if fixed_s == 0.0 and (prefill_token_s == 0.0 or decode_s == 0.0):
            what = "a step that takes no time would let a run go on endlessly"
            allowed = "a fixed cost above 0, or costs above 0 for prefill tokens and for decodes"
            raise InputError(what, where="linear step time", allowed=allowed)
        self.fixed_s = fixed_s
        self.prefill_token_s = prefill_token_s
        self.decode_s = decode_s
        self.context_token_s = context_token_s

    def step_s(self, work: StepWork) -> float:
        tokens = 0
        for chunk in work.chunks:
            tokens += chunk[0]
        positions = work.decodes + work.drafted
        decode = self.fixed_s + self.decode_s * positions + self.context_token_s * work.context
        return decode + self.prefill_token_s * tokens

    def decode_line(  # the line is the same for every context
        self,
        decodes: int,
        context: int,  # noqa: ARG002
    ) -> tuple[float, float, float]:
        return self.fixed_s + self.decode_s * decodes, self.context_token_s, math.inf
