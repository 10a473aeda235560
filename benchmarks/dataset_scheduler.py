"""100,000 cells that take no time, through the whole scheduler on asyncio: one model, and 64.

Each cell is scheduled, gets a task of its own, a lease on its model, and is given back; only the
call itself is left out.
"""

import asyncio
from collections.abc import Iterator, Sequence

from benchmarks.claim import Claim, report
from windtunnel.admission.advisory import PressureAdvisory
from windtunnel.admission.dataset.cells import Cell, RowSeed
from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.admission.dataset.scheduler import Place, Scheduler
from windtunnel.admission.endpoint import RequestAsk
from windtunnel.admission.limiter import AimdSettings
from windtunnel.admission.metadata import SchedulingMetadata, WorkKind, resolve, task_limits
from windtunnel.admission.reasons import Domain
from windtunnel.admission.requests import RequestAdmission
from windtunnel.admission.row_groups import RowGroupAdmission, rows_guard
from windtunnel.admission.tasks import TaskAdmission
from windtunnel.core.clock import cpu_s
from windtunnel.core.random import Streams
from windtunnel.live.asyncio_front import AsyncLimiter

CELLS = 100_000
CAP = 64
GROUP_ROWS = 256
PROMISE_S = 6.0
REPEATS = 2


def seeds(rows: int) -> Iterator[Sequence[RowSeed]]:
    for start in range(0, rows, GROUP_ROWS):
        yield [RowSeed(row) for row in range(start, min(rows, start + GROUP_ROWS))]


class Work:
    """Columns that need nothing of each other, each with a model of its own."""

    def __init__(self, models: int) -> None:
        streams = Streams(1)
        settings = AimdSettings(startup_ramp_s=0.0)
        self.limiter = AsyncLimiter(RequestAdmission("bench", streams, settings))
        names = [f"m{number}" for number in range(models)]
        self.asks = [RequestAsk("p", name, Domain.CHAT) for name in names]
        metadata = [
            SchedulingMetadata(WorkKind.MODEL, ("model", "p", name, "chat"), CAP) for name in names
        ]
        resolved = [
            resolve(one, [name], CAP * models) for one, name in zip(metadata, names, strict=True)
        ]
        limits = task_limits(CAP * models, list(zip(metadata, resolved, strict=True)))
        tasks = TaskAdmission("bench", limits)
        advisory = PressureAdvisory(tasks, self.limiter.admission)
        places = []
        for name, one in zip(names, resolved, strict=True):
            self.limiter.register("p", name, "bench", CAP)
            lane = tasks.demand(one.amounts)
            advisory.watch(lane, "p", name, Domain.CHAT)
            places.append([Place(lane, one.group)])
        rows = CELLS // models
        self.scheduler = Scheduler(
            ColumnGraph({name: [] for name in names}),
            places,
            seeds(rows),
            tasks,
            RowGroupAdmission(64, CAP * models, rows_guard(rows, GROUP_ROWS)),
            streams["retries"],
            advisory=advisory,
        )
        self.done = 0
        self._wake = asyncio.Event()

    async def call(self, cell: Cell) -> None:
        async with self.limiter.acquire(self.asks[cell.column]):
            self.done += 1
        self.scheduler.finished(cell, self.limiter.now())
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                now = self.limiter.now()
                while (cell := self.scheduler.next_cell(now)) is not None:
                    tasks.create_task(self.call(cell))
                if self.scheduler.is_done:
                    return
                await self._wake.wait()


async def measure(models: int) -> float:
    work = Work(models)
    start = cpu_s()
    await work.run()
    used_s = cpu_s() - start
    assert work.done == CELLS // models * models
    return used_s / work.done * CELLS


def main() -> None:
    one_s = min(asyncio.run(measure(1)) for _ in range(REPEATS))
    many_s = min(asyncio.run(measure(64)) for _ in range(REPEATS))
    report(
        Claim(
            f"{CELLS:,} cells that take no time through the scheduler",
            ours=one_s,
            baseline=PROMISE_S,
            most=1.0,
            unit="CPU s",
            against="the promise",
        )
    )
    report(
        Claim(
            "the same with 64 models",
            ours=many_s,
            baseline=one_s,
            most=1.5,
            unit="CPU s",
            against="one model",
        )
    )


if __name__ == "__main__":
    main()
