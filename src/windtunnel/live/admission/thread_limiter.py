"""Request admission for threads: `with limiter.acquire(ask, timeout=30) as held: ...`.

Each waiter sleeps on a condition of its own until a release hands it a lease. One of the waiters,
the timekeeper, also wakes for the next thing that only time brings.
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import (
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.clock import monotonic_s
from windtunnel.live.admission.leases import HeldLease, Refused, deadline_s


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

    def now(self) -> float:
        """Seconds since this was made; it never goes back. Under the lock only."""
        self._now_s = max(self._now_s, self._clock() - self._origin_s)
        return self._now_s

    def acquire(self, ask: RequestAsk, timeout: float | None = None) -> "ThreadHeld":
        """A lease while the block runs; waits at most `timeout` seconds, else `Refused`."""
        return ThreadHeld(self, ask, timeout)

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

    def sleep(self, ticket: QueueTicket) -> None:
        """Returns when a wait is over; called and left with the lock held."""
        mine = threading.Condition(self.lock)
        self._sleepers[ticket.id] = mine
        try:
            self.settle()
            while ticket.is_waiting:
                if self._timekeeper in ("", ticket.id):
                    self._keep_time(ticket.id, mine)
                else:
                    mine.wait()
        except BaseException:
            self.admission.cancel(ticket, self.now())
            raise
        finally:
            del self._sleepers[ticket.id]
            if self._timekeeper == ticket.id:
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

    __slots__ = ("_ask", "_limiter", "_timeout")

    def __init__(self, limiter: ThreadLimiter, ask: RequestAsk, timeout: float | None) -> None:
        super().__init__()
        self._limiter: Final = limiter
        self._ask: Final = ask
        self._timeout: Final = timeout

    def __enter__(self) -> Self:
        _refuse_an_event_loop()
        limiter = self._limiter
        with limiter.lock:
            now = limiter.now()
            answer = limiter.admission.acquire(self._ask, now, deadline_s(self._timeout, now))
            if isinstance(answer, QueueTicket):
                limiter.sleep(answer)
                self.take(answer, limiter.now())
            else:
                limiter.settle()
                if isinstance(answer, RequestDenied):
                    raise Refused(answer)
                assert isinstance(answer, RequestLease)
                self.lease = answer
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
