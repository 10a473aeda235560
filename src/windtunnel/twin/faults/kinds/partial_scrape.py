"""`partial-scrape`: the metrics of some servers do not reach their readers."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Number
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.metrics import MetricFault
from windtunnel.twin.faults.servers import ServerFault, ServerSelect, draw_select, names_of
from windtunnel.twin.faults.world import World


class PartialScrape(ServerFault, MetricFault):
    """Scrapes of some ready servers fail, and those of the others do not.

    Routers go by what they last knew of these servers; an autoscaler sees that they are missing.
    """

    kind: Literal["partial-scrape"]
    select: ServerSelect = Field(
        default_factory=ServerSelect,
        description="Which servers are not scraped; left out: one of all.",
    )
    share: Annotated[float, Number(0, 1, above=True)] | None = Field(
        default=None,
        description="The share of the servers that are not scraped, at least one of them; left "
        "out: `select.count` says how many.",
    )

    @property
    def is_random(self) -> bool:
        return super().is_random if self.share is None else self.every is not None or self.share < 1

    def prepare(self, world: World, stream: Stream) -> Injection:
        """Servers that start meanwhile are scraped."""
        select, readers = self.select, self.hit_readers(world)
        if self.share is not None:
            ready = len(world.servers(select.pool, ready_only=True))
            select = select.model_copy(update={"count": max(1, round(self.share * ready))})
        servers = select.choose(world, stream, ready_only=True)
        return Injection(
            names_of(servers),
            begin=lambda _: world.blank_servers(readers, servers, 1),
            end=lambda _: world.blank_servers(readers, servers, -1),
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
