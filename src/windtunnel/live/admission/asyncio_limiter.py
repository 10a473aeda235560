"""Request admission for asyncio: `async with limiter.acquire(ask, timeout=30) as held: ...`.

Nothing polls. A release hands its capacity to the next waiter and wakes it; one timer serves all
waiters for what only time brings (a deadline, the end of a cooldown, room in a budget). A cancelled
wait gives up its place, or the lease if that came first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import (
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.random import Stream, Streams
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
Item = TypeVar("Item")


class AsyncLimiter:
    """Drives one request admission on one event loop; made inside that loop."""

    def __init__(self, admission: RequestAdmission) -> None:
        self.admission: Final = admission
        self.loop: Final = asyncio.get_running_loop()
        self._origin_s: Final = self.loop.time()
        self._now_s = 0.0
        self._armed_s = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._stream: Final = Stream(0, "live.retries")

    def now(self) -> float:
        """Seconds since this was made, on the clock of the loop; it never goes back."""
        now = self.loop.time() - self._origin_s
        if now > self._now_s:
            self._now_s = now
        return self._now_s

    def acquire(self, *asks: RequestAsk, timeout: float | None = None) -> "AsyncHeld":
        """A lease while the block runs; of several endpoints asked, the first that has room.

        A call that cannot start waits, at most `timeout` seconds. One that may not start at all,
        or not in time, gets `Refused`.
        """
        return AsyncHeld(self, asks, timeout)

    async def call(
        self,
        send: Callable[[], Awaitable[Said]],
        *asks: RequestAsk,
        tries: int = TRIES,
        timeout: float | None = None,
    ) -> Said:
        """What `send` returns, under a lease; made again after a refusal or what may pass.

        Each try has a lease of its own. In between it waits for its Retry-After, or for a delay
        that doubles. The last reply is returned, and the last error raised, whatever it is.
        """
        for attempt in range(tries):
            error, said = None, None
            async with self.acquire(*asks, timeout=timeout) as held:
                try:
                    said = await send()
                except Exception as fault:  # noqa: BLE001 - judged, and raised below
                    error = fault
                verdict = judge(said if error is None else error)
                held.ended(verdict.outcome, observed=verdict.observed)
            if not verdict.may_pass or attempt + 1 >= tries:
                break
            await asyncio.sleep(wait_s(verdict, attempt, self._stream))
        if error is not None:
            raise error
        return cast("Said", said)

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

    def shut_down(self) -> None:
        """Refuses all that waits and all that comes; leases in flight still come back."""
        self.admission.shut_down(self.now())
        self.settle()

    def settle(self) -> None:
        """Wakes those whose wait is over, and plans the next look; after every change."""
        admission = self.admission
        resolved = admission.take_resolved()
        while resolved:
            for ticket in resolved:
                self._wake(ticket)
            resolved = admission.take_resolved()
        wake_s = admission.next_wake_s()
        # A timer that is too early costs one look; taking it back each time would cost more.
        if wake_s < self._armed_s and not self.loop.is_closed():
            if self._timer is not None:
                self._timer.cancel()
            self._armed_s = wake_s
            self._timer = self.loop.call_at(self._origin_s + wake_s, self._time_passed)

    def _time_passed(self) -> None:
        # Rounding may show a time just before the one that was armed: it is that time.
        self._now_s = max(self.now(), self._armed_s)
        self._armed_s = NEVER
        self._timer = None
        self.admission.advance(self._now_s)
        self.settle()

    def _wake(self, ticket: QueueTicket) -> None:
        parked = ticket.user
        assert isinstance(parked, _Parked)
        if parked.future.done() or self.loop.is_closed():
            # Its waiter was cancelled, has another lease, or went down with its loop.
            self.admission.cancel(ticket, self._now_s)
        elif ticket.lease is not None or not any(other.is_waiting for other in parked.tickets):
            parked.future.set_result(ticket)


async def call_all(
    send: Callable[[Item], Awaitable[Said]],
    items: Iterable[Item],
    at_once: int,
    *,
    tries: int = TRIES,
) -> list[Said]:
    """What `send` says of each item, in order: limited, retried, and held to what replies say."""
    limiter = AsyncLimiter(RequestAdmission("call_all", Streams(0)))
    limiter.register("endpoint", "model", "call_all", at_once)
    ask = RequestAsk("endpoint", "model")
    calls = (limiter.call(partial(send, item), ask, tries=tries) for item in items)
    return await asyncio.gather(*calls)


class _Parked:
    """A waiter: one future for a place in one queue or in several."""

    __slots__ = ("future", "tickets")

    def __init__(self, future: asyncio.Future[QueueTicket]) -> None:
        self.future: Final = future
        self.tickets: Final[list[QueueTicket]] = []


class AsyncHeld(HeldLease):
    """What `acquire` returns: enter it once."""

    __slots__ = ("_asks", "_limiter", "_timeout")

    def __init__(
        self, limiter: AsyncLimiter, asks: tuple[RequestAsk, ...], timeout: float | None
    ) -> None:
        super().__init__()
        self._limiter: Final = limiter
        self._asks: Final = asks
        self._timeout: Final = timeout

    async def __aenter__(self) -> Self:
        limiter = self._limiter
        if asyncio.get_running_loop() is not limiter.loop:
            raise RuntimeError("this limiter belongs to another event loop; make one for each")
        answer = self._ask(limiter.now())
        limiter.settle()
        if isinstance(answer, RequestLease):
            self.lease = answer
        elif isinstance(answer, RequestDenied):
            raise Refused(answer)
        else:
            self.take(await self._wait(answer), limiter.now())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        limiter = self._limiter
        self.give_back(limiter.admission, kind, limiter.now())
        limiter.settle()

    def _ask(self, now: float) -> RequestLease | RequestDenied | _Parked:
        """A lease where one is to be had, else a place in the queue of every endpoint."""
        admission = self._limiter.admission
        asks = asks_to_make(admission, self._asks, now)
        until_s = deadline_s(self._timeout, now)
        parked: _Parked | None = None
        denied: RequestDenied | None = None
        for ask in asks:
            answer = admission.acquire(ask, now, until_s)
            if isinstance(answer, QueueTicket):
                if parked is None:
                    parked = _Parked(self._limiter.loop.create_future())
                parked.tickets.append(answer)
                answer.user = parked
            elif isinstance(answer, RequestDenied):
                denied = answer
            else:
                if parked is not None:
                    parked.future.cancel()
                    self._leave(parked, None)
                return answer
        if parked is not None:
            return parked
        assert denied is not None
        return denied

    async def _wait(self, parked: _Parked) -> QueueTicket:
        ended: QueueTicket | None = None
        try:
            ended = await parked.future
        finally:
            # A cancelled wait gives up all its places, a served one those it does not need.
            if ended is None or len(parked.tickets) > 1:
                self._leave(parked, ended)
                self._limiter.settle()
        return ended

    def _leave(self, parked: _Parked, kept: QueueTicket | None) -> None:
        limiter = self._limiter
        for ticket in parked.tickets:
            if ticket is not kept:
                limiter.admission.cancel(ticket, limiter.now())
