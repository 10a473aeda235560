"""The control-plane log of a run, organized into histories of replicas, machines and faults.

Read from `control.jsonl`, or from `events.jsonl` if that does not exist.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.analysis.explain.pool_sizes import PoolSizes, SizeChange
from windtunnel.analysis.explain.steps import moment
from windtunnel.analysis.phases import Owner
from windtunnel.analysis.run_folder import CONTROL, EVENTS
from windtunnel.core.errors import InputError
from windtunnel.core.vocabulary import (
    APPLIED,
    CLOSED,
    CUT,
    ENGINE_CRASHED,
    FAULT_BEGAN,
    FAULT_ENDED,
    KEPT,
    LOST_IN_FAULT,
    RECLAIMED,
    RESIZED,
    RUN_BEGINS,
    SUPERSEDED,
    TERMINATIONS,
)

OF_REQUESTS = (b'"kind":"request.', b'"kind":"adapter.')
"""Marks lines about single requests, which are skipped."""
DRAINED = "drained"
SHORT, MET = "fleet.short", "fleet.met"
MACHINE_FAILED = "machine.failed"
LOSSES = ("machine-loss", "rack-loss", "zone-loss")
"""Faults that take machines when they begin; the machine failures follow at once."""
CRASHES = ("engine-crash", "crash-loop")
TAKES = (*LOSSES, *CRASHES, "spot-reclaim")
"""Faults that take servers."""
SLOWS, LEAK = ("slow-machine",), ("kv-leak",)
PARTITION, RATE_LIMITS = ("router-partition",), ("rate-limit-storm",)
DISTURBS = (*SLOWS, *LEAK, *PARTITION, *RATE_LIMITS)
"""Faults that leave servers in place but make them serve less."""
BLINDS = (
    "clock-skew",
    "metric-blackout",
    "metric-lag",
    "partial-scrape",
)
"""Faults, besides restarts, that make an autoscaler late or wrong."""
UNSEEN = ("partial-scrape",)
"""Of these, those that name the servers that are not seen, not the controller that sees less."""
UNSCHEDULABLE, SCHEDULED = "gang.Unschedulable", "gang.Scheduled"
PENDING, STARTING, READY, DRAINING, GONE = STATES = (
    "pending",
    "starting",
    "ready",
    "draining",
    "gone",
)


class LoggedEvent(msgspec.Struct, frozen=True):
    """A line of the log."""

    time: float
    kind: str
    subject: str
    reason: str = ""
    data: dict[str, Any] = {}

    @property
    def id(self) -> str:
        return str(self.data.get("id", ""))

    @property
    def name(self) -> str:
        """The name of its subject, without the kind."""
        return self.subject.partition("/")[2]

    @property
    def size(self) -> str:
        """The change of replicas in an autoscaler decision, in words."""
        now, target = self.data["current"], self.data["target"]
        return f"{now} -> {target}" if target != now else f"stays at {target}"

    @property
    def headline(self) -> str:
        """An autoscaler decision in one line."""
        return f"{self.name}: {self.size}, decided at {moment(self.time)}"


class ReplicaLife(msgspec.Struct):
    """A replica from its request on: when it reached each state, its gangs, pods and machines."""

    pool: str
    number: int
    server: int
    reason: str
    since: dict[str, float] = {}
    ended: str = ""
    """Why it ended."""
    by: str = ""
    """The decision that requested it."""
    instead_of: "ReplicaLife | None" = None
    """The lost replica that it replaces."""
    gangs: list[str] = []
    pods: list[str] = []
    machines: list[str] = []
    cluster: str = ""

    @property
    def title(self) -> str:
        return f"{self.pool} {self.number}"

    @property
    def asked_s(self) -> float:
        return min(self.since.values())

    @property
    def left_s(self) -> float | None:
        """When it stopped taking requests; None if it never did."""
        return self.since.get(DRAINING, self.since.get(GONE))

    @property
    def replaces(self) -> int | None:
        """The lost server that it replaces; None if it replaces none."""
        return None if self.instead_of is None else self.instead_of.server

    @property
    def was_lost(self) -> bool:
        """Whether it was ready, and ended without draining."""
        return GONE in self.since and self.ended != DRAINED and READY in self.since

    def is_struck_by(self, fault: "FaultHistory") -> bool:
        """Whether it ended because a fault hit it, or a machine that it was on."""
        gone_s = self.since.get(GONE, float("inf"))
        if fault.kind not in TAKES:
            return False
        if fault.kind in CRASHES and self.ended == ENGINE_CRASHED:
            return fault.overlaps(gone_s, gone_s)  # replacements that crash again are not listed
        names = {f"{self.pool}-{self.number}", *self.machines}
        if fault.overlaps(gone_s, gone_s) and names.intersection(fault.subjects):
            return True
        failed = [fault.failed.get(machine, -1.0) for machine in self.machines]
        drained_s = self.since.get(DRAINING, -1.0)  # before the end that was announced
        return any(
            self.asked_s <= failed_s <= gone_s or fault.at_s <= drained_s <= failed_s
            for failed_s in failed
        )

    def state_at(self, time_s: float) -> str | None:
        """Its state at a time; None before it was requested."""
        found = None
        for state in STATES:
            if self.since.get(state, float("inf")) <= time_s:
                found = state
        return found


class FaultHistory(msgspec.Struct):
    """A fault of the scenario."""

    id: str
    name: str
    kind: str
    at_s: float
    until_s: float | None
    subjects: list[str]
    """As logged: servers, machines, racks, zones, or a whole fleet."""
    reason: str
    failed: dict[str, float] = {}
    """Machines that failed because of it, with the time of each."""

    @property
    def began(self) -> str:
        """When it began and, unless the scenario sets that time, why."""
        at = f"at {moment(self.at_s)}"
        return at if self.is_timed else f"{at}, {self.reason}"

    @property
    def is_timed(self) -> bool:
        """Whether the scenario sets its time."""
        return self.reason.startswith("at ")

    @property
    def until(self) -> str:
        """When it ended, in words; empty for an instantaneous fault."""
        if self.until_s is None:
            return " until the end"
        return f" until {moment(self.until_s)}" if self.until_s > self.at_s else ""

    def struck(self, most: int) -> str:
        """What it hit; up to a limit, and how many more."""
        more = len(self.subjects) - most
        others = f" and {more} more" if more > 0 else ""
        return ", ".join(self.subjects[:most]) + others if self.subjects else "nothing"

    @property
    def felt_until_s(self) -> float:
        """When its effect ended; leaked blocks are lost for as long as the server lives."""
        return float("inf") if self.until_s is None or self.kind in LEAK else self.until_s

    def overlaps(self, start_s: float, end_s: float) -> bool:
        return self.at_s <= end_s and self.felt_until_s >= start_s

    def restarts(self, controller: str) -> bool:
        return self.kind == "controller-restart" and controller in self.subjects

    def overlap_s(self, start_s: float, end_s: float) -> float:
        """How much of a time span it was felt; 0 if they only touch."""
        return max(0.0, min(self.felt_until_s, end_s) - max(self.at_s, start_s))


class Credit(msgspec.Struct):
    """Replicas that a decision requested and that have not appeared yet."""

    by: str
    left: int


class ControlHistory:
    """The events of a log, organized by decision, replica, machine and fault."""

    def __init__(self, happenings: list[LoggedEvent]) -> None:
        self.happenings = happenings
        self.decisions: dict[str, LoggedEvent] = {}
        self.applied: dict[str, LoggedEvent] = {}  # by decision
        self.by_pool: dict[str, list[LoggedEvent]] = {}  # decisions of the autoscaler
        self.lives: list[ReplicaLife] = []
        self.by_owner: dict[Owner, ReplicaLife] = {}
        self.of_machine: dict[str, list[LoggedEvent]] = {}
        self.faults: dict[str, FaultHistory] = {}
        self.terminations = [  # of gangs
            one for one in happenings if one.kind.removeprefix("gang.") in TERMINATIONS
        ]
        self.cut: LoggedEvent | None = None
        self.loads: dict[str, Any] = {}  # of pools, once computed
        self._sizes: dict[str, PoolSizes] = {}
        self._struck: dict[int, list[FaultHistory]] = {}  # by server
        self._servers: dict[int, ReplicaLife] = {}
        self._credits: dict[str, deque[Credit]] = {}
        self._lost: dict[str, deque[ReplicaLife]] = {}
        for one in happenings:
            self._take(one)

    def _take(self, one: LoggedEvent) -> None:
        if one.kind.startswith("replica."):
            self._replica(one, one.kind.removeprefix("replica."))
            return
        if one.kind in (APPLIED, SUPERSEDED):
            self.applied[one.id] = one
            self._credit(one)
        elif one.id:
            self.decisions[one.id] = one
        if one.kind in (RESIZED, KEPT):
            self.by_pool.setdefault(one.name, []).append(one)
        if one.subject.startswith("machine/"):
            self.of_machine.setdefault(one.name, []).append(one)
        if one.kind == FAULT_BEGAN:
            data, id_ = one.data, f"fault-{len(self.faults) + 1}"
            self.faults[id_] = FaultHistory(
                id_, one.name, data["kind"], one.time, data["until"], data["subjects"], one.reason
            )
        if one.kind == MACHINE_FAILED:
            self._failed(one)
        if one.kind == FAULT_ENDED:
            for fault in self.faults.values():
                if (fault.name, fault.at_s) == (one.name, one.data["at"]):
                    fault.until_s = one.time
        if one.kind == CUT:
            self.cut = one

    def _failed(self, one: LoggedEvent) -> None:
        """Attributes a machine failure to the fault that just began, or to an announced reclaim."""
        for fault in reversed(self.faults.values()):
            at_once = (
                fault.kind in LOSSES and fault.at_s == one.time and one.reason == LOST_IN_FAULT
            )
            announced = one.reason == RECLAIMED and one.name in fault.subjects
            if at_once or announced:
                fault.failed = {**fault.failed, one.name: one.time}
                return

    def _credit(self, one: LoggedEvent) -> None:
        if one.kind == SUPERSEDED:
            return
        asked = self._credits.setdefault(one.name, deque())
        more = one.data["target"] - one.data["current"]
        if more > 0:
            asked.append(Credit(one.id, more))
        else:
            asked.clear()  # outstanding replicas are no longer wanted

    def _replica(self, one: LoggedEvent, state: str) -> None:
        data, server = one.data, int(one.name)
        life = self._servers.get(server)
        if life is None:
            life = ReplicaLife(data["pool"], data["replica"], server, one.reason)
            life.cluster = data.get("cluster", "")
            self._servers[server] = life
            self.lives.append(life)
            self.by_owner.setdefault((life.pool, life.number), life)
            if one.time > 0.0 or one.reason != RUN_BEGINS:
                self._attribute(life)
        life.since = {**life.since, state: one.time}
        life.gangs = data.get("gangs", life.gangs)
        life.pods = data.get("pods", life.pods)
        life.machines = data.get("machines", life.machines)
        if state == GONE:
            life.ended = one.reason
            lost = life if life.was_lost else life.instead_of
            if lost is not None and (life.was_lost or READY not in life.since):
                self._lost.setdefault(life.pool, deque()).append(lost)  # not replaced yet

    def _attribute(self, life: ReplicaLife) -> None:
        """Attributes a replica to a decision with outstanding replicas, or to an earlier loss."""
        asked = self._credits.get(life.pool)
        if asked:
            life.by = asked[0].by
            asked[0].left -= 1
            if not asked[0].left:
                asked.popleft()
            return
        lost = self._lost.get(life.pool)
        if lost:
            life.instead_of = lost.popleft()
            life.by = life.instead_of.by

    # The state at a time.

    def pools(self) -> list[str]:
        return list(dict.fromkeys([*(life.pool for life in self.lives), *self.by_pool]))

    def in_states(self, pool: str, time_s: float) -> dict[str, list[ReplicaLife]]:
        """The replicas of a pool by state, without those that are gone."""
        found: dict[str, list[ReplicaLife]] = {state: [] for state in STATES[:-1]}
        for life in self.lives:
            state = life.state_at(time_s) if life.pool == pool else None
            if state in found:
                found[state].append(life)
        return found

    def sizes(self, pool: str) -> PoolSizes:
        """Ready and wanted servers of a pool over time."""
        if pool not in self._sizes:
            self._sizes[pool] = PoolSizes(self._size_changes(pool))
        return self._sizes[pool]

    def _size_changes(self, pool: str) -> Iterator[SizeChange]:
        for life in self.lives:
            if life.pool == pool:
                left_s = life.left_s
                yield SizeChange(life.asked_s, present=1)
                if READY in life.since:
                    yield SizeChange(life.since[READY], ready=1)
                if left_s is not None:
                    served = READY in life.since
                    taken = served and self.was_taken(life)
                    yield SizeChange(left_s, -1 if served else 0, -1, taken=taken)
        for start_s, end_s in self._hidden(pool):  # other faults leave a part of the capacity
            yield SizeChange(start_s, -1, taken=True)
            if end_s < float("inf"):
                yield SizeChange(end_s, 1)
        for one in self.by_pool.get(pool, []):
            wanted, kept = one.data["recommended"], one.data["target"]
            yield SizeChange(one.time, wanted=wanted, kept=max(wanted, kept))

    def _hidden(self, pool: str) -> Iterator[tuple[float, float]]:
        """When ready servers of a pool got no requests because routers did not see them."""
        faults = [one for one in self.faults.values() if one.kind in PARTITION]
        for life in self.lives if faults else ():
            name, left_s = f"{pool}-{life.number}", life.left_s
            if life.pool != pool or READY not in life.since:
                continue
            seen_s = life.since[READY]
            for fault in faults:  # in order of their beginning; they may overlap
                end_s = fault.felt_until_s if left_s is None else min(fault.felt_until_s, left_s)
                start_s = max(fault.at_s, seen_s)
                if name in fault.subjects and start_s < end_s:
                    yield start_s, end_s
                    seen_s = end_s

    def was_taken(self, life: ReplicaLife) -> bool:
        """Whether a ready server was lost, or drained because a fault announced its end."""
        if READY not in life.since or GONE not in life.since:
            return False
        return life.was_lost or bool(self.faults_of(life))

    def faults_of(self, life: ReplicaLife) -> list[FaultHistory]:
        """The faults that ended a replica."""
        if life.server not in self._struck:
            struck = [fault for fault in self.felt if life.is_struck_by(fault)]
            self._struck[life.server] = struck
        return self._struck[life.server]

    @cached_property
    def felt(self) -> list[FaultHistory]:
        """The faults that hit something."""
        return [fault for fault in self.faults.values() if fault.subjects]

    @cached_property
    def replaced_s(self) -> dict[int, float]:
        """When the replacements of lost replicas were ready, by the server that was lost."""
        return {
            life.instead_of.server: life.since[READY]
            for life in self.lives
            if life.instead_of is not None and READY in life.since
        }

    def last_decision(self, pool: str, time_s: float) -> LoggedEvent | None:
        found = [one for one in self.by_pool.get(pool, []) if one.time <= time_s]
        return found[-1] if found else None

    def short(self, time_s: float, pool: str | None = None) -> list[LoggedEvent]:
        """Needs that the fleet could not meet at a time, each as last reported."""
        open_: dict[str, LoggedEvent] = {}
        for one in self.happenings:
            if one.time > time_s:
                break
            if one.kind == SHORT:
                open_[one.subject] = one
            elif one.kind == MET:
                open_.pop(one.subject, None)
        return [one for one in open_.values() if pool is None or one.data.get("pool") == pool]

    def unplaced(self, time_s: float) -> list[LoggedEvent]:
        """Gangs that were unschedulable at a time, each as last reported."""
        open_: dict[str, LoggedEvent] = {}
        for one in self.happenings:
            if one.time > time_s:
                break
            if one.kind == UNSCHEDULABLE:
                open_[one.subject] = one
            elif one.kind == SCHEDULED:
                open_.pop(one.subject, None)
        return [one for one in open_.values() if self._still_waits(one, time_s)]

    def _still_waits(self, unplaced: LoggedEvent, time_s: float) -> bool:
        """Whether no server of a gang was placed since it was reported, and one still waits.

        A gang is reported as scheduled once in its life, and not when it is placed again.
        """
        lives = [life for life in self.lives if unplaced.name in life.gangs]
        placed = (life.since.get(STARTING, -1.0) for life in lives)
        if any(unplaced.time <= placed_s <= time_s for placed_s in placed):
            return False
        return not lives or any(life.state_at(time_s) == PENDING for life in lives)

    def of_pod(self, pod: str) -> ReplicaLife | None:
        return next((life for life in self.lives if pod in life.pods), None)


def read_history(folder: Path) -> ControlHistory:
    """Reads the log of a run; a missing or damaged one is an InputError."""
    path = folder / CONTROL
    if not path.is_file():
        path = folder / EVENTS
    if not path.is_file():
        hint = "give a folder that `windtunnel simulate` has written"
        raise InputError(f"there is no {CONTROL}", where=str(folder), hint=hint)
    decoder = msgspec.json.Decoder(LoggedEvent)
    found: list[LoggedEvent] = []
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if any(mark in line for mark in OF_REQUESTS):
                continue
            try:
                found.append(decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise InputError(f"line {number} is damaged: {error}", where=str(path)) from error
    closed = found.pop() if found and found[-1].kind == CLOSED else None
    if closed is None or closed.data.get("lines") != number - 1:
        what = f"it was cut off: its last line should be {CLOSED} and count all others"
        raise InputError(what, where=f"{path}, line {number}", hint="simulate again")
    return ControlHistory(found)
