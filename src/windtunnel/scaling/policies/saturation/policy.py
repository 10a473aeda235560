"""Policies that count KV tokens: Windtunnel's own, and those of llm-d's WVA and of BLIS."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer
from windtunnel.scaling.limiters import MatchedRolesLimiter
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policies.saturation.analyzer import Counting, Saturation
from windtunnel.scaling.policies.saturation.wva_analyzers import Queueing, Throughput
from windtunnel.scaling.policy import PolicyParts
from windtunnel.scaling.settings import PolicySettings, Stabilization, Switch
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Number, Share, Whole
from windtunnel.settings.limits import MOST_SEQUENCES, MOST_TOKENS
from windtunnel.settings.section import Added, Context

PositiveShare = Annotated[float, Share(above=True)]
Tokens = Annotated[float, Number(0, MOST_TOKENS, above=True)]
WvaAnalyzer = Literal["saturation", "throughput", "queueing"]
FullQueue = Annotated[int, Whole(1, MOST_SEQUENCES)]

AVERAGE_PROMPT = 512.0
"""Prompt tokens assumed until some are measured."""


class LoadThresholds(PolicySettings):
    """Policies that grow above one load and shrink below another."""

    up: PositiveShare
    down: PositiveShare
    kv_threshold: PositiveShare = Field(
        default=0.8,
        description="Usable share of the KV cache; the rest is for peaks.",
    )

    def saturation(
        self, counting: Counting, full_queue: int = 1, average_prompt: float = AVERAGE_PROMPT
    ) -> Saturation:
        return Saturation(
            up=self.up,
            down=self.down,
            kv_threshold=self.kv_threshold,
            average_prompt=average_prompt,
            full_queue=full_queue,
            counting=counting,
        )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        up = dice.span(0.1, 1.0)
        down = up * dice.pick(0.2, 0.6, 0.95)
        return {"up": up, "down": down, "kv_threshold": dice.span(0.1, 1.0)}

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        if self.down >= self.up:
            what = f"{self.down:g} is not below up, which is {self.up:g}"
            hint = "a group between the two would grow and shrink in turns; set both"
            yield where.fault("down", what, hint=hint, because_of=(where.path,))


class KvSaturationSettings(LoadThresholds):
    """KV tokens in use and queued over capacity: `kv_threshold` of the KV cache, or what a
    compute-bound replica holds. `stabilization.down` is 5m by default.
    """

    patience: ClassVar[Stabilization | None] = Stabilization()

    policy: Literal["saturation"]
    up: PositiveShare = Field(
        default=0.8, description="Load of existing and starting replicas above which it grows."
    )
    down: PositiveShare = Field(
        default=0.4, description="Load of ready replicas below which it may shrink."
    )
    average_prompt: Tokens = Field(
        default=AVERAGE_PROMPT, description="Prompt tokens assumed until some are measured."
    )
    full_queue: FullQueue = Field(
        default=5,
        description="Queued requests at which a replica counts as compute-bound.",
    )
    compute_bound: Switch = Field(
        default=True,
        description="Whether a replica can be compute-bound before its cache is full.",
    )

    def analyzer(self) -> Saturation:
        counting = Counting(compute_bound=self.compute_bound)
        return self.saturation(counting, self.full_queue, self.average_prompt)

    def parts(self) -> PolicyParts:
        return PolicyParts([self.analyzer()])

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        drawn = super().draw(dice, pools)
        return {**drawn, "compute_bound": dice.chance(0.5), "full_queue": dice.few(1, 9)}


class WvaSettings(LoadThresholds):
    """llm-d's workload variant autoscaler: one analyzer is enough to grow, all must agree to
    shrink; prefill and decode grow in proportion."""

    patience: ClassVar[Stabilization | None] = Stabilization()

    policy: Literal["wva"]
    up: PositiveShare = Field(
        default=0.85, description="Load of existing and starting replicas above which it grows."
    )
    down: PositiveShare = Field(
        default=0.7, description="Load of ready replicas below which it may shrink."
    )
    full_queue: FullQueue = Field(
        default=5, description="Queued requests at which a replica counts as full."
    )
    analyzers: Annotated[list[WvaAnalyzer], Added(), Field(min_length=1)] = Field(
        default=["saturation"],
        description="`saturation` (KV tokens in use and queued), `throughput` (output tokens per "
        "second), `queueing` (arrivals within the SLO, by a fitted queueing model).",
    )

    def parts(self) -> PolicyParts:
        made: dict[WvaAnalyzer, Callable[[], Analyzer]] = {
            "saturation": partial(self.saturation, Counting(), self.full_queue),
            "throughput": partial(Throughput, self.up, self.down),
            "queueing": Queueing,
        }
        analyzers = [made[name]() for name in dict.fromkeys(self.analyzers)]
        return PolicyParts(analyzers, limiters=[MatchedRolesLimiter()])

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        analyzers = dice.some(("saturation", "throughput", "queueing"))
        drawn = {"full_queue": dice.few(1, 9), "analyzers": analyzers}
        return {**super().draw(dice, pools), **drawn}


class BlisSettings(LoadThresholds):
    """Scales as BLIS does: cached tokens only, every change on one pool, no stabilization."""

    patience: ClassVar[Stabilization | None] = Stabilization(up_s=0.0, down_s=0.0)

    policy: Literal["blis"]
    up: PositiveShare = Field(default=0.8, description="Load above which it grows.")
    down: PositiveShare = Field(default=0.4, description="Load below which it may shrink.")
    average_prompt: Tokens = Field(default=AVERAGE_PROMPT, description="Tokens per queued request.")

    def parts(self) -> PolicyParts:
        counting = Counting(
            compute_bound=False,
            measured_prompt=False,
            answers=False,
            gateway=False,
            check_last=True,
        )
        analyzer = self.saturation(counting, average_prompt=self.average_prompt)
        optimizer = CostOrdered(order="price", engine="unlimited", one_variant=True)
        return PolicyParts([analyzer], optimizer)

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        return {**super().draw(dice, pools), "average_prompt": dice.span(1.0, 600.0)}
