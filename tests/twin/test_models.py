"""Several models and clusters in one run: who serves whom, and what is said of each."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.runs import run
from tests.twin.scaled import Script, scaled
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run as run_plan
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request

SMALL, LARGE = "llama-3.1-8b", "llama-3.1-70b"

HEAD = """\
name: two
seed: {seed}
model: llama-3.1-8b
slo:
  critical: {{ttft: 100ms}}
"""

CHAT = """\
  - name: chat
    slo: critical
    tenant: acme
    count: 30
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: {distribution: lognormal, mean: 60, cv: 1, max: 400}
    output_tokens: {distribution: uniform, min: 1, max: 30}
    prefix: {tokens: 40, groups: 3}
    timeout: 2s
"""

CODE = """\
  - name: code
    model: llama-3.1-70b
    tenant: acme
    count: 12
    arrivals: {process: gamma, rate: 30/s, cv: 2}
    prompt_tokens: {distribution: exponential, mean: 200, max: 900}
    output_tokens: 12
    session: {turns: 2, think: 50ms}
"""

SMALL_POOL = """\
    - name: small
      replicas: 2
      engine: {kv_blocks: 60, max_num_seqs: 8}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}
"""

LARGE_POOL = """\
    - name: large
      model: llama-3.1-70b
      replicas: 2
      engine: {kv_blocks: 200, max_num_seqs: 8}
      step_time: {model: linear, fixed: 12ms, per_prefill_token: 50us, per_decode: 300us}
"""

ROUTERS = (
    "{policy: round-robin}",
    "{policy: random}",
    "{policy: least-loaded}",
    "{policy: power-of-two}",
    "{policy: session-sticky}",
    "{policy: weighted, scorers: {prefix-cache: 2, queue-depth: 1, prefix-affinity: 1}}",
    "{policy: weighted, counterfactual: 2}",
)
HASHING = "{policy: consistent-hash}"  # of numbers that a run of several models counts otherwise

DOORS = (
    "{policy: always}",
    "{policy: token-bucket, capacity: 4000, refill: 3000}",
    "{policy: tier-shed, threshold: 4, min_priority: 4}",
    "{policy: always, budgets: {acme: 0.3}, over_budget: reject-all}",
    "{policy: flow-control, detector: {kind: concurrency, max_per_server: 3}}",
    "{policy: flow-control, detector: {kind: utilization, queue_depth: 2}}",
)


def text(*parts: str, seed: int = 0, router: str = ROUTERS[0], door: str = DOORS[0]) -> str:
    """A scenario of some of the parts: sources are indented less than pools."""
    sources = "".join(part for part in parts if part.startswith("  - "))
    pools = "".join(part for part in parts if part.startswith("    - "))
    return (
        HEAD.format(seed=seed)
        + f"workload:\n{sources}serving:\n  router: {router}\n  admission: {door}\n"
        + f"  pools:\n{pools}"
    )


class Rows:
    """Keeps what became of each request, without its numbers of servers."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        for request, outcome in zip(requests, outcomes, strict=True):
            pool = replica = None
            if request.server >= 0:
                pool = names.owners.pool_names[request.server]
                replica = names.owners.numbers[request.server]
            times = (request.arrived_s, request.admitted_s, request.scheduled_s)
            ends = (request.first_token_s, request.finished_s, request.preemptions)
            tokens = (int(request.prompt_tokens), int(request.prefix_hit_tokens))
            name = names.sources[request.source]
            self.rows.append((name, *times, *ends, *tokens, outcome, pool, replica))

    def of(self, source: str) -> list[tuple[Any, ...]]:
        return sorted(row for row in self.rows if row[0] == source)


def rows(scenario: str, *sets: str, check: bool = False) -> Rows:
    sink = Rows()
    run_plan(load_text(scenario, sets=sets), rows=sink, check=check)
    return sink


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), router=st.sampled_from(ROUTERS), door=st.sampled_from(DOORS))
def test_models_that_share_nothing_go_as_if_each_were_alone(
    seed: int, router: str, door: str
) -> None:
    shared = {"seed": seed, "router": router, "door": door}
    both = rows(text(CHAT, CODE, SMALL_POOL, LARGE_POOL, **shared), check=True)  # type: ignore[arg-type]
    alone = rows(text(CHAT, SMALL_POOL, **shared))  # type: ignore[arg-type]
    assert both.of("chat") == alone.of("chat")
    # A model other than the scenario's draws for its router from a stream of its own name.
    others = rows(text(CODE, LARGE_POOL, **shared), "model=null")  # type: ignore[arg-type]
    assert both.of("code") == others.of("code")
    assert {row[-2] for row in both.of("chat")} <= {"small", None}
    assert {row[-2] for row in both.of("code")} <= {"large", None}


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1000),
    router=st.sampled_from([*ROUTERS, HASHING]),
    sizes=st.lists(
        st.fixed_dictionaries({"small": st.integers(0, 3), "large": st.integers(0, 3)}),
        min_size=1,
        max_size=6,
    ),
    drain=st.sampled_from(["wait", "redirect", "immediate"]),
)
def test_servers_that_come_and_go_get_requests_of_their_model_alone(
    seed: int, router: str, sizes: list[dict[str, int]], drain: str
) -> None:
    scenario = text(CHAT, CODE, SMALL_POOL, LARGE_POOL, seed=seed, router=router)
    scaling = "  startup: {load: {mean: 200ms}}\nscaling: {policy: saturation, interval: 200ms}\n"
    script = Script(*sizes, {"small": 1, "large": 1})
    zero = [f"scaling.pools.{name}.min=0" for name in ("small", "large")]
    result, _ = scaled(scenario + scaling, script, f"serving.drain.policy={drain}", *zero)
    served = {name: model["requests"]["arrived"] for name, model in result["models"].items()}
    assert served == {SMALL: 30, LARGE: result["sources"]["code"]["requests"]}
    answered = dict.fromkeys(("small", "large"), 0)
    for server in result["servers"]:
        answered[server["pool"]] += server["output_tokens"]
    written = [model["tokens"]["output"] for model in result["models"].values()]
    assert list(answered.values()) == written


def test_every_model_has_the_figures_that_the_whole_has() -> None:
    result = run(text(CHAT, CODE, SMALL_POOL, LARGE_POOL))
    models = result["models"]
    assert list(models) == [SMALL, LARGE]
    for key in ("arrived", "completed", "timed_out", "unfinished"):
        assert sum(one["requests"][key] for one in models.values()) == result["requests"][key]
    for key in ("prompt", "output", "prefix_hit"):
        assert sum(one["tokens"][key] for one in models.values()) == result["tokens"][key]
    alone = run(text(CHAT, SMALL_POOL))
    assert alone["models"] is None  # there is nothing to tell apart
    assert models[SMALL]["requests"] == alone["requests"]
    assert models[SMALL]["tokens"] == alone["tokens"]
    for name, times in models[SMALL]["latency"].items():
        assert times == alone["latency"][name], name
    assert result["pools"]["large"]["model"] == LARGE
    assert models[LARGE]["pools"] == ["large"]


def test_what_each_model_costs() -> None:
    prices = ["serving.pools.0.price_per_hour=1", "serving.pools.1.price_per_hour=3"]
    result = run(text(CHAT, CODE, SMALL_POOL, LARGE_POOL), *prices)
    costs = {name: model["cost"]["total"] for name, model in result["models"].items()}
    assert costs[LARGE] == pytest.approx(3 * costs[SMALL])
    assert sum(costs.values()) == pytest.approx(result["cost"]["total"])


def test_who_has_no_server_waits_for_one_of_its_own_model() -> None:
    """The large model starts from nothing, while servers of the other are free."""
    scenario = text(CHAT, CODE, SMALL_POOL, LARGE_POOL)
    scaling = "  startup: {load: {mean: 1s}}\nscaling: {policy: saturation, interval: 500ms}\n"
    sets = ("serving.pools.1.replicas=0", "scaling.pools.large.min=0")
    script = Script({"large": 1})
    result, events = scaled(scenario + scaling, script, *sets)
    assert result["requests"]["completed"] == 54
    ready = next(
        event.time
        for event in events
        if event.kind == "replica.ready" and event.data["pool"] == "large"
    )
    assert ready == 1.5
    assert result["models"][LARGE]["latency"]["queue"]["max"] > 1.0
    assert result["models"][SMALL]["latency"]["queue"]["max"] < 0.5


def test_an_autoscaler_sees_each_model_with_its_own_traffic_and_promise() -> None:
    scenario = text(CHAT, CODE, SMALL_POOL, LARGE_POOL)
    script = Script({})
    scaled(scenario + "scaling: {policy: saturation, interval: 500ms}\n", script)
    first = script.seen[0]
    assert [model.name for model in first.models] == [SMALL, LARGE]
    assert [[one.name for one in model.variants] for model in first.models] == [
        ["small"],
        ["large"],
    ]
    assert first.models[0].objective.ttft_s == 0.1
    assert first.models[1].objective.ttft_s == 0.0  # code is of a class without targets
    alone = Script({})
    scaled(text(CHAT, SMALL_POOL) + "scaling: {policy: saturation, interval: 500ms}\n", alone)
    for both, one in zip(script.seen, alone.seen, strict=False):
        mine, only = both.models[0].flow, one.models[0].flow
        assert (mine.arrived, mine.completed, mine.latencies.ttft_s) == pytest.approx(
            (only.arrived, only.completed, only.latencies.ttft_s)
        )


def test_only_the_busy_model_grows() -> None:
    scenario = text(CHAT, CODE, SMALL_POOL, LARGE_POOL) + "scaling: {policy: hpa, interval: 1s}\n"
    sets = (
        "workload.0.count=400",
        "workload.1.count=2",
        'scaling.metrics=[{"name": "running", "target": 2}]',
        "serving.pools.1.replicas=1",
    )
    pools = run(scenario, *sets)["pools"]
    assert pools["small"]["replicas"]["most"] > 2
    assert pools["large"]["replicas"]["most"] == 1


SPLIT_POOLS = """\
    - name: small-prompts
      role: prefill
      engine: {kv_blocks: 200}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us}
    - name: small-answers
      role: decode
      engine: {kv_blocks: 200}
      step_time: {model: linear, fixed: 5ms, per_decode: 100us, per_prefill_token: 20us}
"""


def test_a_model_is_split_and_another_is_not() -> None:
    both = rows(text(CHAT, CODE, SPLIT_POOLS, LARGE_POOL))
    assert both.of("chat") == rows(text(CHAT, SPLIT_POOLS)).of("chat")
    result = run(text(CHAT, CODE, SPLIT_POOLS, LARGE_POOL))
    assert 0 < result["disaggregation"]["split"] <= 30
    kv_bytes = 131072  # of a token of the small model
    moved = result["disaggregation"]
    assert moved["moved_bytes"] == moved["moved_tokens"] * kv_bytes


def test_a_prompt_is_computed_in_the_cluster_where_it_is_answered() -> None:
    east = SPLIT_POOLS.replace("small-", "east-").replace(
        "      engine", "      cluster: east\n      engine"
    )
    places: list[tuple[int, int]] = []

    class Pairs(Rows):
        def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
            clusters = ["main", "main", "east", "east"]
            for one in requests:
                if one.prefill_server >= 0:
                    pools = names.owners.pools
                    prompt, answer = pools[one.prefill_server], pools[one.server]
                    assert clusters[prompt] == clusters[answer]
                    places.append((prompt, answer))

    run_plan(load_text(text(CHAT, SPLIT_POOLS, east)), rows=Pairs(), check=True)
    assert set(places) == {(0, 1), (2, 3)}


def test_a_cluster_that_is_far_costs_its_latency_both_ways() -> None:
    slow = SMALL_POOL.replace("    - name: small\n", "    - name: small\n      cluster: east\n")
    near, far = (run(text(CHAT, pool), "workload.0.timeout=null") for pool in (SMALL_POOL, slow))
    assert near["latency"] == far["latency"]  # of which nobody said that it is far
    assert far["pools"]["small"]["cluster"] == "east"
    away = run(text(CHAT, slow), "workload.0.timeout=null", "serving.clusters.east.latency=30ms")
    # Everything happens 30 ms later there, in the same order, and takes 30 ms to come back.
    for name in ("mean", "p50", "p99", "max"):
        near_s, away_s = near["latency"]["ttft"][name], away["latency"]["ttft"][name]
        assert away_s == pytest.approx(near_s + 0.06, abs=0.006)
    assert away["latency"]["tpot"]["mean"] == pytest.approx(
        near["latency"]["tpot"]["mean"], rel=0.05
    )


def test_a_trace_has_its_own_names_for_models(tmp_path: Any) -> None:
    trace = tmp_path / "calls.csv"
    lines = ["arrived,prompt_tokens,output_tokens,model"]
    names = ("gpt-4", "gpt-3.5", "", "other")
    lines += [f"{number / 10},50,5,{names[number % 4]}" for number in range(20)]
    trace.write_text("\n".join(lines) + "\n")
    source = f"  - trace: {{path: {trace}, format: csv, models: {{gpt-4: {LARGE}}}}}\n"
    result = run(text(source, SMALL_POOL, LARGE_POOL))
    arrived = {name: one["requests"]["arrived"] for name, one in result["models"].items()}
    assert arrived == {SMALL: 15, LARGE: 5}
