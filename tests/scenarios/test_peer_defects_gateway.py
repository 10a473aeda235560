"""Defects of other simulators' gateways that must not be here, each by its name."""

import itertools
import json
from typing import Any

import pytest

from tests.twin.runs import BUSY, run
from windtunnel.admission.gateway.flow_control import ORDERS

FLOW = "serving.admission={policy: flow-control, %s}"
NARROW = "detector: {kind: concurrency, max_per_server: 4}"
CROWD = """\
name: crowd
workload:
  - {name: chat, count: 500, arrivals: {process: constant, rate: 100000/s}, prompt_tokens: 10,
     output_tokens: 2}
serving:
  pools:
    - name: main
      replicas: 4
      engine: {kv_blocks: 4000, max_num_seqs: 200}
      step_time: {model: linear, fixed: 10ms}
"""
"""Five hundred within 5 ms, on servers that need some 25 ms for as many as they have."""


def without_the_question(result: dict[str, Any]) -> str:
    """A result as text, less what says which scenario it is of."""
    return json.dumps({key: result[key] for key in result if key != "scenario_sha256"})


def test_dispatch_orders_are_not_byte_identical() -> None:
    """The peer's fifo goes band by band, and its output is that of its priority order."""
    found = {
        order: without_the_question(
            run(BUSY, FLOW % f"order: {order}, {NARROW}", "slo.batch={ttft: 100ms}")
        )
        for order in ORDERS
    }
    for one, other in itertools.combinations(ORDERS, 2):
        assert found[one] != found[other], (one, other)


def test_fifo_is_the_global_order_of_arrival() -> None:
    """Whatever their classes, whoever comes first is let in first."""
    sets = [
        FLOW % f"order: fifo, {NARROW}",
        "serving.pools.0.engine.scheduling=fcfs",
        "duration=null",
        "workload.0.count=120",
    ]
    one_class = run(BUSY, *sets, "workload.1.slo=critical")
    two_classes = run(BUSY, *sets, "workload.1.slo=batch")
    assert one_class["tokens"] == two_classes["tokens"]
    for name, figures in one_class["latency"].items():
        for percentile in ("p50", "p99", "max"):
            assert figures[percentile] == two_classes["latency"][name][percentile]


def test_more_than_one_is_sent_per_trigger() -> None:
    """The peer sends one per arrival and one per millisecond: 500 would take half a second."""
    result = run(CROWD, FLOW % "detector: {kind: utilization, queue_depth: 25}")
    assert result["gateway"]["waiting_peak"] == 400
    assert result["simulated_seconds"] < 0.25


def test_a_whole_queue_does_not_follow_one_stale_view_of_an_empty_fleet() -> None:
    """Sending all that waits at once is no better: what was sent counts before the next goes."""
    detector = "detector: {kind: utilization, queue_depth: 50, kv_utilization: 1}"
    result = run(CROWD, FLOW % detector, "serving.router.staleness=1h")
    # Nothing new is seen for an hour: 4 servers times 50 go at once, and each of the others when
    # one has ended.
    assert result["gateway"]["waiting_peak"] == 300


def test_eviction_does_not_go_on_until_signals_show_it() -> None:
    """A rule without memory stops everything in the time that it takes to see the first effect."""
    sets = [
        FLOW % "eviction: true, detector: {kind: utilization, queue_depth: 1}",
        "serving.router.staleness=500ms",
        "workload.1.arrivals.rate=600/s",
        "workload.0.count=10",
    ]
    result = run(BUSY, *sets)
    stopped = result["gateway"]["decisions"]["evict"].get("made-way", 0)
    assert 0 < stopped <= 10, "one at most for each critical request"


def test_a_place_is_not_freed_for_one_that_may_itself_be_shed() -> None:
    result = run(BUSY, FLOW % f"eviction: true, {NARROW}", "workload.0.slo=sheddable")
    assert result["gateway"]["decisions"]["evict"] == {}


@pytest.mark.parametrize("slo", ["batch", "background"])
def test_low_classes_are_not_deferred_for_ever(slo: str) -> None:
    """The peer once had a deferred queue for them; here they wait in a band, and are served."""
    sets = [FLOW % f"limit: 0, {NARROW}", f"workload.1.slo={slo}", "duration=null"]
    result = run(BUSY, *sets, "workload.0.count=150")
    assert result["requests"]["rejected"] == 0
    assert result["slo"][slo]["completed"] > 40
    assert result["requests"]["arrived"] == 210
    assert result["requests"]["completed"] + result["requests"]["dropped"] == 210


def test_rejections_are_among_the_arrivals() -> None:
    """The peer's `injected_requests` leaves them out."""
    result = run(BUSY, "serving.admission={policy: token-bucket, capacity: 500, refill: 500/s}")
    requests = dict(result["requests"])
    assert requests["rejected"] > 50
    assert requests.pop("arrived") == sum(requests.values())
    assert sum(one["requests"] for one in result["tenants"].values()) == sum(requests.values())


def test_a_run_without_end_ends_although_a_gateway_ticks() -> None:
    """A tick that plans the next tick must not keep a run alive."""
    result = run(CROWD, FLOW % "ttl: 1h, detector: {kind: utilization, interval: 50ms}")
    assert result["simulated_seconds"] < 10
