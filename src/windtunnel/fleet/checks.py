"""Invariants of a fleet: within a shard's books, and between shards and their provider.

They look at every machine, so they are for tests and for every few cycles of a soak.
"""

from typing import Final

from windtunnel.core.invariants import Invariant
from windtunnel.fleet.planner.entries import BEING_CREATED, NOT_COMING, MachineEntry
from windtunnel.fleet.provider import Provider
from windtunnel.fleet.shard import TRANSITIONAL, Shard
from windtunnel.fleet.states import FAILED, SPECULATIVE, STATES


class Fleet:
    """The shards of one provider, between two events."""

    def __init__(self, shards: list[Shard], provider: Provider) -> None:
        self.shards: Final = shards
        self.provider: Final = provider


def _one_need_each(fleet: Fleet) -> str | None:
    """Checks that every machine is in the list of exactly the row that it points at."""
    for shard in fleet.shards:
        inventory = shard.planner.inventory
        counted: dict[str, str] = {}
        rows = list(inventory.rows.values())
        rows += [cluster.unknown for cluster in inventory.clusters.values()]
        for row in rows:
            for entry in row.held:
                if entry.id in counted or entry.row is not row:
                    return f"machine {entry.id!r} is held by {row.key} and by another"
                counted[entry.id] = ""
        for name, entry in inventory.entries.items():
            if entry.row is not None and name not in counted:
                return f"machine {name!r} points at a need that does not hold it"
    return None


def _free_lists(fleet: Fleet) -> str | None:
    """Checks that the machines to take are the free ones, without those of closed offerings."""
    for shard in fleet.shards:
        inventory = shard.planner.inventory
        free = {
            entry.id: entry
            for entry in inventory.entries.values()
            if entry.is_free() and not (entry.state == SPECULATIVE and entry.stock.closed)
        }
        listed = [entry for stock in inventory.stocks for entry in stock.free()]
        count = sum(stock.free_count for stock in inventory.stocks)
        if (
            len(listed) != len(free)
            or count != len(free)
            or any(entry.id not in free for entry in listed)
        ):
            return f"{len(listed)} machines may be taken, and {len(free)} are free"
    return None


def _one_shard_each(fleet: Fleet) -> str | None:
    owner: dict[str, str] = {}
    for shard in fleet.shards:
        for name in shard.planner.inventory.entries:
            if name in owner:
                return f"machine {name!r} is decided about by {owner[name]} and {shard.name}"
            owner[name] = shard.name
    return None


def _same_domain(fleet: Fleet) -> str | None:
    """Checks that the machines of a complete gang share one value of the key that it named."""
    for shard in fleet.shards:
        for row in shard.planner.inventory.rows.values():
            if row.same and row.live and row.whole:
                counting = [entry for entry in row.held if _counts(entry)]
                values = {entry.stock.attributes.get(row.domain_key, "") for entry in counting}
                if len(values) > 1:
                    return f"the gang {row.key} is in {len(values)} domains"
    return None


def _counts(entry: MachineEntry) -> bool:
    """Whether a machine counts; one being created cannot be stopped, and is spare later."""
    return not entry.spare and entry.stage() not in (NOT_COMING, BEING_CREATED)


def _as_the_provider_says(fleet: Fleet) -> str | None:
    """Checks that a machine without an action under way is in the state that its provider reports.

    The two may differ if a shard gave up, or has not heard of a loss yet.
    """
    for shard in fleet.shards:
        for name, entry in shard.planner.inventory.entries.items():
            record = fleet.provider.get(name)
            if record is None or record.state == entry.state:
                continue
            if FAILED in (record.state, entry.state) or shard.executor.is_running(name):
                continue
            if entry.state in TRANSITIONAL:
                continue  # begun before the shard restarted: the next list will show it
            if name in shard.reconciler.doubtful:
                continue  # its last record of the machine was rejected
            return f"machine {name!r} is {STATES[int(entry.state)]}, not {STATES[record.state]}"
    return None


INVARIANTS: Final = (
    Invariant("one-need-each", "each machine is counted for one need", _one_need_each),
    Invariant("free-lists", "free machines, and only those, may be taken", _free_lists),
    Invariant("one-shard-each", "each machine belongs to one shard", _one_shard_each),
    Invariant("same-domain", "a gang that asks for one domain is in one", _same_domain),
    Invariant(
        "as-listed", "shard and provider agree where nothing is under way", _as_the_provider_says
    ),
)
