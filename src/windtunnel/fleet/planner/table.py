"""The needs of clusters, as rows. A roll-up replaces all earlier needs of its cluster."""

from collections.abc import Iterable
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.fleet.need import Need, NeedKey, Places, fold, merge
from windtunnel.fleet.planner.entries import NO_UNITS, NeedRow
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.planner.supply import Supplies
from windtunnel.fleet.shape import MachineShape

QUARANTINE_ROWS: Final = 10
QUARANTINE_SHARE: Final = 0.1
QUARANTINE_ROLLUPS: Final = 3
"""If a cluster with ten rows or more suddenly keeps less than a tenth of them, its roll-up is
rejected until it was sent three times: an empty list is more often a fault than intended."""

MOST_PLACES: Final = 100_000
"""Number of amounts cached with whether they fit on one machine."""


def check_owner(cluster: str, needs: Iterable[Need]) -> None:
    """Checks that a roll-up contains only needs of its own cluster."""
    for need in needs:
        if need.cluster != cluster:
            raise InputError(
                f"it has a need of cluster {need.cluster!r}",
                where=f"roll-up of cluster {cluster!r}",
                allowed="needs of its own",
            )


class NeedsTable:
    """The needs of all clusters; the next cycle looks only at rows that changed."""

    def __init__(self, inventory: Inventory, supplies: Supplies) -> None:
        self._inventory: Final = inventory
        self._supplies: Final = supplies
        self._rows: Final[dict[str, dict[NeedKey, NeedRow]]] = {}
        self._needs: Final[dict[NeedRow, Need]] = {}
        self._doubted: Final[dict[str, int]] = {}
        self._shapes: list[MachineShape] = []
        self._places: Final[Places] = {}  # what fits on one machine of these shapes
        self.live = 0
        self.priorities: Final[dict[int, int]] = {}  # how many live needs have each

    def replace(self, cluster: str, needs: Iterable[Need]) -> bool:
        """Takes a roll-up: all needs of a cluster. False while it is quarantined."""
        # Merge first: whether a gang fits on one machine depends on all its members together.
        asked = merge(needs).values()
        check_owner(cluster, asked)
        merged = merge(self._fold(asked))
        owner = self._inventory.cluster(cluster)
        before = self._rows.get(cluster, {})
        if self._doubts(cluster, len(before), len(merged)):
            return False
        owner.ready = True
        after: dict[NeedKey, NeedRow] = {}
        for key, need in merged.items():
            after[key] = self._put(key, need)
        for key, row in before.items():
            if key not in after:
                self._drop(row)
        self._rows[cluster] = after
        return True

    def revise(self, cluster: str, asked: Iterable[Need], withdrawn: Iterable[NeedKey]) -> bool:
        """Takes the changes since the last roll-up. False if they are quarantined.

        They must contain no need with a Same, and no two with one key: how gangs are folded depends
        on all of them.
        """
        fresh = {one.key(): one for one in asked}
        check_owner(cluster, fresh.values())
        before = self._rows.get(cluster, {})
        gone = [key for key in withdrawn if key in before and key not in fresh]
        new = sum(key not in before for key in fresh)
        if self._doubts(cluster, len(before), len(before) + new - len(gone)):
            return False
        for key, need in fresh.items():
            self._put(key, need)
        for key in gone:
            self._drop(before.pop(key))
        return True

    def folds_as_before(self) -> bool:
        """Whether the shapes that gangs were folded for are still those of the inventory."""
        return self._shapes == self._alive()

    def _alive(self) -> list[MachineShape]:
        return [stock.shape for stock in self._inventory.stocks if stock.alive]

    def _fold(self, needs: Iterable[Need]) -> list[Need]:
        """Replaces gangs that fit on one machine by units; shapes without machines host none."""
        shapes = self._alive()
        if shapes != self._shapes or len(self._places) > MOST_PLACES:
            self._shapes = shapes
            self._places.clear()
        return fold(needs, shapes, self._places)

    def _doubts(self, cluster: str, before: int, after: int) -> bool:
        if before >= QUARANTINE_ROWS and after < before * QUARANTINE_SHARE:
            times = self._doubted.get(cluster, 0) + 1
            if times < QUARANTINE_ROLLUPS:
                self._doubted[cluster] = times
                return True
        self._doubted.pop(cluster, None)
        return False

    def put(self, need: Need) -> NeedRow:
        """Adds or changes one need, which must already be merged."""
        return self._put(need.key(), need)

    def _put(self, key: NeedKey, need: Need) -> NeedRow:
        row = self._inventory.row(key)
        before = self._needs.get(row)
        if before == need:
            return row
        if before is None:
            self.live += 1
            self.priorities[row.priority] = self.priorities.get(row.priority, 0) + 1
            row.live = True
            profile = need.profile
            over = profile.spread_over
            row.same = bool(profile.same_key)
            row.skew = over.max_skew if over else 0
            row.domain_key = over.key if over else profile.same_key
            self._rows.setdefault(need.cluster, {})[key] = row
        self._needs[row] = need
        row.turn = (need.arrival_s, row.key)
        row.want = [amount for _, amount in need.aggregate]
        units = need.sizes()
        sizing = self._inventory.sizing(tuple([size for size, _ in units]))
        row.counts = tuple([count for _, count in units])
        if before is None or row.sizing is not sizing:
            self._supplies.register(row, need)
            row.sizing = sizing
        self._inventory.touch(row)
        return row

    def _drop(self, row: NeedRow) -> None:
        self.live -= 1
        self.priorities[row.priority] -= 1
        if not self.priorities[row.priority]:
            del self.priorities[row.priority]
        row.live = False
        row.want = []
        row.sizing = NO_UNITS
        row.counts = ()
        row.left = ()
        del self._needs[row]
        self._supplies.forget(row)
        self._inventory.touch(row)

    def needs(self) -> list[Need]:
        """All needs, merged, in the order of service."""
        return sorted(self._needs.values(), key=Need.order)

    def get(self, key: NeedKey) -> Need | None:
        """The need of a key, if its cluster asks for it."""
        row = self._inventory.rows.get(key)
        return None if row is None else self._needs.get(row)

    def names(self, row: NeedRow) -> list[str]:
        """The names of the resources that a row asks for."""
        return [name for name, _ in self._needs[row].aggregate]
