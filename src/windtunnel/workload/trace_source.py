"""Replays a trace: requests at the recorded times, or sessions turn by turn as each turn ends."""

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from windtunnel.core.random import Streams
from windtunnel.workload.lengths import TimeDraw
from windtunnel.workload.register import NAMELESS, Register
from windtunnel.workload.request import DEFAULT_TENANT, PrefixChain, Request
from windtunnel.workload.sessions import Sessions
from windtunnel.workload.settings.sources import ReplaySettings
from windtunnel.workload.sources import RequestSource
from windtunnel.workload.traces.reading import LeftOut, OpenTrace
from windtunnel.workload.traces.record import MOST_TOKENS, TraceRequest

PRIME: Final[i64] = 2**61 - 1
FACTOR: Final[i64] = 1_181_783_497_276_652_981
"""The base of the polynomial hash; any large number below the prime will do."""
PLACES: Final[i64] = 2 * MOST_TOKENS


def product(a: i64, b: i64) -> i64:
    """Product of two numbers below the prime, modulo it, within 63 bits: 2**61 counts as 1."""
    a_high, a_low = a >> 31, a & 0x7FFF_FFFF
    b_high, b_low = b >> 31, b & 0x7FFF_FFFF
    middle = a_low * b_high + a_high * b_low
    low = ((middle & 0x3FFF_FFFF) << 31) + a_low * b_low
    return reduced(2 * a_high * b_high + (middle >> 30) + low)


def reduced(number: i64) -> i64:
    """A 63-bit number modulo the prime, without a division."""
    number = (number & PRIME) + (number >> 61)
    return number - PRIME if number >= PRIME else number


class Replay(RequestSource):
    """Builds requests from the rows of one trace."""

    def __init__(
        self, entry: int, plan: ReplaySettings, register: Register, *, has_slots: bool
    ) -> None:
        super().__init__(entry)
        self._entry: Final = entry
        self._register: Final = register
        self._opened: Final = OpenTrace(plan, register.classes.names)
        self._rows: Final[Iterator[TraceRequest]] = self._opened.requests
        self._speedup: Final[float] = plan.trace.speedup
        self._left: int = plan.count if plan.count is not None else -1
        self._own_names: Final = plan.name is None
        self._source: Final = register.sources.number(plan.name or self._opened.name)
        self._own_tenants: Final = plan.tenant is None
        self._tenant = -1
        if plan.tenant is not None:
            self._tenant = register.tenants.number(plan.tenant)
        self._own_classes: Final = plan.slo is None
        self._slo: Final = register.classes.number(plan.slo or plan.default_slo)
        self._timeout_s: Final[float] = plan.timeout_s if plan.timeout_s is not None else -1.0
        self._model: Final = register.models.number(plan.model or NAMELESS)
        self._models: Final[dict[str, int]] = {
            name: register.models.number(model) for name, model in (plan.trace.models or {}).items()
        }
        self._has_slots: Final[bool] = has_slots
        self._adapters_left_out = 0
        self._sessions: Final[dict[str, int]] = {}

    def _next_row(self) -> TraceRequest | None:
        if self._left == 0:
            return None
        self._left -= 1
        return next(self._rows, None)

    def left_out(self) -> LeftOut:
        """What has not been replayed so far."""
        return self._opened.left_out(self._adapters_left_out)

    def _request(self, row: TraceRequest, number: int, arrived_s: float) -> Request:
        adapter = self._adapter(row)
        chain: PrefixChain | None = None
        answer_key = -1
        segments = len(row.prefix_keys)
        if segments:
            keys = self._joined(row, adapter)
            if len(keys) > segments:
                answer_key = keys.pop()
            chain = PrefixChain(keys, list(row.prefix_ends))
        slo = self._slo
        if self._own_classes and row.slo is not None:
            slo = self._class(row.slo)
        request = Request(
            number,
            arrived_s,
            row.prompt_tokens,
            row.output_tokens,
            self._register.priorities[slo],
            self._source,
            chain,
        )
        request.slo = slo
        if self._own_names and row.source is not None:
            request.source = self._register.sources.number(row.source)
        request.tenant = self._tenant_of(row)
        request.model = self._model
        if self._models and row.model is not None:
            request.model = self._models.get(row.model, self._model)
        request.adapter = adapter
        request.answer_key = answer_key
        media = row.media_tokens
        if media is not None:
            request.media_tokens = media
        if row.session is not None:
            request.session = self._session(row.session)
            request.turn = row.turn if row.turn is not None else 0
        deadline_s = row.deadline_s
        if self._timeout_s >= 0.0:
            request.deadline_s = arrived_s + self._timeout_s
        elif deadline_s is not None:
            request.deadline_s = arrived_s + deadline_s
        return request

    def _joined(self, row: TraceRequest, adapter: int) -> list[int]:
        """The keys of a prompt's segments, followed by that of its answer if the trace names one.

        Caches identify a segment by its key alone, so a key must also identify everything before
        its segment. A file may use the same key after different starts. Each key is therefore
        hashed together with the keys before it, as a polynomial in a prime field: among a million,
        a collision happens in one of a million runs. The adapter is part of the hash because KV
        computed with an adapter cannot be shared.
        """
        keys = list(row.prefix_keys)
        ends = list(row.prefix_ends)
        answer = row.answer_key
        if answer is not None and (ends[-1] if ends else 0) == row.prompt_tokens:
            keys.append(answer)
            ends.append(row.prompt_tokens + row.output_tokens)
        made: list[int] = []
        joined: i64 = adapter + 1
        for at in range(len(keys)):
            key: i64 = keys[at]
            end: i64 = ends[at]
            joined = reduced(product(joined, FACTOR) + product(key % PRIME, PLACES) + end)
            made.append(self._register.own(self._entry, joined))
        return made

    def _adapter(self, row: TraceRequest) -> int:
        name = row.adapter
        if name is None:
            return -1
        if not self._has_slots:
            self._adapters_left_out += 1
            return -1
        return self._register.adapters.number(name)

    def _tenant_of(self, row: TraceRequest) -> int:
        if self._own_tenants:
            name = row.tenant
            if name is not None:
                return self._register.tenants.number(name)
            if self._tenant < 0:
                self._tenant = self._register.tenants.number(DEFAULT_TENANT)
        return self._tenant

    def _class(self, name: str) -> int:
        slo = self._register.classes.find(name)
        assert slo >= 0, "the reader refuses undefined classes"
        return slo

    def _session(self, name: str) -> int:
        number = self._sessions.get(name, -1)
        if number < 0:
            number = len(self._sessions)
            self._sessions[name] = number
        return self._register.own(self._entry, number)


class SessionProgress:
    """Progress of a session whose turns arrive at the trace's times, whatever became of others."""

    def __init__(self) -> None:
        self.under_way = 0
        self.failed = False


class TraceSource(Replay):
    """The requests of a trace at their recorded times, read one ahead.

    Only at the end of the trace is it known which turn of a session is the last, so sessions end
    with the run.
    """

    def __init__(
        self,
        entry: int,
        plan: ReplaySettings,
        register: Register,
        sessions: Sessions,
        *,
        has_slots: bool,
    ) -> None:
        super().__init__(entry, plan, register, has_slots=has_slots)
        self._states: Final = sessions
        self._standings: Final[dict[int, SessionProgress]] = {}  # by session number
        self._ahead: TraceRequest | None = None
        self._step()

    def _step(self) -> None:
        ahead = self._next_row()
        self._ahead = ahead
        self.wake_s = ahead.arrived_s / self._speedup if ahead is not None else math.inf

    def take(self, number: int) -> Request:
        row = self._ahead
        assert row is not None
        request = self._request(row, number, self.wake_s)
        if request.session >= 0:
            request.followed = True
            self._standing(request.session).under_way += 1
        self._step()
        return request

    def _standing(self, session: int) -> SessionProgress:
        standing = self._standings.get(session)
        if standing is None:
            standing = SessionProgress()
            self._standings[session] = standing
            self._states.started += 1
            self._states.live += 1
        return standing

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: ARG002, FBT001
        standing = self._standings[request.session]
        standing.under_way -= 1
        if not completed:
            standing.failed = True

    def stop(self, now_s: float) -> None:  # noqa: ARG002
        for standing in self._standings.values():
            if standing.failed:
                self._states.cancelled += 1
            elif standing.under_way:
                self._states.interrupted += 1
            else:
                self._states.completed += 1
        self._states.live -= len(self._standings)
        self._standings.clear()
        self.wake_s = math.inf


class TraceSession:
    """The turns of one session of a trace, and its progress."""

    def __init__(self) -> None:
        self.rows: Final[list[TraceRequest]] = []
        self.turn = 0
        self.started_s = 0.0


class SessionReplay(Replay):
    """A trace whose sessions continue when their turns end, not at the recorded times.

    A turn follows the end of the previous one after a pause: the trace's think time, or else the
    gap between the two arrivals less the previous turn's E2E, if known. Sessions are assembled
    before the run, so the whole trace is in memory.
    """

    def __init__(
        self,
        entry: int,
        plan: ReplaySettings,
        register: Register,
        streams: Streams,
        sessions: Sessions,
        *,
        has_slots: bool,
    ) -> None:
        super().__init__(entry, plan, register, has_slots=has_slots)
        think = plan.trace.think
        self._thinks: Final = TimeDraw(think.drawn()) if think is not None else None
        self._stream: Final = streams[f"workload.{plan.name or self._opened.name}.think"]
        self._states: Final = sessions
        self._live: Final[dict[int, TraceSession]] = {}  # by the number of its request under way
        self._ready: Final[list[tuple[float, int, TraceSession]]] = []
        self._order = 0
        by_name: dict[str, TraceSession] = {}
        while True:
            row = self._next_row()
            if row is None:
                break
            name = row.session
            session = by_name.get(name) if name is not None else None
            if session is None:
                session = TraceSession()
                if name is not None:
                    by_name[name] = session
                self._push(row.arrived_s / self._speedup, session)
            session.rows.append(row)
        self._wake()

    def _push(self, time_s: float, session: TraceSession) -> None:
        heappush(self._ready, (time_s, self._order, session))
        self._order += 1

    def _wake(self) -> None:
        self.wake_s = self._ready[0][0] if self._ready else math.inf

    def take(self, number: int) -> Request:
        arrived_s, _, session = heappop(self._ready)
        row = session.rows[session.turn]
        request = self._request(row, number, arrived_s)
        if row.session is not None:
            request.turn = session.turn
            request.followed = True
            self._live[number] = session
            if session.turn == 0:
                session.started_s = arrived_s
                self._states.started += 1
                self._states.live += 1
        self._wake()
        return request

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: FBT001
        session = self._live.pop(request.id)
        session.turn += 1
        if completed and session.turn < len(session.rows):
            self._push(now_s + self._pause_s(session), session)
            self._wake()
            return
        self._states.live -= 1
        if completed:
            self._states.completed += 1
            self._states.duration_s.add(now_s - session.started_s)
            self._states.turns.add(float(len(session.rows)))
        else:
            self._states.cancelled += 1

    def _pause_s(self, session: TraceSession) -> float:
        """The pause between the end of the previous turn and the session's next turn."""
        if self._thinks is not None:
            return self._thinks.draw(self._stream)
        row = session.rows[session.turn]
        before = session.rows[session.turn - 1]
        pause_s = row.think_s
        if pause_s is None:
            took_s = before.e2e_s
            pause_s = row.arrived_s - before.arrived_s
            if took_s is not None:
                pause_s = max(pause_s - took_s, 0.0)
        return pause_s / self._speedup

    def stop(self, now_s: float) -> None:  # noqa: ARG002
        going_on = len(self._live)
        for _, _, session in self._ready:
            going_on += 1 if session.turn > 0 else 0
        self._states.interrupted += going_on
        self._states.live -= going_on
        self._live.clear()
        self._ready.clear()
        self.wake_s = math.inf
