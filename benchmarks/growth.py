"""How CPU time grows with requests, servers, pods and machines: four sizes each, log-log slopes.

`--largest` runs 10,000,000 requests on 1,000 servers instead, and prints the memory used.
"""

import math
import resource
import sys
from collections.abc import Callable

from benchmarks import large_gang, machines_growth
from benchmarks.claim import Claim, least_cpu_s, report
from benchmarks.routing_speed import WEIGHTED
from benchmarks.routing_speed import chat as aware
from benchmarks.serving import chat
from windtunnel.core.clock import cpu_s
from windtunnel.twin.run import simulate

LARGEST_REQUESTS, LARGEST_SERVERS = 10_000_000, 1_000
PER_SIZE = 20_000
"""Requests of a run, for each number of servers."""


def _requests(size: int) -> float:
    plan = chat(size)
    return least_cpu_s(lambda: simulate(plan), 2)


def _servers(size: int) -> float:
    plan = aware(size, requests=PER_SIZE)
    return least_cpu_s(lambda: simulate(plan), 2)


def _pods(size: int) -> float:
    return least_cpu_s(lambda: large_gang.run(size), 2)


def _machines(size: int) -> float:
    return machines_growth.cpu_s_of(size)


GROWTH: dict[str, tuple[Callable[[int], float], tuple[int, ...], float]] = {
    "requests, on 16 servers": (_requests, (10_000, 30_000, 100_000, 300_000), 1.1),
    f"servers, weighted routing of {PER_SIZE:,} requests": (_servers, (4, 16, 64, 256), 0.3),
    "pods of one gang": (_pods, (240, 1_000, 4_000, 16_000), 1.1),
    "machines with a server each": (_machines, machines_growth.SIZES, 1.2),
}
"""By what grows: the measurement, the sizes, and the largest acceptable slope."""


def slope_of(sizes: tuple[int, ...], took_s: list[float]) -> float:
    """The exponent of growth: the slope of a least-squares line through logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(one) for one in took_s]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / across


def largest() -> None:
    """One process, no folder: only what the figures need is kept of a request."""
    plan = aware(LARGEST_SERVERS, WEIGHTED, LARGEST_REQUESTS)
    start_s = cpu_s()
    completed = simulate(plan)["requests"]["completed"]
    took_s = cpu_s() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{completed:,} requests on {LARGEST_SERVERS:,} servers: {took_s:,.0f} CPU s, ", end="")
    print(f"{1e6 * took_s / completed:.1f} us each, at most {peak_bytes / 2**20:,.0f} MiB")


def main(wanted: list[str]) -> None:
    if wanted == ["--largest"]:
        largest()
        return
    for name, (measured, sizes, most) in GROWTH.items():
        if wanted and name.split(",")[0].split()[0] not in wanted:
            continue
        took_s = [measured(size) for size in sizes]
        shown = ", ".join(f"{size:,}: {one:.3f} s" for size, one in zip(sizes, took_s, strict=True))
        print(f"  {name}: {shown}", flush=True)
        report(
            Claim(
                f"growth with {name}: log-log slope of CPU time",
                ours=slope_of(sizes, took_s),
                baseline=1.0,
                most=most,
                unit="",
                against="linear",
            )
        )


if __name__ == "__main__":
    main(sys.argv[1:])
