"""Drives a case on asyncio with the same workers as live runs, woken by events, never polled.

The models are fakes that sleep. On a virtual loop this takes no time and is exact; on a real one it
shows the cost of scheduling itself.
"""

import asyncio

from benchmarks.idle.cases import PRESSURE, Case
from benchmarks.idle.meter import Ages, Measured, Meter
from benchmarks.idle.rig import PROVIDER, Column, Rig, columns_of
from windtunnel.admission.dataset.cells import DatasetCell
from windtunnel.admission.reasons import Outcome
from windtunnel.admission.tasks.admission import LLM_WAIT
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter
from windtunnel.live.admission.workers import CellWorkers

REFUSAL_S = 0.05
BARE_S = 0.4


class Drive:
    """One run of a case; create it on the loop that runs it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ages = Ages()
        self.rig = Rig(columns_of(case), case, self.ages)
        self.limiter = AsyncLimiter(self.rig.requests)
        # Another user's call fills a pressed model; without one, two models share the slots.
        self.cap = 1 if case.held_s else max(1, case.slots // 2)
        self.meter = Meter(self.rig.tasks.resource(LLM_WAIT))
        self.crew = CellWorkers(self.rig.scheduler, self.limiter, self._call)
        self.serving = {"a": 0, "z": 0}
        self.made = self.refused = self.failed = 0
        self.served_s = self.leased_wait_s = 0.0
        self.first_column = ""
        self.by_tenant: list[int] = []

    async def run(self) -> Measured:
        if self.case.shape == PRESSURE:
            for model in self.serving:
                self.limiter.register(PROVIDER, model, model, self.cap)
        async with asyncio.TaskGroup() as tasks:
            if self.case.held_s:
                tasks.create_task(self._somebody_else())
                await asyncio.sleep(0)
            if self.case.cancelled_s:
                tasks.create_task(self._cancel_all())
            await self.crew.run(_never_stalls)
        self.meter.look(self.limiter.now())
        return self._measured()

    async def _call(self, cell: DatasetCell) -> None:
        column = self.rig.columns[cell.column]
        scheduler = self.rig.scheduler
        self.first_column = self.first_column or column.name
        self.meter.look(self.limiter.now())
        try:
            outcome = await self._ask(column, cell)
        except asyncio.CancelledError:
            scheduler.put_back(cell, self.limiter.now())
            raise
        now = self.limiter.now()
        if outcome is Outcome.SUCCESS:
            self.served_s += column.service_s
            self.by_tenant.append(cell.row.seed.kind)
            scheduler.finished(cell, now)
        elif outcome is Outcome.RATE_LIMITED:
            self.refused += 1
            scheduler.rate_limited(cell, now)
        else:
            self.failed += 1
            scheduler.failed(cell, outcome.value, now)
        self.meter.look(now)

    async def _ask(self, column: Column, cell: DatasetCell) -> Outcome:
        if column.ask is None:
            self.rig.scheduler.began(cell, self.limiter.now())
            await asyncio.sleep(column.service_s)
            return Outcome.SUCCESS
        asked_s = self.limiter.now()
        async with self.limiter.acquire(column.ask) as held:
            self.leased_wait_s += self.limiter.now() - asked_s
            self.rig.scheduler.began(cell, self.limiter.now())
            outcome = await self._answer(column.ask.model, column.service_s)
            held.ended(outcome)
        return outcome

    async def _answer(self, model: str, service_s: float) -> Outcome:
        """The provider's answer to a call."""
        self.made += 1
        if self.case.serves and self.serving[model] >= self.case.serves:
            await asyncio.sleep(REFUSAL_S)
            return Outcome.RATE_LIMITED
        fails = self.case.fails_every and self.made % self.case.fails_every == 0
        self.serving[model] += 1
        try:
            await asyncio.sleep(service_s)
        finally:
            self.serving[model] -= 1
        return Outcome.PROVIDER_FAILURE if fails else Outcome.SUCCESS

    async def _somebody_else(self) -> None:
        ask = self.rig.columns[0].ask
        assert ask is not None
        async with self.limiter.acquire(ask):
            await asyncio.sleep(self.case.held_s)

    async def _cancel_all(self) -> None:
        await asyncio.sleep(self.case.cancelled_s)
        self.crew.abandon()

    def _measured(self) -> Measured:
        utilisation, idle, starved = self.meter.shares()
        wall_s = self.limiter.now()
        mean, p50, p95, most = self.ages.summary()
        half = self.by_tenant[: len(self.by_tenant) // 2]
        advisory = self.rig.advisory
        return Measured(
            wall_s=wall_s,
            generations=self.case.generations,
            slots=self.case.slots,
            utilisation=utilisation,
            effective=self.served_s / (self.case.slots * wall_s),
            idle=idle,
            starved=starved,
            horizon=idle - starved,
            burstiness=self.meter.burstiness(),
            queue_age_s_mean=mean,
            queue_age_s_p50=p50,
            queue_age_s_p95=p95,
            queue_age_s_max=most,
            leased_wait_s=self.leased_wait_s,
            in_flight_most=self.meter.in_flight_most,
            target_most=self.rig.row_groups.peak_target,
            skips=advisory.skips if advisory is not None else 0,
            refused=self.refused,
            failed=self.failed,
            first_column=self.first_column,
            left_over=self.rig.left_over(),
            half_time_shares=tuple(
                half.count(tenant) / len(half) for tenant in range(len(self.case.tenants))
            ),
        )


def _never_stalls() -> None:
    raise AssertionError("some calls succeed in every case")


async def measure(case: Case) -> Measured:
    return await Drive(case).run()


async def bare_effective(case: Case) -> float:
    """Effective use if the slots' calls follow each other without any scheduling.

    This is the limit of the clock itself: late timers are not a scheduler's fault.
    """
    pairs = max(1, round(BARE_S / (case.slow_s + case.quick_s)))

    async def sleeper() -> None:
        for _ in range(pairs):
            await asyncio.sleep(case.slow_s)
            await asyncio.sleep(case.quick_s)

    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await asyncio.gather(*(sleeper() for _ in range(case.slots)))
    return pairs * (case.slow_s + case.quick_s) / (loop.time() - start_s)
