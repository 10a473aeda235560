"""`capacity-shortage`, `provider-outage`, `quota-exhaustion`, `spot-reclaim`: provider faults."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.core.vocabulary import RECLAIMED
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import FaultContext, context_of
from windtunnel.twin.faults.kind import Injection, LastingFault, lasting
from windtunnel.twin.faults.machines import (
    DrawnFault,
    MachineFault,
    MachineSelect,
    QuotaSelect,
)
from windtunnel.twin.faults.servers import ALL
from windtunnel.twin.faults.timing import Moment
from windtunnel.twin.faults.world import World

if TYPE_CHECKING:
    from windtunnel.fleet.shape import MachineShape


class ProviderOutage(LastingFault, MachineFault):
    """The provider does not answer: orders are lost, and answers arrive afterwards."""

    kind: Literal["provider-outage"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        return lasting(
            ["provider"], lambda on, now_s: world.machines.cut_off_provider(now_s, on=on)
        )


class QuotaFault(LastingFault, MachineFault):
    """A fault that makes machines unavailable."""

    select: QuotaSelect = Field(
        default_factory=QuotaSelect, description="Which machines; default: all."
    )

    @property
    def subject(self) -> str:
        return self.select.pool or self.select.zone or "fleet"

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        pool = dice.pick(*[one.name for one in context.machines])
        return {**drawn, **({"select": {"pool": pool}} if dice.chance(0.5) else {})}


class CapacityShortageFault(QuotaFault):
    """The provider has no capacity: orders fail and are retried later."""

    kind: Literal["capacity-shortage"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        pool, zone = self.select.pool, self.select.zone
        return lasting(
            [self.subject],
            lambda on, now_s: world.machines.withhold_capacity(pool, zone, now_s, on=on),
        )


class QuotaExhaustion(QuotaFault):
    """No machines beyond the current ones."""

    kind: Literal["quota-exhaustion"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        pool, zone = self.select.pool, self.select.zone
        withheld: list[MachineShape] = []
        return Injection(
            [self.subject],
            begin=lambda now_s: withheld.extend(world.machines.exhaust_quota(pool, zone, now_s)),
            end=lambda now_s: world.machines.restore_quota(withheld, now_s),
        )


class SpotReclaim(DrawnFault):
    """The provider reclaims spot machines after a notice."""

    kind: Literal["spot-reclaim"]
    select: MachineSelect = Field(
        default_factory=MachineSelect, description="Which spot machines; default: one of all."
    )
    notice_s: Moment = Field(
        default=120.0, description="Time from notice to loss; clouds give 30s to 2m."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        spot = [one for one in world.machines.existing() if one.spot]
        names = [one.name for one in spot if self.select.matches(one)]
        taken = self.select.choose(names, stream)

        def take(now_s: float) -> None:
            world.machines.lose(taken, RECLAIMED, now_s)

        def begin(now_s: float) -> None:
            world.machines.warn(taken, now_s)
            world.later(now_s + self.notice_s, take, helps=False)

        return Injection(taken, begin)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        pools, pool = context_of(where.root).machines, self.select.pool
        if pools and not any(one.spot for one in pools if pool in (None, one.name)):
            known = pool in [one.name for one in pools]
            what = f"{pool} has no spot machines" if known else "there are no spot machines"
            yield where.fault(("select", "pool") if pool else "kind", what)

    @classmethod
    def applies(cls, context: FaultContext) -> bool:
        return any(one.spot for one in context.machines)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {"notice": context.span_s(dice), "select": {"count": dice.pick(1, ALL)}}
