"""Workers that take the next cell themselves: each cell once, never too many, nothing is lost."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVarTuple

import pytest
from benchmarks.idle.cases import Case
from benchmarks.idle.rig import Column, Rig
from hypothesis import given
from hypothesis import strategies as st

from tests.live.virtual import VirtualLoop, run, ticks
from windtunnel.admission.dataset.cells import DatasetCell
from windtunnel.admission.dataset.scheduler import CellRetries
from windtunnel.core.errors import InvariantBroken
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter
from windtunnel.live.admission.workers import MOST_IN_A_ROW, CellWorkers

Arguments = TypeVarTuple("Arguments")


class Site:
    """Rows of two columns on a few slots, and a crew for them."""

    def __init__(
        self,
        call: Callable[["Site", DatasetCell], Awaitable[None]],
        rows: int = 12,
        slots: int = 3,
        retries: CellRetries = CellRetries(),  # noqa: B008 - a constant
    ) -> None:
        case = Case("crew", rows=rows, group_rows=4, groups=2, tasks=slots, slots=slots)
        columns = [Column("first", (), 0.0, ""), Column("second", ("first",), 0.0, "")]
        self.rig = Rig(columns, case, retries=retries)
        self.limiter = AsyncLimiter(self.rig.requests)
        self.now = self.limiter.now
        self.crew = CellWorkers(self.rig.scheduler, self.limiter, self._call)
        self.called: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self._how = call

    async def _call(self, cell: DatasetCell) -> None:
        self.called[cell.id] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._how(self, cell)
        except asyncio.CancelledError:
            self.rig.scheduler.put_back(cell, self.now())
            raise
        finally:
            self.at_once -= 1

    def finish(self, cell: DatasetCell) -> None:
        self.rig.scheduler.finished(cell, self.now())

    async def run(self) -> None:
        await self.crew.run(never)


def never() -> None:
    raise AssertionError("nothing stalls here")


@given(
    rows=st.integers(1, 20),
    slots=st.integers(1, 6),
    times=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=7),
)
def test_each_cell_is_called_once_and_never_too_many(
    rows: int, slots: int, times: list[float]
) -> None:
    async def call(site: Site, cell: DatasetCell) -> None:
        await asyncio.sleep(times[sum(site.called.values()) % len(times)])
        site.finish(cell)

    async def main() -> Site:
        site = Site(call, rows, slots)
        await site.run()
        return site

    site = run(main())
    assert len(site.called) == 2 * rows
    assert set(site.called.values()) == {1}
    assert site.most_at_once <= slots
    assert site.rig.left_over() == 0
    assert site.rig.scheduler.is_done


def test_slots_are_never_left_idle_while_cells_wait() -> None:
    """Twelve calls of a second on four slots, and twelve more: six seconds."""

    async def call(site: Site, cell: DatasetCell) -> None:
        await asyncio.sleep(1.0)
        site.finish(cell)

    async def main() -> float:
        site = Site(call, slots=4)
        await site.run()
        return site.now()

    assert run(main()) == pytest.approx(6.0)


def test_calls_that_never_wait_let_others_have_their_turn() -> None:
    async def call(site: Site, cell: DatasetCell) -> None:
        site.finish(cell)

    async def main() -> int:
        site = Site(call, rows=200, slots=1)
        running = asyncio.ensure_future(site.run())
        turns = 0
        while not running.done():
            await ticks(1)
            turns += 1
        await running
        assert sum(site.called.values()) == 400
        return turns

    assert run(main()) >= 400 // MOST_IN_A_ROW


def test_cancelled_calls_are_called_again() -> None:
    async def call(site: Site, cell: DatasetCell) -> None:
        if sum(site.called.values()) == 5:
            asyncio.get_running_loop().call_soon(site.crew.abandon)
        await asyncio.sleep(1.0)
        site.finish(cell)

    async def main() -> Site:
        site = Site(call)
        await site.run()
        return site

    site = run(main())
    assert sum(site.called.values()) == 24 + 3
    assert site.rig.left_over() == 0


def test_an_error_of_a_call_ends_the_run() -> None:
    async def call(site: Site, cell: DatasetCell) -> None:
        await asyncio.sleep(1.0)
        if sum(site.called.values()) > 7:
            raise ZeroDivisionError
        site.finish(cell)

    async def main() -> None:
        await Site(call).run()

    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    assert caught.group_contains(ZeroDivisionError)


def test_an_error_while_looking_for_more_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in a callback of the loop, where it would only be logged."""

    async def call(site: Site, cell: DatasetCell) -> None:
        await asyncio.sleep(1.0)
        site.finish(cell)
        if sum(site.called.values()) == 7:
            monkeypatch.setattr(site.crew, "_start", broken)

    def broken() -> None:
        raise InvariantBroken("it is broken")

    async def main() -> None:
        await Site(call).run()

    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    assert caught.group_contains(InvariantBroken)


def test_stopping_ends_when_what_is_in_flight_has_ended() -> None:
    async def call(site: Site, cell: DatasetCell) -> None:
        await asyncio.sleep(1.0)
        if sum(site.called.values()) == 6:
            site.rig.scheduler.stop()
            site.crew.wake()
        site.finish(cell)

    async def main() -> Site:
        site = Site(call)
        await site.run()
        return site

    site = run(main())
    assert sum(site.called.values()) == 6
    assert site.at_once == 0


class _RoundingLoop(VirtualLoop):
    """Rounds timers to milliseconds, as libuv does: they may ring before their time."""

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        delay_s = round(when - self.time(), 3)
        return super().call_at(self.time() + delay_s, callback, *args, context=context)


@given(st.lists(st.sampled_from([0.00011, 0.00026, 0.0007, 0.01]), min_size=1, max_size=5))
def test_no_cell_is_called_again_before_its_time(times: list[float]) -> None:
    """Also by the clock that its call reads: what it plans next cannot be in the past."""
    loop = _RoundingLoop()

    async def call(site: Site, cell: DatasetCell) -> None:
        if cell.has_failed:
            assert site.now() >= cell.landed_s + cell.own_wait_s
        site.rig.scheduler.began(cell, site.now())
        loop.spend(times[sum(site.called.values()) % len(times)])
        site.rig.scheduler.failed(cell, "server_error", site.now())

    async def main() -> Site:
        site = Site(call, rows=6, retries=CellRetries(4, 5.0))
        await site.crew.run(site.rig.scheduler.stop)
        return site

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        site = runner.run(main())
    assert sum(site.called.values()) > 6
    assert site.rig.scheduler.in_flight == 0
