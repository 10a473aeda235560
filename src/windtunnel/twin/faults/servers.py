"""Faults of servers: which servers they hit."""

import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Name, Share, Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import Added, Context, Section
from windtunnel.twin.faults.context import FaultContext, context_of
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.faults.timing import unknown_pool
from windtunnel.twin.faults.world import World
from windtunnel.twin.servers.replicas import Replica

ALL = "all"
ROUNDING = 1e-9
"""Tolerance for rounding a share of a number: 0.07 of 100 is 7."""


class ByCount(Section):
    """How many of the existing ones a fault hits: a number, a share, or all."""

    share: Annotated[Annotated[float, Share(above=True)] | None, Added()] = Field(
        default=None,
        description="Share to draw instead of `count`, rounded up.",
    )

    def number_of(self, count: int | str, existing: int) -> int:
        """The number to select out of a total."""
        if self.share is not None:
            return math.ceil(self.share * existing - ROUNDING)
        return existing if isinstance(count, str) else min(count, existing)

    def draws(self, count: int | str) -> bool:
        """Whether the selection is random."""
        return self.share < 1.0 if self.share is not None else count != ALL

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if self.share is not None and self.written("count"):
            yield where.fault("share", "count is written, too", hint="leave out share or count")


class ServerSelect(ByCount):
    """The existing servers that a fault hits."""

    pool: Annotated[str, Name()] | None = Field(default=None, description="Only this pool.")
    server: Annotated[int, Whole(0, MOST_REPLICAS - 1)] | None = Field(
        default=None,
        description="The server with this number in the named pool. Default: drawn.",
    )
    count: Annotated[int | str, Whole(1, MOST_REPLICAS, word=ALL)] = Field(
        default=1, description="How many to draw."
    )

    @property
    def is_random(self) -> bool:
        return self.server is None and self.draws(self.count)

    def choose(self, world: World, stream: Stream, *, ready_only: bool = False) -> list[Replica]:
        """Chooses ready and draining servers, by number; fewer than configured if there are no
        more.

        Exactly one uniform is drawn per randomly chosen server.
        """
        found = world.servers(self.pool, ready_only=ready_only)
        if self.server is not None:
            return [one for one in found if one.number == self.server]
        many = self.number_of(self.count, len(found))
        if many >= len(found):
            return found
        picked = [found.pop(stream.integer(0, len(found) - 1)) for _ in range(many)]
        picked.sort(key=lambda one: int(one.server.index))
        return picked

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        yield from unknown_pool(where, self.pool)
        if self.server is None:
            yield from self._too_many(where)
            return
        for key in ("count", "share"):
            if self.written(key):
                yield where.fault(key, "one server is named", hint=f"leave out {key} or server")
        if self.pool is None:
            what = "a number, and no pool that it counts in"
            yield where.fault("server", what, hint="add pool")
        context = context_of(where.root)
        size = context.servers.get(self.pool or "")
        if not context.scales and size is not None and self.server >= size:
            what = f"{self.server}, and the pool has {size}, counted from 0"
            yield where.fault("server", what, f"a whole number from 0 to {size - 1}")

    def _too_many(self, where: Context) -> Iterator[Fault]:
        """A note if more are to be hit than there ever are."""
        context = context_of(where.root)
        sizes = context.servers
        own = sizes.get(self.pool, 0) if self.pool is not None else sum(sizes.values())
        if not context.scales and own and isinstance(self.count, int) and self.count > own:
            there = "is 1 server" if own == 1 else f"are {own} servers"
            what = f"{self.count}, but there {there}: all are hit"
            yield where.note("count", what, f"write {own}, or all")


class ServerFault(InjectedFault):
    """A fault that hits servers."""

    select: ServerSelect = Field(
        default_factory=ServerSelect, description="Which servers; default: one of all."
    )

    @property
    def is_random(self) -> bool:
        return super().is_random or self.select.is_random

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), **draw_select(dice, context)}


def draw_number(dice: Dice) -> Values:
    """Draws how many are hit."""
    drawn = dice.pick(1, 2, ALL, 0.4)
    return {"share" if isinstance(drawn, float) else "count": drawn}


def draw_select(dice: Dice, context: FaultContext) -> Values:
    if dice.chance(0.3):
        return {}
    select = draw_number(dice)
    if dice.chance(0.5):
        select["pool"] = dice.pick(*context.servers)
    return {"select": select}


def names_of(replicas: list[Replica]) -> list[str]:
    """The names of replicas in events and results."""
    return [f"{one.pool.name}-{one.number}" for one in replicas]
