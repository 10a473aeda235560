"""Request admission for threads: `with limiter.acquire(ask, timeout=30) as held: ...`.

Each waiter sleeps on a condition of its own until a release hands it a lease. One of the waiters,
the timekeeper, also wakes for the next thing that only time brings.
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestDenied
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.clock import monotonic_s
from windtunnel.core.random import Stream
from windtunnel.live.admission.leases import (
    TRIES,
    HeldLease,
    Refused,
    asks_to_make,
    deadline_s,
    judge,
    wait_s,
)

Said = TypeVar("Said")


class ThreadLimiter:
    """Drives one request admission from any number of threads."""

    def __init__(
        self, admission: RequestAdmission, clock: Callable[[], float] = monotonic_s
    ) -> None:
        self.admission: Final = admission
        self.lock: Final = threading.Lock()
        self._clock: Final = clock
        self._origin_s: Final = clock()
        self._now_s = 0.0
        self._sleepers: Final[dict[str, threading.Condition]] = {}
        self._timekeeper = ""
        self._armed_s = NEVER
        self._stream: Final = Stream(0, "live.retries")

    def now(self) -> float:
        """Seconds since this was made; it never goes back. Under the lock only."""
        self._now_s = max(self._now_s, self._clock() - self._origin_s)
        return self._now_s

    def acquire(self, *asks: RequestAsk, timeout: float | None = None) -> "ThreadHeld":
        """A lease while the block runs; of several endpoints asked, the first that has room.

        Waits at most `timeout` seconds; one that may not start, or not in time, gets `Refused`.
        """
        return ThreadHeld(self, asks, timeout)

    def register(
        self,
        provider: str,
        model: str,
        alias: str,
        cap: int,
        *,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
    ) -> None:
        """Names an endpoint, or changes its cap; waiters that now may go are woken."""
        with self.lock:
            self.admission.register(
                provider,
                model,
                alias,
                cap,
                self.now(),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )
            self.settle()

    def call(
        self,
        send: Callable[[], Said],
        *asks: RequestAsk,
        tries: int = TRIES,
        timeout: float | None = None,
    ) -> Said:
        """What `send` returns, under a lease; made again after a refusal or what may pass."""
        for attempt in range(tries):
            error, said = None, None
            with self.acquire(*asks, timeout=timeout) as held:
                try:
                    said = send()
                except Exception as fault:  # noqa: BLE001 - judged, and raised below
                    error = fault
                verdict = judge(said if error is None else error)
                held.ended(verdict.outcome, observed=verdict.observed)
            if not verdict.may_pass or attempt + 1 >= tries:
                break
            threading.Event().wait(wait_s(verdict, attempt, self._stream))
        if error is not None:
            raise error
        return cast("Said", said)

    def shut_down(self) -> None:
        """Refuses all that waits and all that comes; leases in flight still come back."""
        with self.lock:
            self.admission.shut_down(self.now())
            self.settle()

    def settle(self) -> None:
        """Wakes those whose wait is over, and the timekeeper if it must look sooner."""
        for ticket in self.admission.take_resolved():
            sleeper = self._sleepers.get(ticket.id)
            if sleeper is not None:
                sleeper.notify()
        if self._timekeeper and self.admission.next_wake_s() < self._armed_s:
            self._sleepers[self._timekeeper].notify()

    def sleep(self, tickets: list[QueueTicket]) -> QueueTicket:
        """The ticket that got a lease, or the last denied; called and left with the lock held."""
        mine, ended = threading.Condition(self.lock), None
        names = [ticket.id for ticket in tickets]
        self._sleepers.update(dict.fromkeys(names, mine))
        try:
            self.settle()
            while (ended := _ended(tickets)) is None:
                if self._timekeeper in ("", *names):
                    self._keep_time(names[0], mine)
                else:
                    mine.wait()
            return ended
        finally:
            for ticket in tickets:
                if ticket is not ended:
                    self.admission.cancel(ticket, self.now())
                del self._sleepers[ticket.id]
            if self._timekeeper in names:
                self._timekeeper = ""
                self._armed_s = NEVER
            successor = next(iter(self._sleepers.values()), None)
            if not self._timekeeper and successor is not None:
                successor.notify()
            self.settle()

    def _keep_time(self, name: str, mine: threading.Condition) -> None:
        self._timekeeper = name
        self._armed_s = self.admission.next_wake_s()
        left_s = self._armed_s - self.now()
        mine.wait(None if left_s == NEVER else min(max(0.0, left_s), threading.TIMEOUT_MAX))
        self.admission.advance(self.now())
        self.settle()


class ThreadHeld(HeldLease):
    """What `acquire` returns: enter it once."""

    __slots__ = ("_asks", "_limiter", "_timeout")

    def __init__(
        self, limiter: ThreadLimiter, asks: tuple[RequestAsk, ...], timeout: float | None
    ) -> None:
        super().__init__()
        self._limiter: Final = limiter
        self._asks: Final = asks
        self._timeout: Final = timeout

    def __enter__(self) -> Self:
        _refuse_an_event_loop()
        limiter = self._limiter
        with limiter.lock:
            now, admission = limiter.now(), limiter.admission
            until_s = deadline_s(self._timeout, now)
            tickets: list[QueueTicket] = []
            denied: RequestDenied | None = None
            for ask in asks_to_make(admission, self._asks, now):
                answer = admission.acquire(ask, now, until_s)
                if isinstance(answer, QueueTicket):
                    tickets.append(answer)
                elif isinstance(answer, RequestDenied):
                    denied = answer
                else:
                    self.lease = answer
                    break
            if self.lease is not None:
                for ticket in tickets:
                    admission.cancel(ticket, now)
                limiter.settle()
            elif tickets:
                self.take(limiter.sleep(tickets), limiter.now())
            else:
                assert denied is not None
                limiter.settle()
                raise Refused(denied)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        limiter = self._limiter
        with limiter.lock:
            self.give_back(limiter.admission, kind, limiter.now())
            limiter.settle()


def _ended(tickets: list[QueueTicket]) -> QueueTicket | None:
    """The ticket that has a lease, or the last when all were denied; None while some wait."""
    served = next((ticket for ticket in tickets if ticket.lease is not None), None)
    if served is not None or any(ticket.is_waiting for ticket in tickets):
        return served
    return tickets[-1]


def _refuse_an_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "ThreadLimiter blocks its thread, and this one runs an event loop, which would stand "
        "still; use windtunnel.live.admission.asyncio_limiter.AsyncLimiter here"
    )
