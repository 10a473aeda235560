"""The fleet of a run: the fleet controller on a simulated provider, and the nodes of clusters.

Before every cycle each cluster sends the changes of its demand. The fleet's actions reach the
clusters as nodes that join, are drained, and leave.
"""

from collections.abc import Callable
from typing import Final, Protocol

from windtunnel.core.errors import NoFixedPoint
from windtunnel.core.loop import Component, EventQueue
from windtunnel.core.random import Streams
from windtunnel.core.taints import taint_of
from windtunnel.core.telemetry import Plain
from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.demand.requests import (
    ACCELERATOR,
    CPU,
    GPU,
    MEMORY,
    TAINTS,
    MachineKind,
    taints_in,
    taints_text,
)
from windtunnel.fleet.demand.roll_up import RollUp
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import ACTIONS, VERDICTS, CyclePlan
from windtunnel.fleet.provider import FROM_THE_START
from windtunnel.fleet.settings import PODS, FleetPool, FleetSettings
from windtunnel.fleet.shape import MachineShape
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import (
    CONFIGURED,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
    STATES,
)
from windtunnel.gangs.objects import Node
from windtunnel.twin.fleet.meter import MachineMeter
from windtunnel.twin.fleet.pools import machine_price
from windtunnel.twin.fleet.provider import Delays, ProviderLink, SimulatedProvider

SHARD: Final = "fleet"
LISTENER: Final = "twin"
WHOLE_GRACE_S: Final = 1e9
"""How long a drain takes, unless the machine is reported empty earlier: all of its grace period."""
JOIN_S: Final = 5.0
GIVE_BACK_S: Final = 10.0
MOST_STEPS: Final = 100_000
"""The most steps of the fleet at one instant: more is an endless loop."""

EventLogger = Callable[[float, str, str, str, dict[str, Plain]], None]


class Tenant(Protocol):
    """A cluster, as far as machines are concerned."""

    def look(self, now_s: float) -> Demand:
        """Its current demand for machines."""

    def hold(self, machine: str, row: str, rank: int) -> None:
        """Counts one of its machines toward a row; machines of lower rank are filled first."""

    def release(self, machine: str) -> None:
        """Stops counting a machine: it leaves, or has failed."""

    def asked_by(self, row: str) -> dict[str, Plain]:
        """The pool, gang and pod that a row was requested for, as data."""

    def join(self, node: Node, now_s: float) -> None: ...

    def empty(self, machine: str, now_s: float) -> None:
        """Drains a machine that will leave."""

    def leave(self, machine: str, now_s: float) -> None:
        """Removes a machine, along with everything on it."""

    def is_empty(self, machine: str) -> bool: ...

    def fail(self, machine: str, now_s: float) -> None:
        """Stops a machine; the cluster finds out later that it will not come back."""


class Machines(Component):
    """The fleet of a run."""

    def __init__(
        self,
        settings: FleetSettings,
        initial: list[int],
        streams: Streams,
        levels: dict[str, list[str]],
        tenants: dict[str, Tenant],
        lost_after_s: float,
    ) -> None:
        self.settings: Final = settings
        self._levels: Final = levels
        self._tenants: Final = tenants
        self._lost_after_s: Final = lost_after_s
        self.pool_of: Final[dict[str, FleetPool]] = {}  # by instance type
        self.provider: Final = SimulatedProvider(
            Delays(),
            streams,
            {
                pool.name: Delays(
                    pool.provisioning.mean_s,
                    JOIN_S,
                    WHOLE_GRACE_S,
                    GIVE_BACK_S,
                    pool.provisioning.cv,
                )
                for pool in settings.pools
            },
        )
        self.link: Final = ProviderLink(self.provider)
        self.meter: Final = MachineMeter([pool.name for pool in settings.pools])
        self.shard = Shard(SHARD)
        self.driver: Final = FleetDriver(
            self.link, [self.shard], streams["fleet.fetch"], cycle_s=settings.cycle_s
        )
        self.driver.before_cycle = self._look
        self.driver.after_cycle = self._note
        self._log: EventLogger = _discard
        """Logs decisions and changes of machines: time, kind, subject, reason and data."""
        self.decided = 0  # since the start of the run; the number is the decision's id
        self._cursor = FROM_THE_START
        self._known: Final[dict[str, Machine]] = {}
        self._ranks: Final[dict[str, int]] = {}  # by machine: how many were known before it
        self._ranked = 0
        self._roll_ups: Final[dict[str, RollUp]] = {}  # by cluster
        self._waiting: Final[dict[str, dict[str, None]]] = {}  # machines to be drained, by cluster
        self._losses: Final = EventQueue()  # lost machines to be removed, as (cluster, name)
        self._unaware: Final[dict[str, None]] = {}  # lost, and their clusters do not know yet
        self.actions: Final[dict[str, int]] = {}
        self.verdicts: dict[str, str] = {}
        """Unsatisfied needs, each with the reason."""
        self._said: dict[str, str] = {}  # the reasons that have been logged
        self._closed: Final[list[Machine]] = []  # places that open when the run begins
        for pool, count in zip(settings.pools, initial, strict=True):
            self.pool_of[pool.name] = pool
            self._found(pool, count)

    def _found(self, pool: FleetPool, initial: int) -> None:
        """Creates the machines of a pool: those that exist, and places for more."""
        for number in range(pool.machines.max):
            machine = Machine(f"{pool.name}-{number}", self.shape_of(pool, number))
            if number < initial:
                there = Machine(machine.id, machine.shape, IDLE, host=f"host-{machine.id}")
                self.provider.add(there)
            else:
                self._closed.append(machine)

    def shape_of(self, pool: FleetPool, number: int) -> MachineShape:
        labels = self._labels(pool)
        rack = f"{pool.name}-rack-{pool.rack_of(number)}"
        for key in self._levels.get("rack", []):
            labels[key] = rack
        return pool.shape(number, labels, machine_price(pool) or 0.0)

    def kinds(self) -> list[MachineKind]:
        """The kinds of machines that clusters can request."""
        return [
            MachineKind(pool.capacity_for_pods(), self._labels(pool))
            for pool in self.settings.pools
        ]

    def _labels(self, pool: FleetPool) -> dict[str, str]:
        """The labels that all machines of a pool have."""
        zones = dict.fromkeys(self._levels.get("zone", []), pool.zone)
        taints = taints_text(taint_of(text) for text in pool.taints)
        labels = {**pool.labels, ACCELERATOR: pool.accelerator, **zones}
        return {**labels, TAINTS: taints} if taints else labels

    def set_pace(self, pace: float) -> None:
        """Sets the factor on the duration of everything that begins from now on."""
        self.provider.slowness = self.driver.pace = pace

    def begin(self, now_s: float) -> None:
        """Begins the run: machines are paid for from now on, and further ones become available."""
        self.meter.begin(now_s)
        self.actions.clear()
        self.decided = 0
        for machine in self._closed:
            self.provider.add(machine)
        self._closed.clear()

    # Time.

    def next_s(self) -> float:
        return min(self.driver.next_s(), self._losses.next_s)

    @property
    def under_way(self) -> int:
        """Changes that are still to come: orders in progress, and machines that come back."""
        return self.shard.executor.running + len(self._losses)

    def advance(self, now_s: float) -> None:
        """Does what is due, and informs the clusters."""
        for _ in range(MOST_STEPS):
            while self._losses.next_s <= now_s:
                self._remove_lost(now_s)
            if self.driver.next_s() > now_s:
                return
            self.driver.advance(now_s)
            self.follow(now_s)
        raise NoFixedPoint(f"{MOST_STEPS:,} steps of the fleet")

    def follow(self, now_s: float) -> None:
        """Follows the changes at the provider, which knows the state of every machine."""
        if self._cursor == self.provider.revision:
            return
        page = self.provider.list_since(LISTENER, 1, self._cursor)
        self._cursor = page.cursor
        for record in page.records:
            before = self._known.get(record.id)
            self._known[record.id] = record
            if before is None:
                self._ranked += 1
                self._ranks[record.id] = self._ranked
            self._count(record.id, before, record)
            if before is None or before.state != record.state:
                self.meter.move(record, before, now_s)
                self._changed(record, before, now_s)
        for name in page.tombstones:
            gone = self._known.pop(name, None)
            if gone is not None:
                self.meter.forget(gone, now_s)
                self._count(name, gone, None)
                del self._ranks[name]

    def _count(self, machine: str, before: Machine | None, after: Machine | None) -> None:
        """Tells clusters which of their machines counts toward which row."""
        was, now = _held(before), _held(after)
        if was == now:
            return
        if was is not None and (now is None or now[0] != was[0]):
            self._tenants[was[0]].release(machine)
        if now is not None:
            self._tenants[now[0]].hold(machine, now[1], self._ranks[machine])

    def _changed(self, record: Machine, before: Machine | None, now_s: float) -> None:
        was = before.state if before is not None else SPECULATIVE
        if record.state not in (SPECULATIVE, IDLE) or was != SPECULATIVE:
            about = before if before is not None and not record.cluster else record
            data: dict[str, Plain] = {"kind": record.shape.instance_type}
            if about.cluster:
                data["cluster"] = about.cluster
            if about.holder is not None:
                data["row"] = about.holder.group
            kind = f"machine.{STATES[record.state]}"
            self._log(now_s, kind, f"machine/{record.id}", record.error, data)
        if record.state == CONFIGURED:
            self._tenants[record.cluster].join(node_of(record), now_s)
        elif record.state == DRAINING:
            self._waiting.setdefault(record.cluster, {})[record.id] = None
            self._tenants[record.cluster].empty(record.id, now_s)
        elif was in (CONFIGURED, DRAINING) and before is not None:
            self._waiting.get(before.cluster, {}).pop(record.id, None)
            if record.state != FAILED:
                self._tenants[before.cluster].leave(record.id, now_s)

    def vacate(self, now_s: float) -> None:
        """Tells the provider about machines that are empty before their grace period ends."""
        for cluster, machines in self._waiting.items():
            for machine in list(machines):
                if self._tenants[cluster].is_empty(machine):
                    del machines[machine]
                    self.provider.emptied(machine, now_s)

    # Decisions.

    def listen(self, log: EventLogger) -> None:
        """Logs events from now on; existing shortfalls are logged in the next cycle."""
        self._log = log
        self._said = {}

    def _look(self, now_s: float) -> None:
        self.follow(now_s)
        for name, tenant in self._tenants.items():
            demand = tenant.look(now_s)
            self._roll_ups.setdefault(name, RollUp(name)).send(self.shard, demand)

    def _note(self, shard: Shard, plan: CyclePlan, now_s: float) -> None:  # noqa: ARG002 - there is one
        for action in plan.actions:
            word = ACTIONS[action.kind]
            self.actions[word] = self.actions.get(word, 0) + 1
            data = self._decision(action.need)
            machine = self._known.get(action.machine)
            if machine is not None:
                data["kind"] = machine.shape.instance_type
            self._log(now_s, f"fleet.{word}", f"machine/{action.machine}", action.reason, data)
        verdicts = {}
        for one in plan.shortfalls:
            name = f"{one.need.cluster}/{one.need.group}"
            why = verdicts[name] = f"{VERDICTS[one.verdict]}: {one.reason}"
            if self._said.get(name) != why:
                self._log(now_s, "fleet.short", f"need/{name}", why, self._decision(one.need))
        for name in self._said:
            if name not in verdicts:
                self._log(now_s, "fleet.met", f"need/{name}", "", {})
        self.verdicts = self._said = verdicts

    def _decision(self, need: NeedKey | None) -> dict[str, Plain]:
        """The id of a decision, and what it was made for."""
        self.decided += 1
        data: dict[str, Plain] = {"id": f"fleet-{self.decided}"}
        if need is not None:
            data |= {"cluster": need.cluster, "row": need.group}
            data |= self._tenants[need.cluster].asked_by(need.group)
        return data

    # Faults.

    def lose(self, machine: str, error: str, now_s: float, back_s: float | None = None) -> None:
        """Loses a machine for good; after a while its place becomes available again."""
        record = self.provider.get(machine)
        if record is None or record.state in (SPECULATIVE, CREATING, FAILED):
            return
        if record.state in (CONFIGURED, DRAINING):  # a node of its cluster
            self._tenants[record.cluster].fail(machine, now_s)
            self._losses.push(now_s + self._lost_after_s, 0, (record.cluster, machine))
            self._unaware[machine] = None
        self.provider.lose(machine, error, now_s)
        self.follow(now_s)
        back_s = self.settings.replaced_after_s if back_s is None else back_s
        self._losses.push(now_s + back_s, 0, ("", machine))

    def warn(self, machine: str, now_s: float) -> None:
        """Drains a machine that will be reclaimed."""
        record = self.provider.get(machine)
        if record is not None and record.state == CONFIGURED:
            self._tenants[record.cluster].empty(machine, now_s)

    def _remove_lost(self, now_s: float) -> None:
        """Removes a lost machine from its cluster, or from the provider's list."""
        entry = self._losses.pop()
        assert entry is not None
        lost = entry.payload
        assert isinstance(lost, tuple)
        cluster, machine = lost
        if cluster:
            self._unaware.pop(machine, None)
            self._tenants[cluster].leave(machine, now_s)
        else:
            self.provider.replace(machine)
            self.follow(now_s)

    def is_unnoticed_loss(self, machine: str) -> bool:
        """Whether a machine was lost and its cluster does not know it yet."""
        return machine in self._unaware

    def restart(self, now_s: float) -> None:
        """Restarts the fleet controller without its state."""
        self.shard = Shard(SHARD, epoch=self.shard.epoch + 1)
        for one in self._roll_ups.values():
            one.resend()
        self.driver.restart(self.shard, now_s)


def _held(machine: Machine | None) -> tuple[str, str] | None:
    """The cluster and the row that a machine counts toward; None when there is none."""
    if machine is None or machine.state != CONFIGURED or machine.holder is None:
        return None
    return machine.cluster, machine.holder.group


def node_of(record: Machine) -> Node:
    """The node of a machine in its cluster."""
    amounts = dict(record.shape.resources)
    capacity = {
        GPU: float(amounts[GPU]),
        CPU: amounts[CPU] / 1000.0,
        MEMORY: float(amounts[MEMORY]),
        "pods": PODS,
    }
    labels = record.shape.attributes()
    taints = tuple(taints_in(labels.pop(TAINTS, "")))
    return Node(record.id, capacity, labels, taints)


def _discard(now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]) -> None:
    """Logs nothing."""
