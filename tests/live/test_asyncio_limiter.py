"""The asyncio front: woken and never polled, and nothing leaks wherever it is cancelled."""

import asyncio
import contextlib
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

from tests.admission.invariants import REQUEST_INVARIANTS
from tests.core.sinks import MemorySink
from tests.live.virtual import VirtualLoop, run, ticks
from windtunnel.admission.events import EventReporter
from windtunnel.admission.reasons import Domain, Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.live.admission.asyncio_limiter import AsyncHeld, AsyncLimiter
from windtunnel.live.admission.leases import Refused

ASK = RequestAsk("p", "m", Domain.CHAT)
OTHER = RequestAsk("q", "m", Domain.CHAT)


def limiter(cap: int = 1, reporter: EventReporter | None = None, tokens: int = 0) -> AsyncLimiter:
    settings = AimdSettings(startup_ramp_s=0.0, jitter_fraction=0.0)
    made = AsyncLimiter(RequestAdmission("run", Streams(1), settings, reporter=reporter))
    made.register("p", "m", "alias", cap, tokens_per_minute=tokens)
    return made


def assert_at_rest(front: AsyncLimiter) -> None:
    """Nobody holds anything, nobody waits, and nothing more is planned."""
    assert front.admission.ledger.active == {}
    assert front.admission.waiting == 0
    assert front.admission.ledger.refused == {}
    InvariantChecker(REQUEST_INVARIANTS).run(front.admission, "at rest")


def lease_of(held: AsyncHeld) -> RequestLease:
    assert held.lease is not None
    return held.lease


def test_a_lease_is_held_in_the_block_and_given_back_after_it() -> None:
    async def main() -> None:
        front = limiter()
        async with front.acquire(ASK) as held:
            assert list(front.admission.ledger.active) == [lease_of(held).id]
            assert held.waited_s == 0.0
        assert_at_rest(front)

    run(main())


def test_freed_capacity_goes_to_the_next_waiter_in_the_tick_that_frees_it() -> None:
    async def main() -> None:
        front, order = limiter(), list[tuple[str, float]]()

        async def call(name: str, service_s: float) -> None:
            async with front.acquire(ASK) as held:
                order.append((name, front.now()))
                assert held.waited_s == front.now()
                await asyncio.sleep(service_s)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(call(f"c{number}", 0.25))
        assert order == [("c0", 0.0), ("c1", 0.25), ("c2", 0.5), ("c3", 0.75)]
        assert_at_rest(front)

    run(main())


def test_waiters_that_are_parked_cause_no_wake_up_at_all() -> None:
    """1,000 wait for an hour, and the loop goes round once: for whoever wakes after that hour."""

    async def main() -> None:
        front = limiter()
        assert isinstance(front.loop, VirtualLoop)
        async with asyncio.TaskGroup() as group, front.acquire(ASK):
            waiters = [group.create_task(_hold(front, 0.0)) for _ in range(1000)]
            await ticks(3)
            assert front.admission.waiting == 1000
            before = front.loop.passes
            await asyncio.sleep(3600.0)
            assert front.loop.passes - before <= 2
        assert all(waiter.done() for waiter in waiters)
        assert front.now() == 3600.0
        assert_at_rest(front)

    run(main())


async def _hold(front: AsyncLimiter, seconds: float, *asks: RequestAsk) -> None:
    async with front.acquire(*(asks or (ASK,))):
        await asyncio.sleep(seconds)


def test_one_timer_serves_all_who_wait() -> None:
    async def main() -> None:
        front = limiter(cap=2)
        armed: list[float] = []
        call_at = front.loop.call_at

        def watched(when: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
            if callback == front._time_passed:
                armed.append(when)
            return call_at(when, callback, *args, **more)

        front.loop.call_at = watched  # type: ignore[method-assign, assignment]
        async with front.acquire(ASK), front.acquire(ASK):
            waits = [_expect_timeout(front, 1.0 + number / 100) for number in range(100)]
            await asyncio.gather(*waits)
        assert front.now() == pytest.approx(1.99)
        assert len(armed) == 100
        assert_at_rest(front)

    run(main())


async def _expect_timeout(front: AsyncLimiter, timeout: float) -> None:
    with pytest.raises(Refused) as refused:
        async with front.acquire(ASK, timeout=timeout):
            raise AssertionError("nothing was free")
    assert refused.value.denied.reason is RequestDenial.QUEUE_TIMEOUT
    assert str(refused.value).startswith("p/m/chat: the call may not start: it was queued")
    assert front.now() == pytest.approx(timeout)


def test_a_cooldown_ends_for_the_waiter_when_it_ends() -> None:
    async def main() -> None:
        front = limiter(cap=4)
        for _ in range(3):
            async with front.acquire(ASK) as held:
                held.ended(Outcome.RATE_LIMITED, retry_after_s=7.5)
        async with front.acquire(ASK) as held:
            assert front.now() == pytest.approx(7.5)
            assert held.waited_s == pytest.approx(7.5)
        assert_at_rest(front)

    run(main())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError(), "provider_timeout"),
        (asyncio.CancelledError(), "local_cancelled"),
        (KeyboardInterrupt(), "local_cancelled"),
        (KeyError("bug"), "unexpected_exception"),
        (None, "success"),
    ],
)
def test_what_leaves_the_block_is_the_outcome(error: BaseException | None, outcome: str) -> None:
    async def main() -> None:
        sink = MemorySink()
        front = limiter(reporter=EventReporter(Telemetry(sink)))
        expected = contextlib.nullcontext() if error is None else pytest.raises(type(error))
        with expected:
            async with front.acquire(ASK):
                if error is not None:
                    raise error
        released = [event for event in sink.events if event.kind == "request_lease_released"]
        assert [event.reason for event in released] == [outcome]
        assert_at_rest(front)

    run(main())


def test_what_cannot_ever_start_is_refused_at_once() -> None:
    async def main() -> None:
        front = limiter(tokens=100)
        huge = RequestAsk("p", "m", Domain.CHAT, tokens=101)
        stranger = RequestAsk("p", "unknown", Domain.CHAT)
        for ask, reason in ((huge, "larger than"), (stranger, "not registered")):
            with pytest.raises(Refused, match=reason):
                async with front.acquire(ask):
                    pass
        front.shut_down()
        with pytest.raises(Refused, match="shut down"):
            async with front.acquire(ASK):
                pass
        assert_at_rest(front)

    run(main())


def test_shutting_down_wakes_those_who_wait() -> None:
    async def main() -> None:
        front = limiter()
        async with front.acquire(ASK):
            waiting = [asyncio.create_task(_hold(front, 0.0)) for _ in range(3)]
            await ticks(2)
            front.shut_down()
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Refused] * 3
        assert_at_rest(front)

    run(main())


def test_raising_a_cap_wakes_those_who_may_go() -> None:
    async def main() -> None:
        front = limiter()
        async with front.acquire(ASK):
            waiting = [asyncio.create_task(_hold(front, 1.0)) for _ in range(3)]
            await ticks(2)
            front.register("p", "m", "alias", 3)
            assert front.admission.waiting == 1
        await asyncio.gather(*waiting)
        assert_at_rest(front)

    run(main())


# Several endpoints, one lease.


def test_of_several_endpoints_the_least_loaded_that_has_room() -> None:
    async def main() -> None:
        front = limiter(cap=2)
        front.register("q", "m", "alias", 4)
        taken = []
        for _ in range(6):
            held = await front.acquire(ASK, OTHER).__aenter__()
            taken.append(lease_of(held).ask.provider)
        assert taken == ["p", "q", "q", "p", "q", "q"]

    run(main())


def test_who_waits_at_several_endpoints_takes_the_first_that_frees() -> None:
    async def main() -> None:
        front = limiter(cap=1)
        front.register("q", "m", "alias", 1)
        async with front.acquire(OTHER):
            for _ in range(3):
                async with front.acquire(ASK) as held:
                    held.ended(Outcome.RATE_LIMITED, retry_after_s=60.0)
            waiter = asyncio.create_task(_hold(front, 1.0, ASK, OTHER))
            await asyncio.sleep(2.0)
            assert front.admission.waiting == 2
        await waiter
        assert front.now() == pytest.approx(3.0)
        assert_at_rest(front)

    run(main())


def test_a_wait_at_several_endpoints_ends_when_the_last_refuses() -> None:
    async def main() -> None:
        front = limiter(cap=1)
        front.register("q", "m", "alias", 1)
        async with front.acquire(ASK), front.acquire(OTHER):
            with pytest.raises(Refused):
                async with front.acquire(ASK, OTHER, timeout=1.0):
                    pass
            assert front.now() == pytest.approx(1.0)
        assert_at_rest(front)

    run(main())


# Cancellation.


class CancelledAt(Awaitable[None]):
    """Runs a coroutine and cancels its task at the n-th point where it awaits something.

    Late: what was awaited is left to happen first, so that the cancellation meets a task that has
    been woken and has not run yet.
    """

    def __init__(self, coroutine: Awaitable[None], at: int, *, late: bool) -> None:
        self.coroutine, self.at, self.late = coroutine, at, late
        self.points = 0

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self.coroutine.__await__()
        answer, error = None, None
        while True:
            try:
                awaited = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            self.points += 1
            if self.points == self.at:
                self._cancel(awaited)
            answer, error = None, None
            try:
                answer = yield awaited
            except BaseException as thrown:  # noqa: BLE001 - whatever it is goes to the coroutine
                error = thrown

    def _cancel(self, awaited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.late and isinstance(awaited, asyncio.Future):
            # Before the task's own callback, which is added when it has parked.
            awaited.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_rate_limited", [False, True])
@pytest.mark.parametrize("asks", [(ASK,), (ASK, OTHER)], ids=["one", "several"])
def test_cancellation_at_every_await_point_leaks_nothing(
    asks: tuple[RequestAsk, ...], is_rate_limited: bool, late: bool
) -> None:
    async def main(at: int) -> int:
        front = limiter(cap=1)
        front.register("q", "m", "alias", 1)

        async def victim() -> None:
            for _ in range(2):
                async with front.acquire(*asks, timeout=50.0) as held:
                    await asyncio.sleep(0.5)
                    if is_rate_limited:
                        held.ended(Outcome.RATE_LIMITED, retry_after_s=1.0)

        cut = CancelledAt(victim(), at, late=late)

        async def run_victim() -> None:
            await cut

        async with asyncio.TaskGroup() as group:
            others = [group.create_task(_hold(front, 1.0, *asks)) for _ in range(3)]
            task = group.create_task(run_victim())
            others += [group.create_task(_hold(front, 1.0, *asks)) for _ in range(3)]
        assert task.cancelled() == (0 < at <= cut.points)
        assert all(other.done() and not other.cancelled() for other in others)
        assert_at_rest(front)
        return cut.points

    points = run(main(0))
    assert points >= 4
    for at in range(1, points + 1):
        run(main(at))


@pytest.mark.parametrize("tick", range(30))
def test_cancellation_in_any_tick_leaks_nothing(tick: int) -> None:
    """With no service time all happens in ticks of the loop: cancel two tasks in each of them."""

    async def main() -> None:
        front = limiter(cap=2)

        async def call() -> None:
            async with front.acquire(ASK):
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(call()) for _ in range(8)]
        await ticks(tick)
        tasks[tick % 8].cancel()
        tasks[(tick + 3) % 8].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [a for a in answers if a is not None and not isinstance(a, BaseException)] == []
        assert len([a for a in answers if isinstance(a, asyncio.CancelledError)]) <= 2
        assert_at_rest(front)

    run(main())


def test_a_loop_that_was_closed_over_waiters_loses_no_lease() -> None:
    """Elsewhere the next release failed, and the lease handed to the dead waiter was lost."""
    loop = asyncio.new_event_loop()

    async def start() -> tuple[AsyncLimiter, AsyncHeld, "asyncio.Task[None]"]:
        front = limiter()
        held = await front.acquire(ASK).__aenter__()
        waiter = asyncio.create_task(_hold(front, 0.0))
        await ticks(2)
        return front, held, waiter

    front, held, waiter = loop.run_until_complete(start())
    assert front.admission.waiting == 1
    loop.close()
    held.give_back(front.admission, None, front._now_s + 1.0)
    front.settle()
    assert_at_rest(front)
    waiter._log_destroy_pending = False  # type: ignore[attr-defined]
    waiter.get_coro().close()


def test_another_loop_is_refused_with_a_sentence() -> None:
    front = run(_make())

    async def use() -> None:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            async with front.acquire(ASK):
                pass

    run(use())


async def _make() -> AsyncLimiter:
    return limiter()
