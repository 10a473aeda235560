"""Several shards on one cluster: messages between them and their coordinator, in ConfigMaps.

A shard writes its report beside its rows. The coordinator writes its books and all instructions
into one ConfigMap with one call, so a visible instruction is always in the books. Both read with a
plain GET and never from a cache, which could show an instruction that was answered long ago.
"""

from typing import Any, Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.kubernetes.settings import LiveFleet
from windtunnel.fleet.shard import Territory
from windtunnel.fleet.sharding.coordinator import Books, Coordinator
from windtunnel.fleet.sharding.messages import Instruction, Release, ShardReport, Take

BOOKS: Final = "books"
ORDERS: Final = "orders"
REPORT: Final = "report"
"""Keys of the ConfigMaps."""
COORDINATOR: Final = "coordinator"
"""Its name among the shards."""


class ShardOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """The instructions that a shard has not answered yet."""

    release: list[Release] = []
    take: list[Take] = []

    def all(self) -> list[Instruction]:
        return [*self.release, *self.take]


class FleetCoordinator:
    """The coordinator of a fleet, with its stored books."""

    def __init__(self, data: dict[str, Any] | None, fleet: LiveFleet) -> None:
        books = _decoded(data, BOOKS, Books) if data else None
        self._coordinator: Final = Coordinator(books)
        self._orders: Final[dict[str, ShardOrders]] = {}
        for shard in fleet.shards:
            self._coordinator.add_shard(shard.name)
            for zone in shard.zones:
                self._coordinator.assign(zone, shard.name)

    def report(self, data: dict[str, Any] | None, now_s: float) -> None:
        """Takes the report from the ConfigMap of a shard, if there is one."""
        if not data or REPORT not in data:
            return
        report = _decoded(data, REPORT, ShardReport)
        found = self._coordinator.report(report, now_s)
        self._orders[report.shard] = ShardOrders(
            [one for one in found if isinstance(one, Release)],
            [one for one in found if isinstance(one, Take)],
        )

    def data(self) -> dict[str, str]:
        """The data to store: books and instructions, in one call."""
        orders = {name: self._orders[name] for name in sorted(self._orders)}
        return {BOOKS: _text(self._coordinator.books), ORDERS: _text(orders)}


def territory_of(data: dict[str, Any], shard: str) -> Territory:
    """The machines of a starting shard, from the coordinator's ConfigMap."""
    return Coordinator(_decoded(data, BOOKS, Books)).territory(shard)


def orders_of(data: dict[str, Any], shard: str) -> list[Instruction]:
    """The instructions for a shard in the coordinator's ConfigMap."""
    found = _decoded(data, ORDERS, dict[str, ShardOrders])
    return found[shard].all() if shard in found else []


def report_text(report: ShardReport) -> str:
    return _text(report)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _decoded(data: dict[str, Any], key: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data.get(key, ""), type=kind)
    except (msgspec.DecodeError, TypeError) as error:
        what = f"the key {key!r} of a ConfigMap of the fleet cannot be read: {error}"
        raise InputError(what, hint="restore it from a backup, or delete the ConfigMap") from None
