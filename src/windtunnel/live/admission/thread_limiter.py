"""Request admission for threads: `with limiter.acquire(ask, timeout=30) as held: ...`.

Each waiter sleeps on its own condition until a release hands it a lease. One of the waiters, the
timekeeper, also wakes for the next event that depends on time alone.
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.clock import monotonic_s
from windtunnel.live.admission.leases import TRIES, HeldLease, LeaseLimiter, Tries, ended_of

Said = TypeVar("Said")


class ThreadLimiter(LeaseLimiter):
    """Drives one request admission from any number of threads."""

    def __init__(
        self, admission: RequestAdmission, clock: Callable[[], float] = monotonic_s
    ) -> None:
        self.lock: Final = threading.Lock()
        super().__init__(admission, clock, self.lock)
        self._sleepers: Final[dict[str, threading.Condition]] = {}
        self._timekeeper = ""

    def acquire(self, *asks: RequestAsk, timeout: float | None = None) -> "ThreadHeld":
        """A lease for the duration of the block; of several endpoints, on the first with capacity.

        Waits at most `timeout` seconds; raises `Refused` if the call may not start, or not in time.
        """
        return ThreadHeld(self, asks, timeout)

    def call(
        self,
        send: Callable[[], Said],
        *asks: RequestAsk,
        tries: int = TRIES,
        timeout: float | None = None,
    ) -> Said:
        """Returns the result of `send`, under a lease; retries after a transient failure."""
        made = Tries(asks, tries, self._stream)
        wait_s: float | None = 0.0
        while wait_s is not None:
            if wait_s > 0.0:
                threading.Event().wait(wait_s)
            with self.acquire(*made.asks, timeout=timeout) as held:
                try:
                    made.said, made.error = send(), None
                except Exception as fault:  # noqa: BLE001 - judged, and raised at the end
                    made.error = fault
                wait_s = made.ended(held)
        return cast("Said", made.result())

    def settle(self) -> None:
        for ticket in self.admission.take_resolved():
            sleeper = self._sleepers.get(ticket.id)
            if sleeper is not None:
                sleeper.notify()
        if self._timekeeper and self.admission.next_wake_s() < self._armed_s:
            self._sleepers[self._timekeeper].notify()

    def sleep(self, tickets: list[QueueTicket]) -> QueueTicket:
        """Waits for the ticket with a lease, or the last denied; called and left with the lock
        held."""
        mine, ended = threading.Condition(self.lock), None
        names = [ticket.id for ticket in tickets]
        self._sleepers.update(dict.fromkeys(names, mine))
        try:
            self.settle()
            while (ended := ended_of(tickets)) is None:
                if self._timekeeper in ("", *names):
                    self._keep_time(names[0], mine)
                else:
                    mine.wait()
            return ended
        finally:
            self.leave(tickets, ended)
            for name in names:
                del self._sleepers[name]
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
    """The context manager that `acquire` returns; enter it once."""

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
            try:
                answer = limiter.ask(self._asks, self._timeout)
            finally:
                limiter.settle()
            if isinstance(answer, RequestLease):
                self.lease = answer
            else:
                self.take(limiter.sleep(answer), limiter.now())
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


def _refuse_an_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "ThreadLimiter blocks its thread, and this one runs an event loop, which would stand "
        "still; use windtunnel.live.admission.asyncio_limiter.AsyncLimiter here"
    )
