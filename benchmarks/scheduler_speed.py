"""A hundred thousand calls that take no time, through the whole scheduler: the cost of scheduling.

Rows in groups of 1,000, three groups at once, up to 1,024 tasks in flight, 64 per model, with the
pressure advisory; each is an asyncio task that gets its request lease through the asyncio front.
With 64 models each row has 64 columns, one on each.
"""

import asyncio

from benchmarks.claim import Claim, report
from benchmarks.idle.cases import Case
from benchmarks.idle.rig import PROVIDER, Column, Rig
from windtunnel.admission.dataset.cells import DatasetCell
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.clock import cpu_s
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter

TASKS = 100_000
COMPARED = 20_480
MODEL_CAP = 64
MOST_S = 6.0
MOST_BY_MODELS = 1.5
REPEATS = 3


async def cpu_of(tasks: int, models: int) -> float:
    """CPU seconds of a number of tasks on a number of models, with one column for each."""
    rows = tasks // models
    case = Case(
        "speed", rows=rows, group_rows=1000, groups=3, tasks=1024, slots=1024, advisory=True
    )
    columns = [Column(f"c{number}", (), 0.0, f"m{number}") for number in range(models)]
    rig = Rig(columns, case, model_cap=MODEL_CAP)
    front = AsyncLimiter(rig.requests)
    for column in columns:
        assert column.ask is not None
        front.register(PROVIDER, column.ask.model, "bench", MODEL_CAP)
    start_s = cpu_s()
    await _drive(rig, front)
    used_s = cpu_s() - start_s
    assert rig.left_over() == 0
    return used_s


async def _drive(rig: Rig, front: AsyncLimiter) -> None:
    scheduler, wake = rig.scheduler, asyncio.Event()

    async def call(cell: DatasetCell) -> None:
        ask = rig.columns[cell.column].ask
        assert ask is not None
        async with front.acquire(ask):
            pass
        scheduler.finished(cell, front.now())
        wake.set()

    async with asyncio.TaskGroup() as calls:
        while not scheduler.is_done:
            wake.clear()
            while (cell := scheduler.next_cell(front.now())) is not None:
                calls.create_task(call(cell))
            assert scheduler.next_wake_s() == NEVER, "nothing fails here"
            await wake.wait()


def least_cpu_s(tasks: int, models: int) -> float:
    return min(asyncio.run(cpu_of(tasks, models)) for _ in range(REPEATS))


def main() -> None:
    whole_s = asyncio.run(cpu_of(TASKS, 1))
    report(
        Claim(
            f"{TASKS:,} calls of no time through the whole scheduler",
            ours=whole_s,
            baseline=MOST_S,
            most=1.0,
            unit="CPU s",
            against="the target",
        )
    )
    report(
        Claim(
            f"{COMPARED:,} calls on 64 models",
            ours=least_cpu_s(COMPARED, 64) / COMPARED * 1e6,
            baseline=least_cpu_s(COMPARED, 1) / COMPARED * 1e6,
            most=MOST_BY_MODELS,
            unit="CPU us each",
            against="the same on one model",
        )
    )


if __name__ == "__main__":
    main()
