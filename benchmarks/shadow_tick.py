"""A tick of `windtunnel shadow` for 64 servers and ten minutes ahead: at most 1 s of CPU time."""

import msgspec

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.analysis.shadow.window import Present
from windtunnel.core.random import Stream
from windtunnel.search.forecast import Forecaster
from windtunnel.workload.traces.record import TraceRequest

SERVERS, RATE_PER_S, PAST_S, MOST_S = 64, 64.0, 300.0, 1.0
SCENARIO = f"""\
name: tick
workload:
  - name: none
    count: 1
    arrivals: {{process: poisson, rate: 1/s}}
    prompt_tokens: 1
    output_tokens: 1
serving:
  pools:
    - name: main
      replicas: {SERVERS}
      engine: {{kv_blocks: 20000, max_num_seqs: 64}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 40us, per_decode: 150us}}
  router: {{policy: least-loaded}}
"""


def present() -> Present:
    """Five minutes of traffic, with the requests in flight at the end."""
    stream = Stream(1, "benchmark.shadow")
    time_s = 0.0
    ended: list[TraceRequest] = []
    flying: list[TraceRequest] = []
    while time_s < PAST_S:
        time_s += stream.exponential(1.0 / RATE_PER_S)
        output = 1 + int(stream.exponential(150.0))
        one = TraceRequest(
            time_s,
            1 + int(stream.exponential(400.0)),
            output,
            id=str(len(ended) + len(flying)),
            ttft_s=0.05,
            e2e_s=0.05 + 0.012 * output,
        )
        if time_s + 0.05 + 0.012 * output <= PAST_S:
            ended.append(one)
        else:
            flying.append(msgspec.structs.replace(one, output_tokens=0, ttft_s=None, e2e_s=None))
    return Present(PAST_S, ended, flying, SERVERS)


def main() -> None:
    insist_on_compiled()
    spans_s = {"1m": 60.0, "5m": 300.0, "10m": 600.0}
    forecaster = Forecaster(SCENARIO, "tick.yaml", spans_s, PAST_S)
    known = present()
    report(
        Claim(
            f"shadow: a tick of {SERVERS} servers at {RATE_PER_S:.0f} requests/s, 10 minutes ahead",
            ours=least_cpu_s(lambda: forecaster.forecast(known)),
            baseline=MOST_S,
            most=1.0,
            unit="CPU s",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()
