"""`windtunnel check` of a day of 50 requests/s: at most two minutes on two cores.

One hour of it is checked in one process. Both sides run in parallel on two cores, so a day takes 24
times half the CPU time of the runs, plus 24 times that of the comparison, which is not parallel.
"""

import tempfile
from pathlib import Path

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.core.clock import cpu_s
from windtunnel.core.random import Stream
from windtunnel.search.check.check import CheckAsk, check
from windtunnel.search.check.observation import observe
from windtunnel.search.check.sides import CheckInput
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.writing import write_trace

RATE_PER_S, HOUR_S, HOURS, MOST_S = 50.0, 3600.0, 24.0, 120.0
SCENARIO = """\
name: check
workload: [{trace: {path: hour.jsonl}}]
slo:
  standard: {ttft: 1s, tpot: 60ms}
serving:
  pools:
    - name: main
      replicas: 16
      price_per_hour: 3
      engine: {kv_blocks: 20000, max_num_seqs: 64}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 40us, per_decode: 150us}
  router: {policy: POLICY}
"""


def requests() -> list[TraceRequest]:
    stream = Stream(1, "benchmark.check")
    time_s, found = 0.0, []
    while time_s < HOUR_S:
        time_s += stream.exponential(1.0 / RATE_PER_S)
        tokens = 1 + int(stream.exponential(400.0)), 1 + int(stream.exponential(150.0))
        found.append(TraceRequest(time_s, *tokens))
    return found


def main() -> None:
    insist_on_compiled()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_trace(iter(requests()), folder / "hour.jsonl", "jsonl")
        files = [folder / "base.yaml", folder / "changed.yaml"]
        for file, policy in zip(files, ("round-robin", "least-loaded"), strict=True):
            file.write_text(SCENARIO.replace("POLICY", policy))
        plan = load(files[1])
        plain_s = least_cpu_s(lambda: run(plan), 2)
        observed_s = least_cpu_s(lambda: observe(plan), 2)
        report(
            Claim(
                "check: a run with what is kept of its requests and decisions",
                ours=observed_s,
                baseline=plain_s,
                most=1.5,
                unit="CPU s",
                against="the same run without",
            )
        )
        started_s = cpu_s()
        check(CheckInput(files), CheckAsk(jobs=1), lambda *_: None)
        whole_s = cpu_s() - started_s
        runs_s = 2.0 * observed_s
        day_s = HOURS * (runs_s / 2.0 + max(0.0, whole_s - runs_s))
        report(
            Claim(
                "check: a day of 50 requests/s on two cores, from an hour of it",
                ours=day_s,
                baseline=MOST_S,
                most=1.0,
                unit="s",
                against="the target",
            )
        )


if __name__ == "__main__":
    main()
