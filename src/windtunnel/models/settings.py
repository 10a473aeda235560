"""Scenario settings of step-time models."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    FilePath,
    NameOrPath,
    Number,
    chosen_by,
    variant,
)
from windtunnel.settings.limits import LONGEST_STEP_COST
from windtunnel.settings.section import Context, Section

Cost = Annotated[float, Duration("0s", LONGEST_STEP_COST)]


class PhysicsStepTime(Section):
    """From the model's shape, the accelerator's peaks and a profile."""

    model: Literal["physics"]
    profile: (
        Annotated[str, NameOrPath("the name of a profile, or the path of its JSON file")] | None
    ) = Field(
        default=None,
        description="A measured profile. Default: that of the accelerator.",
    )


class RooflineStepTime(Section):
    """The larger of compute and memory time at the accelerator's peaks."""

    model: Literal["roofline"]


class LinearStepTime(Section):
    """A fixed cost plus costs per unit of work; needs no accelerator."""

    model: Literal["linear"]
    fixed_s: Cost = Field(default=0.0, description="Time of every step.")
    per_prefill_token_s: Cost = Field(default=0.0, description="Time per prompt token computed.")
    per_decode_s: Cost = Field(default=0.0, description="Time per request that generates a token.")
    per_context_token_s: Cost = Field(
        default=0.0, description="Time per cached token of generating requests."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.fixed_s == 0 and (self.per_prefill_token_s == 0 or self.per_decode_s == 0):
            what = "a step may take no time at all"
            allowed = "a fixed above 0s, or both per_prefill_token and per_decode above 0s"
            beside = ("model", "fixed", "per_prefill_token", "per_decode")
            yield where.fault((), what, allowed, beside=beside)


class TableStepTime(Section):
    """Step times interpolated from measurements on a grid."""

    model: Literal["table"]
    path: Annotated[str, FilePath("the path of a table of step times")] = Field(
        description="Kernel tables, or steps from `windtunnel profile`."
    )
    per_step_s: Cost = Field(
        default=0.0,
        description="Unmeasured time per step; `windtunnel calibrate --replay` finds it.",
    )


Coefficient = Annotated[float, Number(0, 1e12)]


class BlisTrainedPhysicsStepTime(Section):
    """BLIS's formula and coefficients; `engine` gets its defaults too."""

    model: Literal["blis-trained-physics"]
    alpha: list[Coefficient] | None = Field(
        default=None,
        min_length=3,
        max_length=3,
        description="Microseconds of queueing, completion, per token. Default: the published ones.",
    )
    beta: list[Coefficient] | None = Field(
        default=None,
        min_length=11,
        max_length=11,
        description="Eleven coefficients of the step's terms. Default: the published ones.",
    )


StepTime = Annotated[
    Annotated[PhysicsStepTime, variant("physics")]
    | Annotated[RooflineStepTime, variant("roofline")]
    | Annotated[LinearStepTime, variant("linear")]
    | Annotated[TableStepTime, variant("table")]
    | Annotated[BlisTrainedPhysicsStepTime, variant("blis-trained-physics")],
    chosen_by("model", "physics", "roofline", "linear", "table", "blis-trained-physics"),
]
