"""A sweep of 64 points on two processors against one, and Ray against our own processes.

A second processor reduces wall time, but on a busy machine wall time says little: the load is
printed beside it, and half the CPU time of all processes together shows what a quiet machine would
take if both were busy to the end. Process starts count. Against Ray both are warm: it takes seconds
to start, once.
"""

import importlib.util
import os
import resource
import sys

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.core.clock import monotonic_s
from windtunnel.core.system.processes import processors
from windtunnel.search.execution.workers import LOCAL, MeasuredRun, Workers
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

POINTS = 64
POINT_S = 0.2
TRIES = 3
SCENARIO = """\
name: sweep
workload:
  - name: chat
    count: {count}
    arrivals: {{process: poisson, rate: 40/s}}
    prompt_tokens: {{distribution: lognormal, mean: 900, cv: 1, max: 8000}}
    output_tokens: {{distribution: lognormal, mean: 200, cv: 1, max: 2000}}
serving:
  router: {{policy: least-loaded}}
  pools:
    - name: main
      replicas: 4
      engine: {{kv_blocks: 12000}}
      step_time: {{model: linear, fixed: 6ms, per_prefill_token: 20us, per_decode: 60us}}
"""


def plans() -> list[ScenarioPlan]:
    """Runs of about 200 ms of CPU time each, in any form and on any machine."""
    first = load_text(SCENARIO.format(count=2000))
    count = int(2000 * POINT_S / least_cpu_s(lambda: run(first)))
    plan = load_text(SCENARIO.format(count=count))
    return [plan.changed(seed=seed) for seed in range(POINTS)]


def wall_s(work: list[ScenarioPlan], on: str, jobs: int, *, warm: bool) -> float:
    """Wall seconds of a sweep; for a warm one, without the start of its workers."""
    started_s = monotonic_s()
    with Workers(on=on, jobs=jobs) as workers:
        if warm:
            assert len(list(workers.evaluate(work[: 4 * jobs]))) == 4 * jobs
            started_s = monotonic_s()
        outcomes = dict(workers.evaluate(work))
        took_s = monotonic_s() - started_s
    assert all(isinstance(outcomes[number], MeasuredRun) for number in range(len(work)))
    return took_s


def all_cpu_s(work: list[ScenarioPlan], jobs: int) -> float:
    """CPU seconds of a sweep, in this process and those that it started."""

    def used_s() -> float:
        all_s = 0.0
        for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            used = resource.getrusage(whose)
            all_s += used.ru_utime + used.ru_stime
        return all_s

    before_s = used_s()
    wall_s(work, LOCAL, jobs, warm=False)
    return used_s() - before_s


def main() -> None:
    if processors() < 2:
        print("skipped: there is one processor here")
        sys.exit(0)
    work = plans()
    costs = [(all_cpu_s(work, 2) / 2, all_cpu_s(work, 1)) for _ in range(TRIES)]
    report(
        Claim(
            f"sweep of {POINTS} points on two processors: CPU time for each",
            ours=min(two for two, _ in costs),
            baseline=min(one for _, one in costs),
            most=1.0 / 1.85,
            unit="CPU s",
            against="on one",
        )
    )
    load = os.getloadavg()[0]
    pairs = [
        (wall_s(work, LOCAL, 2, warm=False), wall_s(work, LOCAL, 1, warm=False))
        for _ in range(TRIES)
    ]
    report(
        Claim(
            f"the same in wall time, at a load of {load:.0f}",
            ours=min(two for two, _ in pairs),
            baseline=min(one for _, one in pairs),
            most=1.0 / 1.95,
            unit="s",
            against="on one",
        )
    )
    if importlib.util.find_spec("ray") is None:
        print("skipped: Ray is not installed")
        return
    load = os.getloadavg()[0]
    pairs = [
        (wall_s(work, "ray", 2, warm=True), wall_s(work, LOCAL, 2, warm=True)) for _ in range(TRIES)
    ]
    report(
        Claim(
            f"the same on Ray with two workers, warm, at a load of {load:.0f}",
            ours=min(there for there, _ in pairs),
            baseline=min(here for _, here in pairs),
            most=1.1,
            unit="s",
            against="processes of our own",
        )
    )


if __name__ == "__main__":
    main()
