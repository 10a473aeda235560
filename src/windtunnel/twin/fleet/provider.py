"""A provider in virtual time: delays are random, and places in a quota come and go."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.loop import Entry, EventQueue
from windtunnel.core.random import Stream, Streams
from windtunnel.fleet.machine import Machine, fault_of, transition
from windtunnel.fleet.orders import (
    CONFIGURE,
    CREATE,
    DELETE,
    DRAIN,
    TAG,
    Fence,
    MachineOrder,
    Token,
)
from windtunnel.fleet.provider import (
    CAPACITY,
    PAGE,
    PERMANENT,
    STEPS,
    ChangeLog,
    Completion,
    Page,
)
from windtunnel.fleet.shape import MachineShape
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, FAILED, SPECULATIVE, STATES

NO_CAPACITY_S: Final = 2.0
"""The longest time until a provider reports that it has no capacity."""


@dataclass
class Delays:
    """How long operations take: the mean of each, and one coefficient of variation for all."""

    create_s: float = 60.0
    """A cloud makes a host in about a minute."""
    configure_s: float = 5.0
    drain_s: float = 30.0
    """The grace period of the order applies where it is shorter."""
    delete_s: float = 10.0
    cv: float = 0.5
    """Coefficient of variation of a lognormal delay; 0 makes it constant."""

    def check(self) -> "Delays":
        """Returns itself if every delay is valid; raises InputError otherwise."""
        for name in ("create_s", "configure_s", "drain_s", "delete_s", "cv"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise InputError(f"{name} is {value}", allowed="a number of 0 or more")
        return self

    def mean_s(self, operation: str) -> float:
        means = {
            CREATE: self.create_s,
            CONFIGURE: self.configure_s,
            DRAIN: self.drain_s,
            DELETE: self.delete_s,
        }
        return means[operation]


class UnderWay:
    """An operation in progress."""

    __slots__ = ("entry", "error", "machine", "operation", "token")

    def __init__(self, operation: str, machine: str, token: Token) -> None:
        self.operation: Final = operation
        self.machine: Final = machine
        self.token = token
        self.entry: Entry | None = None  # its completion
        self.error = ""  # the reason if it will fail for lack of capacity


@dataclass
class CapacityShortage:
    """Machines that a provider has no capacity for; empty matches any instance type or zone."""

    instance_type: str = ""
    zone: str = ""

    def hits(self, shape: MachineShape) -> bool:
        hit = self.instance_type in ("", shape.instance_type)
        return hit and self.zone in ("", shape.zone)


class SimulatedProvider:
    """Carries out orders after a delay, and keeps a log of all changes."""

    def __init__(
        self, delays: Delays, streams: Streams, by_type: Mapping[str, Delays] | None = None
    ) -> None:
        self._delays: Final = delays.check()
        self._by_type: Final = {name: one.check() for name, one in (by_type or {}).items()}
        """The delays of instance types that have their own."""
        self._draws: Final[dict[str, Stream]] = {
            operation: streams[f"fleet.provider.{operation}"] for operation in STEPS
        }
        self._changes: Final = ChangeLog()
        self._machines: Final = self._changes.records
        self._kinds: Final[dict[MachineShape, int]] = {}  # the number of each offered shape
        self._places: Final[dict[int, int]] = {}  # how many ids each shape has had
        self._fence: Final = Fence()
        self._epochs: Final[dict[str, int]] = {}
        self._under_way: Final[dict[str, UnderWay]] = {}
        self._queue: Final = EventQueue()  # operations that end, and immediate answers
        self.configured: Final[list[str]] = []
        """Configured machines, in arbitrary order: faults are drawn from it."""
        self._configured_at: Final[dict[str, int]] = {}
        self.begun: Final[dict[str, int]] = dict.fromkeys(STEPS, 0)
        self.repeated: Final[dict[str, int]] = dict.fromkeys(STEPS, 0)
        """Orders for operations already in progress or done."""
        self.repeats: Final[list[tuple[str, Token]]] = []
        """The shard and token of each of those orders."""
        self.fenced = 0
        self.shortages: Final[list[CapacityShortage]] = []
        """The current shortages: no such machine can be created."""
        self.slowness = 1.0
        """Factor on the duration of operations that begin now; 0 makes them instantaneous."""

    # Adding and removing machines.

    def add(self, machine: Machine) -> None:
        """Adds a machine, or a place in a quota."""
        fault = fault_of(machine)
        if fault:
            raise InputError(fault, where=f"machine {machine.id!r}")
        if machine.id in self._machines:
            raise InputError("already exists", where=f"machine {machine.id!r}")
        self._set(machine)

    def offer(self, shape: MachineShape, places: int) -> None:
        """Sets how many more machines of a shape can be created: the remaining quota.

        A new price is a new shape: offer none of the old one, and some of the new. Existing
        machines keep their price.
        """
        if places < 0:
            where = f"shape {shape.instance_type} in {shape.zone}"
            raise InputError(f"{places} places are offered", where=where, allowed="0 or more")
        free = [
            one.id
            for one in self._machines.values()
            if one.state == SPECULATIVE and one.shape == shape
        ]
        free.sort()
        for name in free[places:]:
            self.remove(name)
        for _ in range(places - len(free)):
            self.open(shape)

    def open(self, shape: MachineShape) -> None:
        """Opens one more place, under a new id."""
        kind = self._kinds.setdefault(shape, len(self._kinds) + 1)
        number = self._places.get(kind, 0)
        self._places[kind] = number + 1
        self.add(Machine(f"{shape.instance_type}/{shape.zone}/{kind}/{number}", shape))

    def remove(self, machine: str) -> None:
        """Removes a machine and its operation in progress, leaving only a tombstone."""
        self._uncount(self._machines[machine])
        self._cancel(machine)
        self._changes.remove(machine)

    def replace(self, machine: str) -> None:
        """Removes a machine, and opens a place for another of its shape."""
        record = self._machines.get(machine)
        if record is not None:
            self.remove(machine)
            self.open(record.shape)

    def lose(self, machine: str, error: str, now_s: float) -> None:
        """Fails a machine, which is then listed as failed."""
        self._cancel(machine)
        self._set(transition(self._machines[machine], FAILED, now_s, error=error))

    def _cancel(self, machine: str) -> None:
        running = self._under_way.pop(machine, None)
        if running is not None and running.entry is not None:
            self._queue.cancel(running.entry)

    def _set(self, machine: Machine) -> None:
        before = self._machines.get(machine.id)
        if before is not None:
            self._uncount(before)
        self._changes.put(machine)
        if machine.state == CONFIGURED:
            self._configured_at[machine.id] = len(self.configured)
            self.configured.append(machine.id)

    def _uncount(self, machine: Machine) -> None:
        place = self._configured_at.pop(machine.id, -1)
        if place >= 0:
            last = self.configured.pop()
            if last != machine.id:
                self.configured[place] = last
                self._configured_at[last] = place

    @property
    def revision(self) -> int:
        """The revision of the last change: the cursor of a list that includes it."""
        return self._changes.revision

    # The interface.

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        """Accepts an order and returns at once."""
        name, operation = order.machine, order.operation
        if order.token.epoch < self._epochs.get(shard, 0) or not self._fence.admits(
            shard, name, order.token
        ):
            self.fenced += 1
            return
        record = self._machines.get(name)
        if record is None:
            error = "there is no such machine"
            self._answer(Completion(name, order.token, error, PERMANENT), now_s)
        elif operation == TAG:
            if record.state in (CONFIGURING, CONFIGURED):
                self._set(msgspec.structs.replace(record, holder=order.need))
        else:
            self._begin_step(shard, record, order, now_s)

    def _begin_step(self, shard: str, record: Machine, order: MachineOrder, now_s: float) -> None:
        name, operation = order.machine, order.operation
        step = STEPS[operation]
        running = self._under_way.get(name)
        if running is not None and running.operation == operation:
            self._repeat(shard, order)
            running.token = order.token
        elif record.state == step.end and record.cluster in ("", order.cluster):
            self._repeat(shard, order)
            self._answer(Completion(name, order.token, host=record.host), now_s)
        elif record.state != step.start:
            error = f"it is {STATES[record.state]}; {operation} begins at {STATES[step.start]}"
            self._answer(Completion(name, order.token, error), now_s)
        else:
            self.begun[operation] += 1
            started = self._under_way[name] = UnderWay(operation, name, order.token)
            due_s = now_s + self._delay_s(record, operation, order.grace_s)
            if operation == CREATE and any(one.hits(record.shape) for one in self.shortages):
                due_s = min(due_s, now_s + NO_CAPACITY_S)
                started.error = f"no capacity for {record.shape.instance_type}"
            started.entry = self._queue.push(due_s, 0, started)
            changed = transition(
                record,
                step.under_way,
                now_s,
                cluster=order.cluster if operation == CONFIGURE else None,
                holder=order.need if operation in (CREATE, CONFIGURE) else None,
            )
            if operation == DRAIN and order.need is not None:
                changed = msgspec.structs.replace(changed, promised=order.need)
            self._set(changed)

    def _answer(self, answer: Completion, now_s: float) -> None:
        self._queue.push(now_s, 0, answer)

    def _repeat(self, shard: str, order: MachineOrder) -> None:
        self.repeated[order.operation] += 1
        self.repeats.append((shard, order.token))

    def _delay_s(self, machine: Machine, operation: str, grace_s: float) -> float:
        delays = self._by_type.get(machine.shape.instance_type, self._delays)
        mean_s, cv = delays.mean_s(operation), delays.cv
        drawn_s = self._draws[operation].lognormal(mean_s, cv) if mean_s and cv else mean_s
        drawn_s *= self.slowness
        return min(drawn_s, grace_s) if operation == DRAIN and grace_s else drawn_s

    def get(self, machine: str) -> Machine | None:
        """The current record of a machine."""
        return self._machines.get(machine)

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """The changes after a cursor."""
        self._epochs[shard] = max(epoch, self._epochs.get(shard, 0))
        return self._changes.since(cursor, most)

    # Time.

    def emptied(self, machine: str, now_s: float) -> None:
        """Ends a drain early: the cluster reports that the machine is empty."""
        running = self._under_way.get(machine)
        if running is not None and running.operation == DRAIN and running.entry is not None:
            self._queue.cancel(running.entry)
            running.entry = self._queue.push(now_s, 0, running)

    def next_s(self) -> float:
        """When the next operation or answer is due."""
        return self._queue.next_s

    def advance(self, now_s: float) -> list[Completion]:
        """Finishes what is due; returns all answers since the last call."""
        answers: list[Completion] = []
        while self._queue.next_s <= now_s:
            entry = self._queue.pop()
            assert entry is not None
            due = entry.payload
            if isinstance(due, UnderWay):
                del self._under_way[due.machine]
                answers.append(self._finish(due, entry.time_s))
            else:
                assert isinstance(due, Completion)
                answers.append(due)
        return answers

    def _finish(self, running: UnderWay, now_s: float) -> Completion:
        name, operation = running.machine, running.operation
        if running.error:
            self._set(transition(self._machines[name], SPECULATIVE, now_s))
            return Completion(name, running.token, running.error, CAPACITY)
        host = f"host-{name}" if operation == CREATE else None
        changed = transition(self._machines[name], STEPS[operation].end, now_s, host=host)
        self._set(changed)
        return Completion(name, running.token, host=changed.host)

    def records(self) -> list[Machine]:
        """All machines, by id."""
        return [self._machines[name] for name in sorted(self._machines)]

    def __len__(self) -> int:
        return len(self._machines)


class ProviderLink:
    """The link to a provider: during an outage, neither orders nor answers get through.

    Operations in progress go on; their answers arrive after the outage.
    """

    def __init__(self, provider: SimulatedProvider) -> None:
        self._provider: Final = provider
        self._held: list[Completion] = []
        self.out = 0  # the number of faults that cut it off
        self.unheard = 0  # orders lost during outages

    def is_out(self, now_s: float) -> bool:  # noqa: ARG002 - for links whose faults have times
        return self.out > 0

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        """Passes on an order; during an outage it is lost."""
        if self.is_out(now_s):
            self.unheard += 1
        else:
            self._provider.begin(shard, order, now_s)

    def get(self, machine: str) -> Machine | None:
        """The current record of a machine."""
        return self._provider.get(machine)

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """The changes after a cursor; none during an outage."""
        if self.out:
            return Page([], [], cursor, unreachable=True)
        return self._provider.list_since(shard, epoch, cursor, most)

    def next_s(self) -> float:
        """When the next operation or answer is due; held answers are due at once."""
        return -math.inf if self._held and not self.out else self._provider.next_s()

    def advance(self, now_s: float) -> list[Completion]:
        """Finishes what is due; returns the answers that get through."""
        answers = self._held + self._finished(now_s)
        out = self.is_out(now_s)
        self._held = answers if out else []
        return [] if out else answers

    def _finished(self, now_s: float) -> list[Completion]:
        """The provider's answers, whether or not they get through."""
        return self._provider.advance(now_s)
