"""Forecasts on traces that the shadow was not built from: their error, and interval coverage.

The truth is a simulation with other seeds and other step times than the shadow's scenario: prefill
takes a tenth longer, decode a tenth less. Three kinds of traffic, three hours each.
"""

from benchmarks.claim import Claim, report
from windtunnel.analysis.shadow.window import FIGURES
from windtunnel.search.forecast import Forecaster, replayed, shadow_of
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request
from windtunnel.workload.traces.record import TraceRequest

TRUTH = """\
name: truth
duration: 3h
workload:
  - name: chat
    arrivals: {process: gamma, rate: RATE/s, cv: CV}
    rate_curve: CURVE
    prompt_tokens: {distribution: lognormal, mean: 400, cv: 1, max: 4000}
    output_tokens: {distribution: lognormal, mean: 120, cv: 1, max: 800}
serving:
  pools:
    - name: main
      replicas: 3
      engine: {kv_blocks: 4000, max_num_seqs: 32}
      step_time: {model: linear, fixed: 12ms, per_prefill_token: 60us, per_decode: 300us}
  router: {policy: least-loaded}
"""
TRAFFIC = {
    "steady": ("4", "1", "[[0h, 1], [3h, 1]]"),
    "a day in three hours": ("4", "1.5", "[[0h, 0.7], [1h, 1.2], [2h, 0.8], [3h, 1.1]]"),
    "bursts": ("3", "4", "[[0h, 1], [3h, 1]]"),
}
SPANS_S = {"1m": 60.0, "5m": 300.0}
PAST_S, TICK_S = 240.0, 60.0
MOST_ERROR, LEAST_COVERED, MOST_COVERED = 0.20, 0.85, 0.95


class Served:
    """The requests as a gateway would have recorded them."""

    def __init__(self) -> None:
        self.rows: list[TraceRequest] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:  # noqa: ARG002 - names of classes are not needed
        for one, outcome in zip(requests, outcomes, strict=True):
            if outcome == "completed":
                ttft_s, e2e_s = one.first_token_s - one.arrived_s, one.finished_s - one.arrived_s
                tokens = int(one.prompt_tokens), int(one.output_tokens)
                self.rows.append(TraceRequest(one.arrived_s, *tokens, ttft_s=ttft_s, e2e_s=e2e_s))


def main() -> None:
    covered = []
    for seed, (kind, (rate, cv, curve)) in enumerate(TRAFFIC.items(), start=101):
        text = TRUTH.replace("RATE", rate).replace("CV", cv).replace("CURVE", curve)
        served = Served()
        run(load_text(text, seed=seed), rows=served)
        served.rows.sort(key=lambda one: one.arrived_s)
        believed = text.replace("60us", "54us").replace("12ms", "13ms")
        shadow = shadow_of(Forecaster(believed, "believed.yaml", SPANS_S, PAST_S))
        found = replayed(served.rows, shadow, TICK_S)
        accuracy = found["accuracy"]
        report(
            Claim(
                f"shadow: median error of p95 TTFT of the next 5 minutes, {kind}, "
                f"{accuracy['5m']['ttft_p95']['measured']} forecasts, "
                f"{found['saturated_ticks']} of {found['ticks']} ticks saturated",
                ours=accuracy["5m"]["ttft_p95"]["median_error"],
                baseline=MOST_ERROR,
                most=1.0,
                unit="",
                against="the target",
            )
        )
        shares = {
            (span, name): accuracy[span][name]["covered"] for span in SPANS_S for name in FIGURES
        }
        covered += list(shares.values())
        for (span, name), share in shares.items():
            print(f"  next {span} {name}: {share:.1%} within 90 % intervals")
    mean = sum(covered) / len(covered)
    outside = sum(not LEAST_COVERED <= share <= MOST_COVERED for share in covered)
    middle = (LEAST_COVERED + MOST_COVERED) / 2.0
    report(
        Claim(
            f"shadow: what 90 % intervals cover, mean of {len(covered)} figures "
            f"({mean:.1%}; {outside} are outside 85 to 95 %), distance from {middle:.0%}",
            ours=abs(mean - middle),
            baseline=MOST_COVERED - middle,
            most=1.0,
            unit="",
            against="the target, 85 to 95 %",
        )
    )


if __name__ == "__main__":
    main()
