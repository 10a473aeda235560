"""Replays a trace: its requests at the times that it says, read as they are taken."""

import math
from collections.abc import Iterator
from typing import Final

from windtunnel.workload.plan import TraceReplay
from windtunnel.workload.register import Register
from windtunnel.workload.request import PrefixChain, Request
from windtunnel.workload.sources import RequestSource
from windtunnel.workload.traces.opening import Opened
from windtunnel.workload.traces.record import MOST_TOKENS, TraceRequest

DEFAULT_TENANT: Final = "default"
DEFAULT_SLO: Final = "standard"
PRIME: Final = 2**61 - 1
FACTOR: Final = 1_181_783_497_276_652_981
"""Any large number will do."""


class TraceSource(RequestSource):
    """The requests of one trace, one of them read ahead."""

    def __init__(self, entry: int, plan: TraceReplay, register: Register) -> None:
        super().__init__(entry)
        self._entry: Final = entry
        self._register: Final = register
        self.opened: Final = Opened(plan, register.classes.names)
        self._requests: Final[Iterator[TraceRequest]] = self.opened.requests
        self._speedup: Final[float] = plan.speedup
        self._left: int = plan.count if plan.count is not None else -1
        self._own_names: Final = plan.name is None
        self._source: Final = register.sources.number(plan.name or self.opened.name)
        self._own_tenants: Final = plan.tenant is None
        self._tenant = -1
        if plan.tenant is not None:
            self._tenant = register.tenants.number(plan.tenant)
        self._own_classes: Final = plan.slo is None
        self._slo: Final = register.classes.number(plan.slo or DEFAULT_SLO)
        self._timeout_s: Final[float] = plan.timeout_s if plan.timeout_s is not None else -1.0
        self._sessions: Final[dict[str, int]] = {}
        self._ahead: TraceRequest | None = None
        self._step()

    def _step(self) -> None:
        ahead: TraceRequest | None = None
        if self._left != 0:
            self._left -= 1
            ahead = next(self._requests, None)
        self._ahead = ahead
        self.wake_s = ahead.arrived_s / self._speedup if ahead is not None else math.inf

    def take(self, number: int) -> Request:
        row = self._ahead
        assert row is not None
        arrived_s = self.wake_s
        chain: PrefixChain | None = None
        answer_key = -1
        segments = len(row.prefix_keys)
        if segments:
            keys = self._joined(row)
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
        self._step()
        return request

    def _joined(self, row: TraceRequest) -> list[int]:
        """The keys of a prompt's segments, and that of its answer where one is named.

        Caches know a segment by its key alone, so that must stand for all that precedes it. A file
        may give one key to segments after different starts. Each is therefore joined with those
        before it, as a polynomial in a prime field: of a million, two meet in one of a million
        runs.
        """
        keys = list(row.prefix_keys)
        ends = list(row.prefix_ends)
        answer = row.answer_key
        if answer is not None and (ends[-1] if ends else 0) == row.prompt_tokens:
            keys.append(answer)
            ends.append(row.prompt_tokens + row.output_tokens)
        made: list[int] = []
        joined = 0
        for key, end in zip(keys, ends, strict=True):
            joined = (joined * FACTOR + key * 2 * MOST_TOKENS + end) % PRIME
            made.append(self._register.own(self._entry, joined))
        return made

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
        assert slo >= 0, "the reader refuses classes that nobody has defined"
        return slo

    def _session(self, name: str) -> int:
        number = self._sessions.get(name, -1)
        if number < 0:
            number = len(self._sessions)
            self._sessions[name] = number
        return self._register.own(self._entry, number)
