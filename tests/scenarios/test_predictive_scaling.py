"""The predictive policy in the twin: what it says a server carries, and what it saves."""

from pathlib import Path

import pytest

from windtunnel.scaling.policies.predictive.capacity import capacity_of
from windtunnel.scaling.policies.predictive.mix import RequestMix
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, Variant
from windtunnel.twin.run import run, simulate
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.twin.servers.observation import EngineTimes
from windtunnel.twin.servers.pools import limits_of, step_time_of

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAFFIC = """\
name: carried
seed: 3
duration: {minutes}m
workload:
  - name: chat
    slo: critical
    arrivals: {{process: poisson, rate: {rate}/s}}
    {curve}
    prompt_tokens: {{distribution: lognormal, mean: 600, cv: 0.8, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 200, cv: 0.7, min: 1, max: 2048}}
slo:
  critical: {{ttft: 1s, tpot: 40ms}}
serving:
  pools:
    - name: main
      replicas: 2
      price_per_hour: 3.6
      engine: {{max_num_seqs: 128, kv_blocks: 24000}}
      step_time: {{model: linear, fixed: 12ms, per_prefill_token: 80us, per_decode: 150us}}
  router: {{policy: least-loaded}}
  startup: {{load: {{mean: 60s, stddev: 5s}}}}
scaling: {scaling}
"""

RAMP = "rate_curve: [[0s, 1.0], [2m, 1.0], [6m, 6.0], [8m, 6.0], [9m, 2.0]]"
PREDICTIVE = "{policy: predictive, season: 0s, pools: {main: {min: 2, max: 12}}}"
HPA = "{policy: hpa, metrics: [{name: requests, target: 20}], pools: {main: {min: 2, max: 12}}}"


def carried() -> float:
    text = TRAFFIC.format(minutes=1, rate=1, curve="", scaling=PREDICTIVE)
    pool = load_text(text, "carried").pools[0]
    limits, model = limits_of(pool, None), step_time_of(pool, None)
    variant = Variant(
        "main",
        spec=ReplicaSpec(
            kv_tokens=float(limits.kv_blocks * limits.block_size),
            max_num_seqs=int(limits.max_num_seqs),
            max_num_batched_tokens=int(limits.max_num_batched_tokens),
            step_times=EngineTimes(model),
        ),
    )
    return capacity_of(variant, RequestMix(600.0, 200.0), Objective(1.0, 0.04), 2).rate


@pytest.mark.parametrize(("share", "kept"), [(0.9, True), (1.15, False)])
def test_servers_carry_what_the_policy_believes(share: float, kept: bool) -> None:
    fixed = "{policy: predictive, pools: {main: {min: 2, max: 2}}}"
    rate = 2 * share * carried()
    result = simulate(
        load_text(TRAFFIC.format(minutes=4, rate=rate, curve="", scaling=fixed), "carried")
    )
    assert (result["slo"]["critical"]["attained"] >= 0.95) is kept


def test_step_times_that_are_too_short_cost_little_attainment() -> None:
    text = TRAFFIC.format(minutes=12, rate=12, curve="", scaling=PREDICTIVE)
    slower = run(load_text(text, "slower"), step_scales={"main": 1.15}).result
    assert slower["slo"]["critical"]["attained"] >= 0.98
    assert slower["pools"]["main"]["replicas"]["most"] >= 3


def test_a_ramp_is_met_for_less_than_with_queues() -> None:
    ours, theirs = (
        simulate(load_text(TRAFFIC.format(minutes=11, rate=5, curve=RAMP, scaling=each), "ramp"))
        for each in (PREDICTIVE, HPA)
    )
    assert theirs["slo"]["critical"]["attained"] > 0.99
    assert ours["slo"]["critical"]["attained"] > 0.99
    assert ours["cost"]["total"] < 0.85 * theirs["cost"]["total"]
    assert ours["requests"]["arrived"] == theirs["requests"]["arrived"]


def test_its_defaults_keep_more_promises_for_less_on_the_example_of_a_spike() -> None:
    results = []
    for policy in ("predictive", "saturation"):
        sets = [f"scaling.policy={policy}"]
        if policy == "predictive":  # which knows itself how long to keep a server, and looks often
            sets += ["scaling.stabilization=null", "scaling.interval=2s"]
        results.append(simulate(load(EXAMPLES / "spike.yaml", sets=sets)))
    ours, theirs = results
    assert ours["slo"]["critical"]["attained"] > theirs["slo"]["critical"]["attained"] + 0.02
    assert ours["cost"]["total"] < theirs["cost"]["total"]
