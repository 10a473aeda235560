"""Gateways in a run: who is let in when, who is turned away or stopped, and that nobody is lost."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.sinks import MemorySink
from tests.twin.runs import BUSY, one_server, run
from windtunnel.twin import run as runs
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.compose import compose
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.request import Request

STEPS = """\
name: steps
workload:
{sources}
slo:
  critical: {{ttft: 100ms}}
serving:
  pools:
    - name: main
      replicas: {servers}
      engine: {{kv_blocks: 101, max_num_seqs: 4, async_scheduling: false}}
      step_time: {{model: linear, fixed: 10ms}}
      overheads: {{queueing: {queueing}}}
  admission: {admission}
"""
"""Every step takes 10 ms, so that a request of n tokens takes n of them once it runs."""

ONE_AT_A_TIME = "detector: {kind: concurrency, max_per_server: 1}"


def source(
    name: str, at_s: float, output: int, slo: str = "standard", count: int = 1, **more: Any
) -> str:
    """Requests at equal gaps; `at_s` is when the first comes, and the gap."""
    prompt = more.pop("prompt", 16)
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return (
        f"  - {{name: {name}, slo: {slo}, count: {count}, output_tokens: {output}, "
        f"arrivals: {{process: constant, rate: {1 / at_s!r}}}, "
        f"prompt_tokens: {prompt}{rest}}}"
    )


def steps(admission: str, *sources: str, servers: int = 1, queueing: str = "0s") -> str:
    return STEPS.format(
        sources="\n".join(sources), admission=admission, servers=servers, queueing=queueing
    )


class Rows:
    """Keeps every ended request with its outcome."""

    def __init__(self) -> None:
        self.rows: list[tuple[Request, str]] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self.rows += zip(requests, outcomes, strict=True)

    def of(self, number: int) -> tuple[Request, str]:
        """The request of a source; each has one."""
        return next(row for row in self.rows if row[0].source == number)


def rows_of(plan: ScenarioPlan) -> Rows:
    rows = Rows()
    runs.run(plan, rows=rows, check=True)
    return rows


POLICIES = {
    "always": "{policy: always, budgets: {acme: 0.1}}",
    "strict budgets": "{policy: always, budgets: {acme: 0.1}, over_budget: reject-all}",
    "token-bucket": "{policy: token-bucket, capacity: 900, refill: 4000/s}",
    "tier-shed": "{policy: tier-shed, threshold: 4}",
    "saturation": "{policy: saturation, queue_depth: 2}",
    "fifo": "{policy: flow-control, order: fifo, ttl: 500ms, max_waiting: 20}",
    "priority": "{policy: flow-control, limit: 0.5, eviction: true, weights: {acme: 3},"
    " detector: {kind: concurrency, max_per_server: 6}}",
    "slo-deadline": "{policy: flow-control, order: slo-deadline, max_waiting_per_band: 9}",
    "round-robin": "{policy: flow-control, order: round-robin, budgets: {acme: 0.3},"
    " detector: {kind: utilization, queue_depth: 1, interval: 200ms}}",
    "never": "{policy: flow-control, detector: {kind: never}}",
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_loses_nobody_and_says_why(name: str) -> None:
    result = run(BUSY, f"serving.admission={POLICIES[name]}", "workload.0.timeout=800ms")
    requests = dict(result["requests"])
    assert requests.pop("arrived") == sum(requests.values())
    gateway = result["gateway"]
    assert sum(gateway["decisions"]["admit"].values()) > 50
    told = Counter(gateway["decisions"]["reject"]) + Counter(gateway["decisions"]["evict"])
    assert told == result["reasons"]["rejected"]
    assert sum(told.values()) == requests["rejected"]


def test_where_everybody_is_let_in_there_is_no_gateway_and_nothing_is_paid() -> None:
    simulation = compose(load_text(BUSY))
    assert simulation.services[0].gateway is None
    assert run(BUSY)["gateway"] is None


@pytest.mark.parametrize(("name", "looks"), [("tier-shed", 0), ("priority", 0), ("saturation", 1)])
def test_servers_are_asked_only_for_a_gateway_that_looks(name: str, looks: int) -> None:
    simulation = compose(load_text(BUSY, sets=[f"serving.admission={POLICIES[name]}"]))
    simulation.run(runs.breathe)
    assert (simulation.cluster.rosters[0].signals.probes > 0) == bool(looks)


def test_waiting_at_the_gateway_is_part_of_queueing_and_of_ttft() -> None:
    """Three requests of 30 ms, 10 ms apart, one at a time: they wait 0, 20 and 40 ms."""
    text = steps(
        f"{{policy: flow-control, {ONE_AT_A_TIME}}}", source("chat", 0.010, output=3, count=3)
    )
    result = run(text)
    assert result["gateway"]["waiting_peak"] == 2
    assert result["latency"]["gateway"]["mean"] == pytest.approx(0.020)
    assert result["latency"]["gateway"]["max"] == pytest.approx(0.040)
    assert result["gateway"]["decisions"] == {
        "admit": {"room": 3},
        "queue": {"saturated": 2},
        "reject": {},
        "evict": {},
    }
    assert result["latency"]["queue"]["max"] == pytest.approx(0.040)
    assert result["latency"]["ttft"]["max"] == pytest.approx(0.050)


def test_no_place_is_left_empty_between_one_request_and_the_next() -> None:
    """Whoever waits is sent in the instant in which another ends, not at the next tick."""
    text = steps(
        f"{{policy: flow-control, {ONE_AT_A_TIME}}}", source("chat", 0.001, output=2, count=50)
    )
    assert run(text)["simulated_seconds"] == pytest.approx(0.001 + 50 * 0.020)


def test_a_token_bucket_turns_away_what_it_cannot_pay_for() -> None:
    text = steps(
        "{policy: token-bucket, capacity: 40, refill: 100/s}",
        source("chat", 0.1, output=1, count=9),
        source("essay", 0.5, output=1, prompt=50),
    )
    result = run(text)
    assert result["reasons"]["rejected"] == {"bucket-short": 2, "bucket-too-small": 1}
    assert result["gateway"]["decisions"]["admit"] == {"bucket-holds": 7}


def test_a_client_that_leaves_while_it_waits_is_not_sent_any_more() -> None:
    text = steps(
        f"{{policy: flow-control, {ONE_AT_A_TIME}}}",
        source("long", 0.010, output=20),
        source("hasty", 0.020, output=2, timeout="50ms"),
        source("patient", 0.030, output=2),
    )
    result = run(text)
    assert result["reasons"]["timed_out"] == {"the client left in the queue of the gateway": 1}
    assert result["requests"]["completed"] == 2
    assert result["gateway"]["decisions"]["admit"] == {"room": 2}


def test_whoever_has_waited_too_long_is_turned_away_at_that_very_time() -> None:
    plan = load_text(
        steps(
            f"{{policy: flow-control, ttl: 55ms, {ONE_AT_A_TIME}}}",
            source("long", 0.010, output=20),
            source("other", 0.020, output=2),
        )
    )
    request, outcome = rows_of(plan).of(1)
    assert (outcome, request.reason) == ("rejected", "expired")
    assert request.finished_s == pytest.approx(0.075)
    assert request.server == -1


def test_the_run_ends_although_nobody_ever_has_room() -> None:
    """A detector that always sees a full fleet keeps nobody waiting for ever."""
    text = steps(
        "{policy: flow-control, limit: 0}",
        source("night", 0.001, output=5, slo="batch", count=8),
        source("now", 10.0, output=5),
    )
    result = run(text)
    assert result["requests"]["completed"] == 9
    assert result["gateway"]["decisions"]["admit"] == {"idle-fleet": 8, "room": 1}


EVICTING = f"{{policy: flow-control, eviction: true, {ONE_AT_A_TIME}}}"


@pytest.mark.parametrize("at_s", [0.0105, 0.020, 0.0204, 0.033, 0.0999])
def test_a_request_is_stopped_in_the_middle_of_its_decode_and_its_blocks_are_free(
    at_s: float,
) -> None:
    plan = load_text(
        steps(
            EVICTING,
            source("night", 0.010, output=10, slo="batch", prompt=800),
            source("now", at_s, output=2, slo="critical", prompt=800),
        )
    )
    rows = rows_of(plan)
    night, outcome = rows.of(0)
    assert (outcome, night.reason, night.finished_s) == ("rejected", "made-way", at_s)
    now, outcome = rows.of(1)
    assert outcome == "completed"
    assert now.admitted_s == at_s
    # Two prompts of 50 blocks do not fit in 100 with what is written after them.
    assert now.finished_s <= at_s + 0.010 + 0.020 + 1e-9


@pytest.mark.parametrize("at_s", [0.012, 0.030])
def test_a_request_is_stopped_on_its_way_to_a_server(at_s: float) -> None:
    plan = load_text(
        steps(
            EVICTING,
            source("night", 0.010, output=10, slo="batch"),
            source("now", at_s, output=2, slo="critical"),
            queueing="15ms",
        )
    )
    rows = rows_of(plan)
    assert rows.of(0)[1] == "rejected"
    assert rows.of(1)[1] == "completed"


def test_a_request_is_stopped_while_its_media_are_encoded() -> None:
    text = steps(
        EVICTING,
        source("night", 0.010, output=10, slo="batch", media="{tokens: 100}"),
        source("now", 0.030, output=2, slo="critical"),
    )
    rows = rows_of(load_text(text, sets=["serving.encode={fixed: 50ms}"]))
    assert [rows.of(0)[1], rows.of(1)[1]] == ["rejected", "completed"]
    assert rows.of(0)[0].server == -1


def test_one_that_ends_in_the_same_step_is_not_stopped() -> None:
    """The gateway hears of one end, wants another stopped, and that one has just ended too.

    `first` and `last` end together on server 0. The prompt of `wide` fills server 1 until the fleet
    is full, which is seen as they end; `urgent` waits then, and `last` would be stopped for it.
    """
    text = steps(
        "{policy: flow-control, eviction: true, limit: 0.5, detector: "
        "{kind: utilization, kv_utilization: 0.045, queue_depth: 100, interval: 1h}}",
        source("first", 0.100, output=10, slo="batch", prompt=4),
        source("wide", 0.101, output=2, slo="batch", prompt=1000),
        source("last", 0.102, output=9, slo="background", prompt=4),
        source("urgent", 0.155, output=2),
        source("other", 0.900, output=2, slo="critical"),
        servers=2,
    )
    sets = ["serving.router.staleness=0s", "serving.pools.0.engine.max_num_batched_tokens=16"]
    result = run(text, *sets)
    assert result["requests"]["completed"] == 5
    assert result["gateway"]["decisions"]["queue"] == {"saturated": 1}
    assert result["gateway"]["decisions"]["evict"] == {}


SPLIT = """\
name: split
workload:
  - {{name: chat, slo: critical, count: 1, arrivals: {{process: constant, rate: 100000}},
     prompt_tokens: 9, output_tokens: 60}}
  - {{name: night, slo: batch, count: 1, arrivals: {{process: constant, rate: 90000}},
     prompt_tokens: 101, output_tokens: 20}}
  - {{name: now, slo: critical, count: 1, arrivals: {{process: constant, rate: {rate!r}}},
     prompt_tokens: 101, output_tokens: 3}}
serving:
  pools:
    - name: first
      role: prefill
      engine: {{kv_blocks: 1000, async_scheduling: {overlapped}}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 1ms, per_decode: 2ms}}
      overheads: {{queueing: 5ms}}
    - name: second
      role: decode
      engine: {{kv_blocks: {blocks}, async_scheduling: {overlapped}}}
      step_time: {{model: linear, fixed: 20ms, per_prefill_token: 2ms, per_decode: 4ms}}
  disaggregation:
    decider: prefix-threshold
    transfer: {{bandwidth: 1MB/s, latency: 1ms, bytes_per_token: 1kB}}
  admission: {{policy: flow-control, eviction: true,
              detector: {{kind: concurrency, max_per_server: 2}}}}
"""
"""`chat` stays whole on the decode server. `night` is on its way for 5 ms, its prompt is computed
for 111 ms and moved for 101 ms; then it decodes, or without blocks there it tries again and again.
"""


@pytest.mark.parametrize("overlapped", ["true", "false"])
@pytest.mark.parametrize("blocks", [1000, 11])
@pytest.mark.parametrize("at_s", [0.002, 0.005, 0.050, 0.116, 0.15, 0.217, 0.218, 0.24, 0.3, 0.5])
def test_a_split_request_is_stopped_wherever_it_is(
    at_s: float, blocks: int, overlapped: str
) -> None:
    text = SPLIT.format(rate=1 / at_s, blocks=blocks, overlapped=overlapped)
    rows = rows_of(load_text(text))
    night, outcome = rows.of(1)
    assert (outcome, night.reason, night.finished_s) == ("rejected", "made-way", 1 / (1 / at_s))
    assert [rows.of(number)[1] for number in (0, 2)] == ["completed", "completed"]


def test_a_session_whose_turn_is_turned_away_ends_there() -> None:
    """Tokens for two turns: 16 for the first, 16 + 2 + 16 for the second, and none for a third."""
    text = steps(
        "{policy: token-bucket, capacity: 50, refill: 0/s}",
        source("chat", 0.1, output=2, session="{turns: 4, think: 10ms}"),
    )
    result = run(text)
    assert result["requests"] == {
        "arrived": 3,
        "completed": 2,
        "rejected": 1,
        "timed_out": 0,
        "dropped": 0,
        "unfinished": 0,
    }
    assert result["sessions"]["ended"] == {"completed": 0, "cancelled": 1, "interrupted": 0}


def test_a_session_whose_turn_is_stopped_ends_there() -> None:
    text = steps(
        EVICTING,
        source("night", 0.010, output=10, slo="batch", session="{turns: 5, think: 10ms}"),
        source("now", 0.150, output=2, slo="critical"),
    )
    result = run(text)
    assert result["requests"]["arrived"] == 3
    assert result["reasons"]["rejected"] == {"made-way": 1}
    assert result["sessions"]["ended"]["cancelled"] == 1


def test_every_decision_is_told_with_its_numbers() -> None:
    text = steps(
        f"{{policy: flow-control, eviction: true, max_waiting: 1, {ONE_AT_A_TIME}}}",
        source("night", 0.010, output=10, slo="batch"),
        source("late", 0.012, output=10, slo="batch"),
        source("now", 0.030, output=2, slo="critical"),
    )
    sink = MemorySink()
    found = runs.run(load_text(text), events=sink).result
    told = [
        (event.kind.removeprefix("request."), event.subject.removeprefix("request/"), event.reason)
        for event in sink.events
        if "limit" in event.data
    ]
    assert told == [
        ("admitted", "0", "room"),
        ("queued", "1", "saturated"),
        ("rejected", "1", "outranked"),
        ("queued", "2", "saturated"),
        ("evicted", "0", "made-way"),
        ("admitted", "2", "room"),
    ]
    outranked = next(event for event in sink.events if event.reason == "outranked")
    assert (outranked.data["seen"], outranked.data["limit"]) == (-1.0, 4.0)
    counts = found["gateway"]["decisions"]
    assert sum(sum(reasons.values()) for reasons in counts.values()) == len(told)


def test_a_gateway_whose_books_are_wrong_is_found_out() -> None:
    text = steps(f"{{policy: flow-control, {ONE_AT_A_TIME}}}", source("chat", 0.1, output=1))
    simulation = compose(load_text(text))
    simulation.run(runs.breathe)
    gateway = simulation.services[0].gateway
    assert gateway is not None
    agrees = next(one for one in INVARIANTS if one.name == "gateway-agrees")
    assert agrees.check(simulation) is None
    gateway.driver.gateway.in_flight += 1
    told = "the gateway has 0 queued and 1 in flight of 0 known"
    assert agrees.check(simulation) == told


def test_unfinished_requests_were_at_the_gateway() -> None:
    text = steps(
        f"{{policy: flow-control, {ONE_AT_A_TIME}}}", source("chat", 0.001, output=90, count=5)
    )
    result = run(text, "duration=100ms")
    assert result["reasons"]["unfinished"] == {
        "the run ended in the queue of the gateway": 4,
        "the run ended during decode": 1,
    }


@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 1000),
    split=st.booleans(),
    talks=st.booleans(),
    looks=st.booleans(),
    lasts=st.sampled_from([None, "1500ms"]),
    timeout=st.sampled_from(["100ms", "2s"]),
)
def test_whatever_happens_nobody_is_lost(
    policy: str,
    seed: int,
    split: bool,
    talks: bool,
    looks: bool,
    lasts: str | None,
    timeout: str,
) -> None:
    sets = [
        f"serving.admission={POLICIES[policy]}",
        f"seed={seed}",
        f"duration={lasts or 'null'}",
        "workload.0.count=80",
        f"workload.0.timeout={timeout}",
        "workload.1.timeout=1s",
    ]
    if split:
        sets += [
            "serving.pools.0.role=prefill",
            "serving.pools.1.role=decode",
            "serving.disaggregation={transfer: {bytes_per_token: 1kB, bandwidth: 5MB/s}}",
        ]
    if talks:
        sets += ["workload.0.session={turns: 3, think: 10ms}"]
    if looks:
        sets += ["workload.1.media={tokens: 100, share: 0.5}", "serving.encode={fixed: 100ms}"]
    result = run(BUSY, *sets)
    requests = dict(result["requests"])
    assert requests.pop("arrived") == sum(requests.values())
    assert sum(result["reasons"]["rejected"].values()) == requests["rejected"]


def test_a_gateway_changes_nothing_where_it_finds_nothing_to_do() -> None:
    open_door = run(one_server(count=20, rate="9/s"))
    gated = run(one_server(count=20, rate="9/s"), "serving.admission={policy: flow-control}")
    assert gated["latency"].pop("gateway")["max"] == 0.0
    assert open_door["latency"].pop("gateway")["max"] is None
    for key in ("requests", "latency", "tokens", "throughput", "pools"):
        assert gated[key] == open_door[key]
