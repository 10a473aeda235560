"""The traffic of a run: each source draws from its own streams, and all are merged by arrival.

Requests are built when they are taken, so even ten million of them are never in memory at once.
"""

import math
from collections.abc import Sequence
from typing import Final

from windtunnel.core.loop import Actor, Agenda
from windtunnel.core.random import Streams
from windtunnel.workload.register import NAMELESS, Register
from windtunnel.workload.request import Request
from windtunnel.workload.sessions import Sessions, SessionSource
from windtunnel.workload.settings.sources import (
    BUILT_IN_PRIORITIES,
    ReplaySettings,
    SourceSettings,
    WorkloadEntry,
)
from windtunnel.workload.sources import ClosedSource, OpenSource, RequestSource
from windtunnel.workload.trace_source import Replay, SessionReplay, TraceSource
from windtunnel.workload.traces.reading import LeftOut


class Traffic:
    """All sources of a run as one sequence of requests in order of arrival.

    The numbers in a request are indices into the lists `sources`, `classes`, `tenants` and
    `adapters`, to which names are added when first seen. `priorities` has the priority of every
    class by name; without it, only the classes named by the sources exist, with their built-in
    priorities, or 0. `models` are the models that requests may be for, in order of their numbers;
    without it, they are numbered when first seen. `adapter_slots` says for each entry whether every
    server that may get its requests has LoRA slots; without them a trace's requests for adapters go
    to the base model.
    """

    def __init__(
        self,
        entries: Sequence[WorkloadEntry],
        streams: Streams,
        end_s: float,
        priorities: dict[str, int] | None = None,
        models: Sequence[str | None] = (),
        adapter_slots: Sequence[bool] = (),
    ) -> None:
        self._end_s: Final = end_s
        if priorities is None:
            named = [plan.slo for plan in entries if isinstance(plan, SourceSettings)]
            priorities = {name: BUILT_IN_PRIORITIES.get(name, 0) for name in named}
        self._register: Final = Register(priorities, len(entries))
        for model in models:
            self._register.models.number(model or NAMELESS)
        self.sources: Final = self._register.sources.names
        self.classes: Final = self._register.classes.names
        self.tenants: Final = self._register.tenants.names
        self.adapters: Final = self._register.adapters.names
        self.sessions: Final = Sessions()
        self._traces: Final[list[Replay]] = []
        self._followers: Final[list[RequestSource]] = []  # sources that follow how requests end
        self._following: Final[dict[int, RequestSource]] = {}  # by request
        actors: list[Actor] = []
        for entry, plan in enumerate(entries):
            has_slots = entry < len(adapter_slots) and adapter_slots[entry]
            actors.append(self._source(entry, plan, streams, has_slots))
        self._agenda: Final = Agenda(actors)
        self._stopped = False
        self.taken = 0
        self.next_s = math.inf
        self._look()

    def _source(
        self,
        entry: int,
        plan: WorkloadEntry,
        streams: Streams,
        has_slots: bool,  # noqa: FBT001 - of private methods
    ) -> RequestSource:
        register = self._register
        if not isinstance(plan, SourceSettings):
            trace = self._replay(entry, plan, streams, has_slots)
            self._traces.append(trace)
            return trace
        if plan.session is None and plan.arrivals.process != "closed":
            return OpenSource(entry, plan, register, streams)
        source: RequestSource
        if plan.session is not None:
            source = SessionSource(entry, plan, register, streams, self.sessions)
        else:
            source = ClosedSource(entry, plan, register, streams)
        self._followers.append(source)
        return source

    def _replay(
        self,
        entry: int,
        plan: ReplaySettings,
        streams: Streams,
        has_slots: bool,  # noqa: FBT001 - as above
    ) -> Replay:
        register, sessions = self._register, self.sessions
        trace: Replay
        if plan.trace.sessions == "closed":
            trace = SessionReplay(entry, plan, register, streams, sessions, has_slots=has_slots)
        else:
            trace = TraceSource(entry, plan, register, sessions, has_slots=has_slots)
        self._followers.append(trace)
        return trace

    def _look(self) -> None:
        """Sets the time of the next arrival; infinity if there is none."""
        next_s = self._agenda.next_s
        self.next_s = next_s if next_s < self._end_s and not self._stopped else math.inf

    def take(self) -> Request:
        """The request that arrives at `next_s`."""
        source = self._agenda.first()
        assert isinstance(source, RequestSource)
        request = source.take(self.taken)
        if request.followed:
            self._following[request.id] = source
        self.taken += 1
        self._agenda.moved(source)
        self._look()
        return request

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: FBT001
        """Called when a request marked `followed` has ended, completed or not."""
        if self._stopped or not request.followed:
            return
        source = self._following.pop(request.id)
        source.ended(request, completed, now_s)
        self._agenda.moved(source)
        self._look()

    def stop(self, now_s: float) -> None:
        """Ends the run: no request follows any more."""
        if self._stopped:
            return
        self._stopped = True
        for source in self._followers:
            source.stop(now_s)
        self._look()

    def left_out(self) -> list[LeftOut]:
        """What each trace contained that was not replayed, or not replayed as recorded."""
        return [trace.left_out() for trace in self._traces]
