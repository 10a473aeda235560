"""LoRA adapters on one server: which are on the accelerator, and which requests wait for a slot.

A running request keeps its adapter in a slot while it has something to compute. An unused adapter
stays until another adapter needs its slot; the one unused for longest is evicted.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from windtunnel.engine.limits import FCFS
from windtunnel.engine.queue import Rank, WaitingQueue, rank
from windtunnel.engine.settings import LoraSettings
from windtunnel.workload.request import Request


class Slots:
    """The adapters on the accelerator of one server."""

    def __init__(self, lora: LoraSettings) -> None:
        self.slots: Final[int] = lora.slots
        self._load_s: Final[float] = lora.load_s  # added to a step for each adapter it must load
        self._step_cost: Final[float] = lora.step_cost  # and each adapter in it adds this share
        self.loads: Final[dict[int, int]] = {}  # how often each was loaded, and evicted
        self.evictions: Final[dict[int, int]] = {}
        self.journal: list[int] | None = None  # (adapter, 1: loaded or 0: evicted) in a row
        self._users: Final[dict[int, int]] = {}  # how many requests use each
        self._idle: Final[dict[int, int]] = {}  # the plan in which each was found unused
        self._plans = 0
        self._begun = 0  # loads at the start of the step being planned

    def loaded(self) -> list[int]:
        """The adapters in slots, by number."""
        return sorted([*self._users, *self._idle])

    def room(self) -> int:
        """The number of slots without an adapter."""
        return self.slots - len(self._users) - len(self._idle)

    def full(self) -> bool:
        """Whether every slot has an adapter that a running request uses."""
        return len(self._users) == self.slots

    def used(self) -> list[int]:
        return list(self._users)

    def has_room(self, adapter: i64) -> bool:
        """Whether a request with this adapter may join the batch."""
        return adapter < 0 or not self.full() or int(adapter) in self._users

    def enter(self, request: Request) -> None:
        """Assigns a slot to a request that joins the batch, loading its adapter if needed."""
        adapter = int(request.adapter)
        if adapter < 0:
            return
        request.in_slot = True
        users = self._users.get(adapter, 0)
        self._users[adapter] = users + 1
        if users or self._idle.pop(adapter, -1) >= 0:
            return
        if len(self._users) + len(self._idle) > self.slots:
            self._evict()
        self._begun += 1
        self.loads[adapter] = self.loads.get(adapter, 0) + 1
        self._note(adapter, 1)

    def _evict(self) -> None:
        since = -1
        longest = -1
        for adapter, plan in self._idle.items():
            if longest < 0 or plan < since or (plan == since and adapter < longest):
                since = plan
                longest = adapter
        del self._idle[longest]
        self.evictions[longest] = self.evictions.get(longest, 0) + 1
        self._note(longest, 0)

    def _note(self, adapter: int, what: int) -> None:
        if self.journal is not None:
            self.journal.append(adapter)
            self.journal.append(what)

    def leave(self, request: Request) -> None:
        """Ends a request's use of its adapter."""
        if not request.in_slot:
            return
        request.in_slot = False
        adapter = int(request.adapter)
        users = self._users[adapter] - 1
        if users:
            self._users[adapter] = users
        else:
            del self._users[adapter]
            self._idle[adapter] = self._plans

    def leave_unused(self, request: Request) -> None:
        """Ends the use by a request that computes nothing in the step being planned or later."""
        adapter = int(request.adapter)
        self.leave(request)
        if adapter in self._idle:
            self._idle[adapter] = self._plans + 1

    def begin(self, finishing: list[Request]) -> None:
        """Begins planning a step; the step before computed the last tokens of `finishing`."""
        for request in finishing:
            self.leave(request)

    def end(self) -> tuple[float, float]:
        """Ends planning a step; returns the factor on its time, and the seconds of its loads."""
        self._plans += 1
        loads = self._begun
        self._begun = 0
        return 1.0 + self._step_cost * len(self._users), self._load_s * loads

    def fault(self) -> str | None:
        """Describes a broken limit; None when the adapters fit into the slots."""
        here = len(self._users) + len(self._idle)
        if here > self.slots:
            return f"{here} adapters in {self.slots} slots"
        return None


class AdapterQueue(WaitingQueue):
    """A queue per adapter, so that requests without a slot do not hold up the others."""

    def __init__(self, scheduling: int, slots: Slots) -> None:
        super().__init__(scheduling)
        self._slots: Final = slots
        self._lines: Final[dict[int, list[tuple[Rank, int, Request]]]] = {}
        self._last = 0  # positions in arrival order: of the latest arrival, and of the head
        self._first = 0

    def push(self, request: Request) -> None:
        if self._scheduling == FCFS:
            self._last += 1
            self._put((self._last, 0.0, 0), request)
        else:
            self._put(rank(request, self._scheduling), request)

    def push_preempted(self, request: Request) -> None:
        if self._scheduling == FCFS:
            self._first -= 1
            self._put((self._first, 0.0, 0), request)
        else:
            self.push(request)

    def _put(self, place: Rank, request: Request) -> None:
        self._enters(request)
        adapter = int(request.adapter)
        line = self._lines.get(adapter)
        if line is None:
            line = []
            self._lines[adapter] = line
        self._pushes += 1
        heappush(line, (place, self._pushes, request))

    def remove(self, request: Request) -> None:
        assert request.cancelled
        self._leaves(request)  # its queue drops it when it reaches the head

    def head(self) -> Request | None:
        """The first request whose adapter is on the accelerator or can be loaded."""
        best: tuple[Rank, int, Request] | None = None
        for adapter in [-1, *self._slots.used()] if self._slots.full() else list(self._lines):
            line = self._lines.get(adapter)
            if line is None:
                continue
            while line and line[0][2].cancelled:
                heappop(line)
            if not line:
                del self._lines[adapter]
            elif best is None or line[0][0] < best[0]:
                best = line[0]
        return best[2] if best is not None else None

    def pop(self, head: Request) -> None:
        self._leaves(head)
        heappop(self._lines[int(head.adapter)])

    def adapters(self) -> list[int]:
        return [adapter for adapter in self._lines if adapter >= 0]

    def requests(self) -> list[Request]:
        found: list[Request] = []
        for line in self._lines.values():
            for _, _, request in line:
                if not request.cancelled:
                    found.append(request)
        return found
