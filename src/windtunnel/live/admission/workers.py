"""Asyncio workers that make the calls for a scheduler's cells.

A worker that has finished a call takes the next cell itself: between two calls of a slot there is
one decision, and no task is woken or created. Whether more calls may start is checked once the next
call is under way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from windtunnel.admission.dataset.cells import DatasetCell
from windtunnel.admission.dataset.scheduler import DatasetScheduler
from windtunnel.admission.requests.limiter import NEVER

MOST_IN_A_ROW: Final = 32
"""Calls of one worker before it yields to the others, in case none of the calls ever waits."""


class SchedulerClock(Protocol):
    """The time that the scheduler is told, by its workers and by the calls they make."""

    def now(self) -> float: ...
    def reach(self, at_s: float) -> None: ...


class CellWorkers:
    """The workers of one scheduler; must be created on their own event loop."""

    def __init__(
        self,
        scheduler: DatasetScheduler,
        clock: SchedulerClock,
        call: Callable[[DatasetCell], Awaitable[None]],
    ) -> None:
        """`call` processes a cell and reports its outcome to the scheduler, also when cancelled."""
        self._scheduler: Final = scheduler
        self._clock: Final = clock
        self._call: Final = call
        self._loop: Final = asyncio.get_running_loop()
        self._idle: Final = asyncio.Event()
        self._workers: Final[dict[asyncio.Task[None], None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._look: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_s = NEVER
        self._fault: Exception | None = None

    async def run(self, stalled: Callable[[], None]) -> None:
        """Runs until done, or stopped with nothing in flight; calls `stalled` if none succeed."""
        scheduler = self._scheduler
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    self._idle.clear()
                    self._start()
                    if scheduler.is_done or (scheduler.is_stopping and scheduler.in_flight == 0):
                        break
                    if scheduler.is_stalled(self._clock.now()):
                        stalled()
                    await self._idle.wait()
                    if self._fault is not None:
                        raise self._fault
        finally:
            for planned in (self._look, self._timer):
                if planned is not None:
                    planned.cancel()

    def wake(self) -> None:
        """Checks again for work, after a change other than the end of a call."""
        self._idle.set()

    def abandon(self) -> None:
        """Cancels the calls in flight."""
        for worker in list(self._workers):
            worker.cancel()

    async def _work(self, cell: DatasetCell | None) -> None:
        turns = 0
        try:
            while cell is not None:
                await self._call(cell)
                turns += 1
                if turns % MOST_IN_A_ROW == 0:
                    await asyncio.sleep(0)
                cell = self._scheduler.next_cell(self._clock.now())
                if cell is not None and self._look is None:
                    # The call that ended may have made room for more than this one.
                    self._look = self._loop.call_soon(self._look_again)
        except Exception as fault:
            self._fault = fault
            raise
        finally:
            self._idle.set()

    def _look_again(self) -> None:
        self._look = None
        if self._fault is not None:
            return  # the run is being shut down
        try:
            self._start()
        except Exception as fault:  # noqa: BLE001 - it would only be logged; the driver raises it
            self._fault = fault
            self._idle.set()

    def _start(self) -> None:
        """Starts the calls that may start, and sets a timer in case no call ends before."""
        assert self._tasks is not None
        scheduler, now = self._scheduler, self._clock.now()
        while (cell := scheduler.next_cell(now)) is not None:
            worker = self._tasks.create_task(self._work(cell))
            self._workers[worker] = None
            worker.add_done_callback(self._workers.pop)
        wake_s = scheduler.next_wake_s()
        if wake_s == self._armed_s:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_s = wake_s
        if wake_s < NEVER and not scheduler.is_stopping:
            self._timer = self._loop.call_later(max(0.0, wake_s - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._clock.reach(self._armed_s)
        self._armed_s = NEVER
        self._idle.set()
