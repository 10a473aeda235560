"""Servers that come and go: states, times and money by hand, and what becomes of requests."""

from typing import Any

import pytest

from tests.twin.scaled import Script, scaled
from windtunnel.core.telemetry import Event

# A prompt of 10 tokens is a step of 20 ms, a token after that 10 ms: 10 tokens take 110 ms.
ELASTIC = """\
name: elastic
workload:
  - name: chat
    count: {count}
    arrivals: {{process: constant, rate: {rate}}}
    prompt_tokens: 10
    output_tokens: {output}
serving:
  pools:
    - name: main
      replicas: {replicas}
      price_per_hour: 3600
      engine: {{kv_blocks: 1000, max_num_seqs: {slots}, async_scheduling: false}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 1ms}}
  startup: {{load: {{mean: {load}}}}}
  drain: {{policy: {drain}}}
scaling:
  policy: saturation
  interval: {interval}
  pools: {{main: {{min: 0}}}}
"""


def elastic(
    *,
    count: int = 1,
    rate: str = "1/s",
    output: int = 10,
    replicas: int = 1,
    slots: int = 1,
    load: str = "2s",
    drain: str = "wait",
    interval: str = "1s",
) -> str:
    return ELASTIC.format(**locals())


def states(events: list[Event]) -> list[tuple[float, str, str]]:
    """When each server came to which state."""
    return [
        (event.time, event.subject, event.kind.removeprefix("replica."))
        for event in events
        if event.kind.startswith("replica.")
    ]


def pool_of(result: dict[str, Any]) -> dict[str, Any]:
    pool: dict[str, Any] = result["pools"]["main"]
    return pool


def test_a_server_is_paid_for_from_its_start_and_serves_after_it() -> None:
    text = elastic(count=4, rate="0.8/s")  # the last comes at 5 s, and the run ends at 5.11 s
    result, events = scaled(text, Script({"main": 2}, {"main": 2}, {"main": 2}, {"main": 1}))
    assert states(events) == [
        (0.0, "server/0", "ready"),
        (1.0, "server/1", "pending"),
        (1.0, "server/1", "starting"),
        (3.0, "server/1", "ready"),
        (4.0, "server/1", "draining"),  # of two that have nothing to do, the newest
        (4.0, "server/1", "gone"),
    ]
    pool = pool_of(result)
    assert result["simulated_seconds"] == pytest.approx(5.11)
    assert pool["replica_seconds"] == pytest.approx(5.11 + 3.0)
    assert pool["ready_seconds"] == pytest.approx(5.11 + 1.0)
    assert pool["cost"] == result["cost"]["total"] == pytest.approx(8.11)
    assert pool["utilization"] == pytest.approx(4 * 0.11 / 6.11)


def test_sizes_and_counts_are_told() -> None:
    text = elastic(count=6)
    result, _ = scaled(text, Script({"main": 3}, {"main": 1}))
    # Two start at 1 s; at 2 s both are still starting, and the newest goes first, then the other.
    sizes = result["scaling"]["pools"]["main"]["sizes"]
    assert sizes == [[0.0, 1, 0, 0, 1, 0], [1.0, 3, 0, 2, 1, 0], [2.0, 1, 0, 0, 1, 0]]
    assert result["decisions"]["scaling"] == result["scaling"]["changes"] == 2
    assert pool_of(result)["replicas"] == {
        "initial": 1,
        "final": 1,
        "most": 3,
        "started": 2,
        "drained": 2,
        "redirected": 0,
        "lost": 0,
        "retried": 0,
        "failed": 0,
        "lost_tokens": 0,
        "rate_limited": 0,
    }


def test_the_newest_that_starts_goes_first_then_the_one_with_least_to_do() -> None:
    text = elastic(count=4, rate="1000/s", replicas=3, output=500, load="100s")
    result, events = scaled(text, Script({"main": 4}, {"main": 3}, {"main": 2}))
    # Servers 0, 1, 2 and 0 again got a request each: 1 and 2 have one, and 2 is newer.
    gone = [(time, who) for time, who, state in states(events) if state in ("gone", "draining")]
    assert gone[:2] == [(2.0, "server/3"), (3.0, "server/2")]
    assert result["requests"]["completed"] == 4


def test_whoever_comes_while_there_is_no_server_waits_for_one() -> None:
    text = elastic(count=3, rate="2/s", replicas=0, slots=8)
    result, events = scaled(text, Script({"main": 1}))
    assert result["requests"]["completed"] == 3
    # Asked for at 1 s, ready at 3 s: all three are computed in one step of 40 ms, then 90 ms.
    assert result["simulated_seconds"] == pytest.approx(3.13)
    assert result["latency"]["queue"]["max"] == pytest.approx(2.5)
    assert [event.time for event in events if event.kind == "request.routed"] == [3.0] * 3


def test_who_waits_for_a_server_leaves_by_its_own_timeout() -> None:
    text = elastic(count=1, replicas=0, load="1h")
    result, _ = scaled(text, Script({"main": 1}), "workload.0.timeout=5s")
    assert result["requests"]["timed_out"] == 1
    assert result["reasons"]["timed_out"] == {"the client left before a server was ready": 1}
    assert result["simulated_seconds"] == 6.0


@pytest.mark.parametrize(
    ("gateway", "where"),
    [
        ("{policy: always}", "before a server was ready"),
        ("{policy: flow-control, detector: {kind: utilization}}", "in the queue of the gateway"),
    ],
)
def test_a_run_that_nobody_wakes_ends(gateway: str, where: str) -> None:
    text = elastic(count=2, replicas=0)
    result, _ = scaled(text, Script({}), f"serving.admission={gateway}")
    assert result["requests"]["unfinished"] == 2
    assert result["reasons"]["unfinished"] == {f"the run ended {where}": 2}


@pytest.mark.parametrize("late", ["actuation_delay={mean: 12s}", "scrape_delay=12s"])
def test_a_run_waits_for_what_is_under_way_however_often_it_looks(late: str) -> None:
    text = elastic(count=1, replicas=0, load="0s", interval="1ms")
    result, _ = scaled(text, Script({"main": 1}), f"scaling.{late}")
    assert result["requests"]["completed"] == 1
    assert result["simulated_seconds"] == pytest.approx(12.001 + 0.11)


@pytest.mark.parametrize(
    ("drain", "redirected", "gone_s", "end_s"),
    [
        ("wait", 0, 2.22, 2.22),  # both of its requests, one after the other
        ("redirect", 1, 1.11, 3.33),  # the one that waits is the third of the other server
        ("immediate", 2, 0.51, 4.44),  # the other has all four; the step of the moment is ended
    ],
)
def test_what_a_drain_does_to_requests(
    drain: str, redirected: int, gone_s: float, end_s: float
) -> None:
    # Four requests at once on two servers that run one at a time, each 1.11 s long.
    text = elastic(count=4, rate="1000/s", replicas=2, output=110, drain=drain, interval="500ms")
    result, events = scaled(text, Script({"main": 1}))
    assert result["requests"]["completed"] == 4
    assert pool_of(result)["replicas"]["redirected"] == redirected
    last = [time for time, who, state in states(events) if (who, state) == ("server/1", "gone")]
    assert last == [pytest.approx(gone_s, abs=0.02)]
    assert result["simulated_seconds"] == pytest.approx(end_s, abs=0.02)


def test_a_later_decision_is_not_undone_by_an_earlier_one_that_was_slower() -> None:
    text = elastic(count=30)
    sets = ("scaling.interval=500ms", "scaling.actuation_delay={mean: 2s, stddev: 3s}")
    script = Script({"main": 2}, {"main": 5}, {"main": 3}, {"main": 4}, again=True)
    result, _ = scaled(text, script, *sets)
    assert result["scaling"]["superseded"] > 0
    assert result["requests"]["completed"] == 30


def test_a_later_decision_about_another_pool_undoes_nothing() -> None:
    text = elastic(count=20).replace(
        "  startup:",
        "    - {name: other, engine: {kv_blocks: 9}, step_time: {model: linear, fixed: 10ms}}\n"
        "  startup:",
    )
    delays = "scaling.actuation_delay={mean: 2s, stddev: 3s}"
    script = Script({"main": 2}, {"other": 3})
    result, _ = scaled(text, script, "seed=1", "scaling.interval=500ms", delays)
    assert result["scaling"]["superseded"] == 0
    sizes = {name: pool["sizes"][-1][1] for name, pool in result["scaling"]["pools"].items()}
    assert sizes == {"main": 2, "other": 3}


def test_what_is_decided_again_while_it_is_under_way_is_one_change() -> None:
    text = elastic(count=20, interval="500ms")
    result, _ = scaled(text, Script({"main": 3}), "scaling.actuation_delay={mean: 2s}")
    scaling = result["scaling"]
    assert scaling["changes"] == 1
    assert scaling["changes_per_hour"] == pytest.approx(3600 / result["simulated_seconds"])


def test_a_snapshot_has_replicas_by_state_and_the_traffic_of_its_interval() -> None:
    text = elastic(count=20, rate="4/s", replicas=2, load="10s", output=300)
    script = Script({"main": 3}, {"main": 3}, {"main": 1})
    scaled(text, script, "scaling.scrape_delay=100ms", "slo.standard={ttft: 1s, tpot: 20ms}")
    looks = [snapshot.models[0] for snapshot in script.seen]
    (variant,) = looks[1].variants
    assert (variant.target, variant.ready, variant.counts.starting) == (3, 2, 1)
    assert variant.spec.startup_s == 10.0
    assert variant.spec.price_per_hour == 3600.0
    assert variant.spec.kv_tokens == 15_984.0  # one block is nobody's
    assert variant.spec.step_times is not None
    assert variant.spec.step_times.step_s(10.0, 2.0, 100.0) == pytest.approx(0.020)
    assert [one.name for one in variant.replicas] == ["main-0", "main-1"]
    assert sum(one.running + one.waiting for one in variant.replicas) == 8
    assert looks[1].flow.arrived == 4
    assert looks[1].flow.lengths.prompt_tokens == 10.0
    assert (looks[1].objective.ttft_s, looks[1].objective.tpot_s) == (1.0, 0.02)
    after = looks[3].variants[0]
    assert (after.target, after.ready, after.counts.starting, after.counts.draining) == (1, 1, 0, 1)


def test_the_latencies_of_a_snapshot_are_those_of_its_interval_and_tpot_is_per_gap() -> None:
    """The first token takes a step of 20 ms, the nine after it 10 ms each: nine gaps."""
    script = Script({"main": 1})
    scaled(elastic(count=8, rate="4/s"), script)
    flows = [snapshot.models[0].flow for snapshot in script.seen]
    served = [flow for flow in flows if flow.completed]
    assert sum(flow.completed for flow in served) >= 4
    for flow in served:
        assert flow.lengths.output_tokens == 10.0
        assert flow.latencies.ttft_s == pytest.approx(0.020)
        assert flow.latencies.tpot_s == pytest.approx(0.010)
        assert flow.latencies.e2e_s == pytest.approx(0.110)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("serving.startup={load: {mean: 1s}}", "serving.startup"),
        ("serving.drain={policy: redirect}", "serving.drain"),
    ],
)
def test_what_has_no_effect_without_scaling_is_noted(change: str, where: str) -> None:
    from tests.twin.runs import one_server
    from windtunnel.twin.scenario.load import load_text

    assert not load_text(one_server()).notes
    (note,) = load_text(one_server(), sets=[change]).notes
    assert where in note
    assert "scaling" in note


def test_a_pool_without_servers_is_refused_without_scaling() -> None:
    from tests.twin.runs import one_server
    from windtunnel.core.errors import InputError
    from windtunnel.twin.scenario.load import load_text

    with pytest.raises(InputError, match="scaling") as caught:
        load_text(one_server(), sets=["serving.pools.0.replicas=0"])
    assert "serving.pools[0].replicas" in str(caught.value)
