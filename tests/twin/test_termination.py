"""A run without a duration ends when its requests do, and loses none, whatever is switched on."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.sinks import MemorySink
from tests.twin.scaled import Script, scaled
from windtunnel.core.telemetry import Event
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

SCENARIO = """\
name: any
seed: {seed}
workload:
  - name: chat
    slo: critical
    count: {count}
    arrivals: {{process: poisson, rate: 20/s}}
    prompt_tokens: {{distribution: uniform, min: 4, max: 60}}
    output_tokens: {{distribution: uniform, min: 1, max: 40}}
    prefix: {{tokens: 32, groups: 2}}
{chat}
  - name: night
    slo: batch
    count: 5
    arrivals: {{process: poisson, rate: 30/s}}
    prompt_tokens: 20
    output_tokens: 25
{night}
serving:
  pools:
{pools}
  router: {{policy: {router}}}
  admission: {admission}
{disaggregation}
  startup: {{load: {{mean: {load}, stddev: {spread}}}}}
  drain: {{policy: {drain}}}
scaling:
  {policy}
  interval: {interval}
  scrape_delay: {scrape}
  actuation_delay: {{mean: {act}, stddev: {act}}}
  pools: {{{bounds}}}
"""

POOL = """\
    - name: {name}
      role: {role}
      replicas: {replicas}
      engine: {{kv_blocks: 12, max_num_seqs: 3, async_scheduling: {overlapped},
               scheduling: {scheduling}{offload}}}
      step_time: {{model: linear, fixed: 5ms, per_prefill_token: 200us, per_decode: 1ms}}
      overheads: {{queueing: {queueing}}}
"""

FLEETS = (
    (("main", "both"),),
    (("main", "both"), ("spare", "both")),
    (("head", "prefill"), ("tail", "decode")),
    (("head", "prefill"), ("main", "both"), ("tail", "decode")),
)

GATEWAYS = (
    "{policy: always}",
    "{policy: tier-shed, threshold: 3, min_priority: 4}",
    "{policy: saturation}",
    "{policy: token-bucket, capacity: 400, refill: 400/s}",
    "{policy: flow-control, detector: {kind: concurrency, max_per_server: 2}, max_waiting: 6,"
    " eviction: true}",
    "{policy: flow-control, detector: {kind: utilization}, ttl: 2s, order: fifo}",
    "{policy: flow-control, detector: {kind: utilization}, shedding: true, max_waiting: 4}",
)

ROUTERS = (
    "round-robin",
    "least-loaded",
    "weighted, counterfactual: 1",
    "session-sticky",
    "consistent-hash",
    "weighted, scorers: {prefix-affinity: 1, least-latency: 1, no-hit-lru: 1}",
)


WAITING = "metrics: {num_requests_waiting: 2}"
LISTED = "metrics: [{name: num_requests_waiting, target: 2}]"
QUICK = "stabilization: {down: 200ms}"
POLICIES = (
    ("saturation", QUICK, "zero_after: 300ms"),
    ("wva", QUICK),
    ("wva-v1", QUICK),
    ("blis",),
    ("predictive",),
    ("kthena-homogeneous", WAITING, "behavior: {down: {window: 200ms}}"),
    ("kthena-heterogeneous", WAITING, "behavior: {down: {window: 200ms}}"),
    ("kthena-disaggregated", WAITING, "behavior: {down: {window: 200ms}}"),
    ("hpa", LISTED, "down: {window: 200ms}"),
    ("keda", LISTED, "down: {window: 200ms}", "cooldown: 300ms"),
    ("knative", "target: 2"),
    ("aibrix", WAITING, "down_cooldown: 200ms"),
    ("dynamo", "adjustment: 700ms", "least: 0"),
)


def draw_case(draw: st.DrawFn, policy: str) -> tuple[str, list[str]]:
    """A scenario and the names of its pools."""

    def pick(*of: Any) -> Any:
        return draw(st.sampled_from(of))

    fleet = pick(*FLEETS)
    names = [name for name, _ in fleet]
    pools = "".join(
        POOL.format(
            name=name,
            role=role,
            replicas=pick(0, 1, 2),
            overlapped=pick("true", "false"),
            scheduling=pick("fcfs", "priority"),
            queueing=pick("0s", "0s", "30ms"),
            offload=pick(
                "",
                "",
                ", kv_bytes_per_token: 1kB, offload: [{tier: cpu, size: 400kB, bandwidth: 1MB/s}]",
            ),
        )
        for name, role in fleet
    )
    split = len(fleet) > 1 and "head" in names
    text = SCENARIO.format(
        policy=policy,
        seed=draw(st.integers(0, 9)),
        count=pick(1, 6, 12),
        chat=pick("", "    session: {turns: 3, think: 200ms}", "    timeout: 400ms"),
        night=pick("", "    timeout: 3s"),
        pools=pools,
        router=pick(*ROUTERS),
        admission=pick(*GATEWAYS),
        disaggregation="  disaggregation: {decider: always,"
        " transfer: {bandwidth: 300kB/s, latency: 1ms, bytes_per_token: 1kB}}"
        if split
        else "",
        load=pick("0s", "50ms", "1s"),
        spread=pick("0s", "1s"),
        drain=pick("wait", "redirect", "immediate"),
        interval=pick("30ms", "100ms", "700ms"),
        scrape=pick("0s", "40ms"),
        act=pick("0s", "0s", "200ms"),
        bounds=", ".join(f"{name}: {{min: 0, max: 4}}" for name in names),
    )
    return text, names


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Script]:
    text, names = draw_case(draw, "policy: saturation")
    sizes = st.fixed_dictionaries({name: st.integers(0, 3) for name in names})
    lines = draw(st.lists(sizes, max_size=12))
    return text, Script(*lines, dict.fromkeys(names, 1))


def check_counts(result: dict[str, Any], events: list[Event]) -> None:
    """Everybody who came is counted once, and whoever left has been heard of."""
    requests = result["requests"]
    left = sum(requests[name] for name in requests if name != "arrived")
    assert requests["arrived"] == left
    ended = sum(event.kind == "request.ended" for event in events)
    assert ended == left - requests["unfinished"]


@settings(max_examples=40)
@given(cases())
def test_every_run_ends_and_nobody_is_lost(case: tuple[str, Script]) -> None:
    text, script = case
    result, events = scaled(text, script)
    check_counts(result, events)
    assert result["requests"]["unfinished"] == 0
    # It ends with its last request, or with the step in which the last of them was given up.
    last_s = max(event.time for event in events if event.kind == "request.ended")
    assert result["simulated_seconds"] <= last_s + 0.1
    for name, pool in result["pools"].items():
        sizes = result["scaling"]["pools"][name]["sizes"]
        assert pool["replicas"]["started"] - pool["replicas"]["drained"] == (
            sizes[-1][2] + sizes[-1][3] + sizes[-1][4] - pool["replicas"]["initial"]
        )
        assert pool["ready_seconds"] <= pool["replica_seconds"] + 1e-9


@pytest.mark.parametrize("wake", ["true", "false"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy[0])
@settings(max_examples=2)
@given(data=st.data())
def test_every_policy_lets_a_run_end(
    policy: tuple[str, ...], wake: str, data: st.DataObject
) -> None:
    lines = (f"policy: {policy[0]}", *policy[1:], f"wake: {wake}")
    text, _ = data.draw(st.composite(draw_case)("\n  ".join(lines)))
    sink = MemorySink()
    result = run(load_text(text), events=sink).result
    check_counts(result, sink.events)
    if wake == "true":  # nobody waits for a server in vain
        assert result["requests"]["unfinished"] == 0


KEPT = sorted((Path(__file__).parent / "kept").glob("*.yaml"))


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_a_run_that_once_never_ended_ends(file: Path) -> None:
    """Both pools were scaled to zero while KV moved between them: no replica counted as at work."""
    result = run(load_text(file.read_text())).result
    assert result["requests"]["unfinished"] == 0
    assert result["simulated_seconds"] < 30.0
