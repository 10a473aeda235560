"""What servers report of their times: their own, and neither the gateway's nor the client's."""

from itertools import pairwise

import numpy
import pytest

from tests.twin.runs import one_server
from tests.twin.scaled import Script
from tests.twin.test_disaggregation import PARTS, SPLIT, Rows
from tests.twin.test_lifecycle import elastic
from windtunnel.core.signals import Signals
from windtunnel.twin.compose import compose
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

LATENCY = "serving.router={policy: weighted, scorers: {least-latency: 1}}"


def observed(text: str, *sets: str) -> Signals:
    """What the servers would say after the run, of those who ended since they were asked last."""
    simulation = compose(load_text(text, sets=[LATENCY, *sets]))
    simulation.run(lambda _: None)
    signals = simulation.cluster.rosters[0].signals
    signals.refreshed(simulation.now_s)
    return signals


def test_a_prefill_server_reports_its_half_and_a_decode_server_the_rest() -> None:
    """Prefill 10 + 101 ms; then a transfer that is neither's; then 20 + 2 ms and 24 ms a token."""
    signals = observed(SPLIT.format(**PARTS))
    assert signals.ttft_s == pytest.approx([0.111, 0.022])
    assert signals.tpot_s == pytest.approx([0.0, 0.024])


def test_a_wait_at_the_gateway_is_not_the_servers() -> None:
    """The second comes with the first, is let in after it, and is computed as fast."""
    one = (
        "serving.admission={policy: flow-control, detector: {kind: concurrency, max_per_server: 1}}"
    )
    alone = observed(one_server())
    waited = observed(one_server(count=2, rate="1000000/s"), one)
    assert waited.ttft_s == pytest.approx(alone.ttft_s)
    assert waited.tpot_s == pytest.approx(alone.tpot_s)


def test_the_way_to_the_client_is_not_the_servers() -> None:
    slow = "serving.pools.0.overheads={per_token: 50ms, completion: 2s}"
    alone = observed(one_server())
    assert observed(one_server(), slow).ttft_s == pytest.approx(alone.ttft_s)
    assert observed(one_server(), slow).tpot_s == pytest.approx(alone.tpot_s)


def test_an_answer_of_one_token_says_nothing_of_the_time_per_token() -> None:
    signals = Signals([1], 0.0)
    for tpot_s in (0.02, 0.0):
        signals.observe_latency(0, 0.1, tpot_s)
    signals.refreshed(1.0)
    assert signals.tpot_s == [0.02]


RECOVERS = """\
name: recovers
duration: 90s
workload:
  - name: chat
    arrivals: {process: poisson, rate: 60/s}
    prompt_tokens: 200
    output_tokens: 20
serving:
  pools:
    - name: main
      replicas: 4
      engine: {kv_blocks: 10000}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 20us, per_decode: 200us}
faults:
  - {at: 5s, kind: slow-machine, factor: 20, for: 20s, select: {pool: main, server: 0}}
"""


@pytest.mark.parametrize("scorer", ["least-latency", "predicted-latency"])
def test_a_server_that_was_slow_gets_requests_again(scorer: str) -> None:
    """It was slow from 5 s to 25 s; from 45 s on it has about its share."""
    router = f"serving.router={{policy: weighted, scorers: {{{scorer}: 1}}}}"
    rows = Rows()
    run(load_text(RECOVERS, sets=[router]), rows=rows)
    late = [request.server for request in rows.requests if request.sent_s > 45.0]
    assert len(late) > 2000
    shares = [late.count(server) / len(late) for server in range(4)]
    assert min(shares) > 0.1
    while_slow = [request.server for request in rows.requests if 16.0 < request.sent_s < 25.0]
    assert while_slow.count(0) < 0.05 * len(while_slow)


def test_an_autoscaler_sees_percentiles_of_what_completed_since_it_looked() -> None:
    rows, script = Rows(), Script({})
    text = elastic(count=200, rate="9/s", slots=2, output=12, interval="3s")
    run(load_text(text), rows=rows, scaler=script)
    first = numpy.array([one.first_token_s - one.arrived_s for one in rows.requests])
    ended = numpy.array([one.finished_s for one in rows.requests])
    compared = 0
    for before, after in pairwise([0.0, *(one.taken_s for one in script.seen)]):
        seen = next(one for one in script.seen if one.taken_s == after).models[0].flow.ttft
        those = first[(ended > before) & (ended <= after)]
        wanted = numpy.percentile(those, [90, 95, 99]) if len(those) else [0.0, 0.0, 0.0]
        assert [seen.p90_s, seen.p95_s, seen.p99_s] == pytest.approx(wanted)
        compared += len(those)
    assert compared > 100
