"""Spare capacity: one replica more or fewer, by shares of KV cache and queue lengths.

This is how the first analyzer of llm-d's workload variant autoscaler (WVA) decides.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policies.hpa import HpaDown, HpaPace, HpaUp
from windtunnel.scaling.policy import PolicyParts
from windtunnel.scaling.settings import (
    Cost,
    PolicySettings,
    PoolName,
    Stabilization,
    unknown_pools,
)
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Number, Share
from windtunnel.settings.limits import MOST_SEQUENCES
from windtunnel.settings.section import Added, Context


class SpareCapacitySettings(PolicySettings):
    """WVA's first analyzer: one replica at a time."""

    patience: ClassVar[Stabilization | None] = Stabilization()

    policy: Literal["wva-v1"]
    kv_threshold: Annotated[float, Share(above=True)] = Field(
        default=0.8, description="Share of KV cache in use at which a replica is saturated."
    )
    queue_threshold: Annotated[float, Number(0, MOST_SEQUENCES, above=True)] = Field(
        default=5.0, description="Queued requests at which a replica is saturated."
    )
    kv_spare: Annotated[float, Share()] = Field(
        default=0.1,
        description="It grows when unsaturated replicas have less spare KV cache than this.",
    )
    queue_spare: Annotated[float, Number(0, MOST_SEQUENCES)] = Field(
        default=3.0,
        description="The same for the queue; below `queue_threshold`.",
    )

    costs: Annotated[dict[PoolName, Cost], Added()] = Field(
        default_factory=dict,
        description="Cost of a replica by pool. Default: its price.",
    )
    hpas: Annotated[dict[PoolName, HpaPace], Added()] = Field(
        default_factory=dict,
        description="By pool, the HPA that carries out decisions. Default: at once.",
    )

    def parts(self) -> PolicyParts:
        optimizer = CostOrdered(
            order="price", engine="unlimited", keep_one=True, costs=dict(self.costs)
        )
        limiters = [one for pool, hpa in self.hpas.items() for one in hpa.limiters(pool)]
        return PolicyParts([SpareCapacity(self)], optimizer, limiters)

    @property
    def windows(self) -> Stabilization | None:
        return self.stabilization if self.hpas else super().windows

    def window_down(self) -> tuple[str, float | None]:
        if self.windows is not None:
            return super().window_down()
        return "hpas.down.window", min(hpa.down.window_s for hpa in self.hpas.values())

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        kv, queue = dice.span(0.2, 1.0), dice.span(1.0, 8.0)
        hpa = {"up": HpaUp.draw(dice), "down": HpaDown.draw(dice), "tolerance": dice.pick(0, 0.1)}
        return {
            "hpas": dict.fromkeys(dice.some(pools), hpa) if dice.chance(0.5) else {},
            "costs": {name: dice.span(0.1, 10.0) for name in dice.some(pools)},
            "kv_threshold": kv,
            "queue_threshold": queue,
            "kv_spare": kv * dice.pick(0.1, 0.8),
            "queue_spare": queue * dice.pick(0.0, 0.5),
        }

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        yield from unknown_pools(where, "costs", self.costs, pools)
        yield from unknown_pools(where, "hpas", self.hpas, pools)
        for key, spare, of_key, of in (
            ("kv_spare", self.kv_spare, "kv_threshold", self.kv_threshold),
            ("queue_spare", self.queue_spare, "queue_threshold", self.queue_threshold),
        ):
            if spare >= of:
                what = f"{spare:g} is not below {of_key}, which is {of:g}"
                hint = "no replica ever has as much to spare: it would grow without end"
                yield where.fault(key, what, hint=hint, because_of=(where.path,))


class SpareCapacity(Analyzer):
    """Grows by one when little capacity is spare, shrinks by one when the others suffice."""

    def __init__(self, settings: SpareCapacitySettings) -> None:
        super().__init__("spare capacity")
        self._kv_threshold: Final = settings.kv_threshold
        self._queue_threshold: Final = settings.queue_threshold
        self._kv_spare: Final = settings.kv_spare
        self._queue_spare: Final = settings.queue_spare

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        """Changes nothing in a model while any of its replicas are starting or stopping."""
        for group in groups:
            for variant in group.variants:
                if variant.target != variant.ready or variant.coming > 0:
                    return [self._frozen(each, variant.name) for each in groups]
        return [self.analyze_group(group, now_s) for group in groups]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        loads = [replica for variant in group.variants for replica in variant.replicas]
        if not loads:
            return unknown(group, "No replica answered: no change.")
        kv = queue = 0.0
        open_ones = 0
        for replica in loads:
            if replica.kv_used < self._kv_threshold and replica.waiting < self._queue_threshold:
                open_ones += 1
                kv += replica.kv_used
                queue += replica.waiting
        evidence: dict[str, float] = {
            "replicas": float(len(loads)),
            "saturated": float(len(loads) - open_ones),
        }
        if open_ones == 0:
            what = f"All of {len(loads)} replicas are saturated: one more."
            return replicas_wanted(group, group.current + 1, evidence, what)
        spare_kv = self._kv_threshold - kv / open_ones
        spare_queue = self._queue_threshold - queue / open_ones
        evidence["spare_kv"] = spare_kv
        evidence["spare_queue"] = spare_queue
        told = f"{spare_kv:.3f} of the cache and {spare_queue:.2f} of the queue are spare"
        if spare_kv < self._kv_spare or spare_queue < self._queue_spare:
            return replicas_wanted(group, group.current + 1, evidence, f"{told}: one more.")
        if open_ones >= 2 and self._could_go(group):
            grown = 1.0 / (open_ones - 1)  # N / (N - 1) times the mean is the sum / (N - 1)
            after_kv = self._kv_threshold - kv * grown
            after_queue = self._queue_threshold - queue * grown
            evidence["spare_kv_after"] = after_kv
            evidence["spare_queue_after"] = after_queue
            if after_kv >= self._kv_spare and after_queue >= self._queue_spare:
                return replicas_wanted(group, group.current - 1, evidence, f"{told}: one fewer.")
        return replicas_wanted(group, group.current, evidence, f"{told}: no change.")

    def _could_go(self, group: Group) -> bool:
        """Whether any variant can lose a replica; the last one of each stays."""
        return any(
            variant.target > max(1, variant.minimum) and not variant.counts.missing
            for variant in group.variants
        )

    def _frozen(self, group: Group, changing: str) -> Finding:
        what = f"Replicas of {changing!r} are starting or draining: no change yet."
        return replicas_wanted(group, group.current, {}, what)
