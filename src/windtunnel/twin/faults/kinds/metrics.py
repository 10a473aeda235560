"""`metric-blackout`, `metric-lag`, `partial-scrape`: missing or late metrics."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Share
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import NO_AUTOSCALER, FaultContext, context_of
from windtunnel.twin.faults.kind import Injection, LastingFault, lasting
from windtunnel.twin.faults.servers import ServerFault, ServerSelect, draw_select, names_of
from windtunnel.twin.faults.timing import Length
from windtunnel.twin.faults.world import AUTOSCALER, ROUTERS, World


class MetricFault(LastingFault):
    """A fault of the metrics that routers and the autoscaler read."""

    readers: (
        Annotated[list[Literal["routers", "autoscaler"]], Field(min_length=1, max_length=2)] | None
    ) = Field(
        default=None,
        description="Affected readers: `routers` (with the gateway), `autoscaler`. Default: all.",
    )

    def hit_readers(self, world: World) -> list[str]:
        """The named readers that exist."""
        return world.readers((ROUTERS, AUTOSCALER) if self.readers is None else self.readers)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        readers = self.readers or []
        if len(set(readers)) < len(readers):
            yield where.fault("readers", "one of them is there twice")
        if AUTOSCALER in readers and not context_of(where.root).scales:
            yield where.fault("readers", NO_AUTOSCALER)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        if dice.chance(0.5):
            drawn["readers"] = dice.some(context.readers)
        return drawn


class MetricBlackout(MetricFault):
    """Readers get no metrics."""

    kind: Literal["metric-blackout"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        readers = self.hit_readers(world)
        return lasting(readers, lambda on, _: world.blank_metrics(readers, on=on))


class MetricLag(MetricFault):
    """Metrics are late. Overlapping lags add up."""

    kind: Literal["metric-lag"]
    by_s: Length = Field(description="How much later.")

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        readers = self.hit_readers(world)
        return lasting(readers, lambda on, _: world.delay_metrics(readers, self.by_s, on=on))

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), "by": context.span_s(dice)}


class PartialScrape(ServerFault, MetricFault):
    """Scrapes of some ready servers fail."""

    kind: Literal["partial-scrape"]
    select: ServerSelect = Field(
        default_factory=ServerSelect,
        description="Which servers; default: one of all.",
    )
    share: Annotated[float, Share(above=True)] | None = Field(
        default=None,
        description="Share of servers not scraped, at least one. Default: `select.count`.",
    )

    @property
    def is_random(self) -> bool:
        return super().is_random if self.share is None else self.every is not None or self.share < 1

    def prepare(self, world: World, stream: Stream) -> Injection:
        """Chooses the servers; those that start during the fault are scraped."""
        select, readers = self.select, self.hit_readers(world)
        if self.share is not None:
            ready = len(world.servers(select.pool, ready_only=True))
            select = select.model_copy(update={"count": max(1, round(self.share * ready))})
        servers = select.choose(world, stream, ready_only=True)
        return lasting(
            names_of(servers), lambda on, _: world.blank_servers(readers, servers, on=on)
        )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if self.share is not None:
            for key in ("server", "count"):
                if self.select.written(key):
                    what = f"select.{key} says which servers already"
                    yield where.fault("share", what, hint=f"leave out share or select.{key}")

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = MetricFault.draw(dice, context)
        if dice.chance(0.5):
            return {**drawn, "share": dice.span(0.05, 1.0)}
        return {**drawn, **draw_select(dice, context)}
