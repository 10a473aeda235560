"""Request admission through asyncio: a call that need not wait, and a thousand that must.

A stall is the CPU time between two heartbeats on the same loop: on a shared machine, wall time
would mostly show other programs.
"""

import asyncio

from benchmarks.claim import Claim, report
from windtunnel.admission.reasons import Domain
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.core.clock import cpu_s
from windtunnel.core.random import Streams
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter

CALLS = 50_000
REPEATS = 3
WAITERS = 1000
AT_ONCE = 20
PARKED_S = 2.0
BEAT_S = 0.001
ASK = RequestAsk("p", "m", Domain.CHAT)


def limiter(cap: int) -> AsyncLimiter:
    made = AsyncLimiter(RequestAdmission("bench", Streams(1), AimdSettings(startup_ramp_s=0.0)))
    made.register("p", "m", "alias", cap)
    return made


async def uncontended() -> float:
    """CPU seconds of one caller's calls, one after another."""
    front = limiter(32)
    start = cpu_s()
    for _ in range(CALLS):
        async with front.acquire(ASK):
            pass
    return cpu_s() - start


async def call(front: AsyncLimiter) -> None:
    async with front.acquire(ASK):
        pass


async def park(front: AsyncLimiter) -> list["asyncio.Task[None]"]:
    waiters: list[asyncio.Task[None]] = []
    while len(waiters) < WAITERS:
        waiters += [asyncio.create_task(call(front)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
    return waiters


async def parked() -> float:
    """CPU seconds that many waiters cost while nothing happens."""
    front = limiter(1)
    async with front.acquire(ASK):
        waiters = await park(front)
        start = cpu_s()
        await asyncio.sleep(PARKED_S)
        used_s = cpu_s() - start
    await asyncio.gather(*waiters)
    return used_s


async def longest_stall() -> float:
    """The longest CPU burst of the loop while many calls arrive, wait and are served in turn."""
    front, longest_s = limiter(1), 0.0

    async def heart() -> None:
        nonlocal longest_s
        while True:
            start = cpu_s()
            await asyncio.sleep(BEAT_S)
            longest_s = max(longest_s, cpu_s() - start)

    beating = asyncio.create_task(heart())
    async with front.acquire(ASK):
        waiters = await park(front)
        await asyncio.sleep(PARKED_S)
    await asyncio.gather(*waiters)
    beating.cancel()
    return longest_s


def main() -> None:
    claims = (
        (f"acquire and release through asyncio, {CALLS:,} calls", uncontended, CALLS / 1e6, 8.0),
        (f"{WAITERS:,} waiters parked for {PARKED_S:g} s", parked, PARKED_S / 100, 1.0),
        (f"longest stall of the loop, {WAITERS:,} waiters", longest_stall, 1e-3, 5.0),
    )
    units = ("CPU us", "% of a core", "CPU ms")
    for (name, measure, unit_s, most), unit in zip(claims, units, strict=True):
        least_s = min(asyncio.run(measure()) for _ in range(REPEATS))
        report(
            Claim(
                name,
                ours=least_s / unit_s,
                baseline=most,
                most=1.0,
                unit=unit,
                against="the target",
            )
        )


if __name__ == "__main__":
    main()
