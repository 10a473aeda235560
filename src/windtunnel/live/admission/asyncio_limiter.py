"""Request admission for asyncio: `async with limiter.acquire(ask, timeout=30) as held: ...`.

Nothing polls. A release hands its capacity to the next waiter and wakes it; one timer serves all
waiters for events that depend on time alone (a deadline, the end of a cooldown, a replenished
budget). A cancelled wait gives up its place in the queue, or its lease if that came first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.random import Streams
from windtunnel.live.admission.leases import TRIES, HeldLease, LeaseLimiter, Tries, ended_of

Said = TypeVar("Said")
Item = TypeVar("Item")


class AsyncLimiter(LeaseLimiter):
    """Drives one request admission on one event loop; must be created inside that loop."""

    def __init__(self, admission: RequestAdmission) -> None:
        self.loop: Final = asyncio.get_running_loop()
        super().__init__(admission, self.loop.time, nullcontext())
        self._timer: asyncio.TimerHandle | None = None

    def acquire(self, *asks: RequestAsk, timeout: float | None = None) -> "AsyncHeld":
        """A lease for the duration of the block; of several endpoints, on the first with capacity.

        A call that cannot start waits, at most `timeout` seconds. If it may not start at all, or
        not in time, `Refused` is raised.
        """
        return AsyncHeld(self, asks, timeout)

    async def call(
        self,
        send: Callable[[], Awaitable[Said]],
        *asks: RequestAsk,
        tries: int = TRIES,
        timeout: float | None = None,
    ) -> Said:
        """Returns the result of `send`, under a lease; retries after a rate limit or transient
        failure.

        Each attempt has a lease of its own. Between attempts it waits for the reply's Retry-After
        or an increasing delay. The last reply is returned, or the last error raised, whatever it
        is.
        """
        made = Tries(asks, tries, self._stream)
        wait_s: float | None = 0.0
        while wait_s is not None:
            if wait_s > 0.0:
                await asyncio.sleep(wait_s)
            async with self.acquire(*made.asks, timeout=timeout) as held:
                try:
                    made.said, made.error = await send(), None
                except Exception as fault:  # noqa: BLE001 - judged, and raised at the end
                    made.error = fault
                wait_s = made.ended(held)
        return cast("Said", made.result())

    def settle(self) -> None:
        admission = self.admission
        resolved = admission.take_resolved()
        while resolved:
            for ticket in resolved:
                self._wake(ticket)
            resolved = admission.take_resolved()
        wake_s = admission.next_wake_s()
        # A timer that fires too early costs one check; re-arming it each time would cost more.
        if wake_s < self._armed_s and not self.loop.is_closed():
            if self._timer is not None:
                self._timer.cancel()
            self._armed_s = wake_s
            self._timer = self.loop.call_at(self._origin_s + wake_s, self._time_passed)

    def _time_passed(self) -> None:
        self.reach(self._armed_s)
        self._armed_s = NEVER
        self._timer = None
        self.admission.advance(self._now_s)
        self.settle()

    def _wake(self, ticket: QueueTicket) -> None:
        parked = ticket.user
        if not isinstance(parked, _Parked) or parked.future.done() or self.loop.is_closed():
            # Its waiter was cancelled, has another lease, or ended with its loop.
            self.admission.cancel(ticket, self._now_s)
        elif (ended := ended_of(parked.tickets)) is not None:
            parked.future.set_result(ended)


async def call_all(
    send: Callable[[Item], Awaitable[Said]],
    items: Iterable[Item],
    at_once: int,
    *,
    tries: int = TRIES,
) -> list[Said]:
    """Returns the results of `send` for all items, in order, with limits and retries."""
    limiter = AsyncLimiter(RequestAdmission("call_all", Streams(0)))
    limiter.register("endpoint", "model", "call_all", at_once)
    ask = RequestAsk("endpoint", "model")
    calls = (limiter.call(partial(send, item), ask, tries=tries) for item in items)
    return await asyncio.gather(*calls)


class _Parked:
    """A waiter: one future for its place in one or more queues."""

    __slots__ = ("future", "tickets")

    def __init__(self, future: asyncio.Future[QueueTicket], tickets: list[QueueTicket]) -> None:
        self.future: Final = future
        self.tickets: Final = tickets
        for ticket in tickets:
            ticket.user = self


class AsyncHeld(HeldLease):
    """The context manager that `acquire` returns; enter it once."""

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
        parked: _Parked | None = None
        try:
            answer = limiter.ask(self._asks, self._timeout)
            if isinstance(answer, RequestLease):
                self.lease = answer
            else:
                parked = _Parked(limiter.loop.create_future(), answer)
        finally:
            limiter.settle()
        if parked is not None:
            self.take(await self._wait(parked), limiter.now())
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

    async def _wait(self, parked: _Parked) -> QueueTicket:
        limiter, tickets = self._limiter, parked.tickets
        ended: QueueTicket | None = None
        try:
            ended = await parked.future
        finally:
            # A cancelled wait gives up all its places, a served one those it does not need.
            if ended is None or len(tickets) > 1:
                limiter.leave(tickets, ended)
                limiter.settle()
        return ended
