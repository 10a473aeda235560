"""WVA's throughput and queueing analyzers, by numbers worked by hand."""

from collections.abc import Sequence

import pytest

from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.policies.saturation.policy import WvaSettings
from windtunnel.scaling.policies.saturation.wva_analyzers import Queueing, Throughput
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    Objective,
    ReplicaCounts,
    ReplicaView,
    RequestLengths,
    Variant,
)

KV_TOKENS = 100_000.0


def replica(use: float, itl_s: float, ttft_s: float = 0.2, waiting: int = 0) -> ReplicaView:
    return ReplicaView(
        f"r{use}{waiting}",
        kv_tokens=KV_TOKENS,
        kv_tokens_used=use * KV_TOKENS,
        tpot_s=itl_s,
        ttft_s=ttft_s,
        waiting=waiting,
    )


def group(
    replicas: Sequence[ReplicaView],
    rate: float,
    *,
    role: str = "both",
    slo: Objective | None = None,
) -> Group:
    lengths = RequestLengths(800.0, output_tokens=400.0)  # 1000 tokens of KV per request
    flow = Flow(10.0, arrived=round(10.0 * rate), completed=1, lengths=lengths)
    variant = Variant("v", role=role, counts=ReplicaCounts(len(replicas)), replicas=list(replicas))
    model = Model("m", [variant], flow=flow, objective=slo or Objective())
    return Group(model, role, [variant], f"m/{role}")


def throughput(rate: float, *, waiting: int = 0) -> Finding:
    """A line from 10 ms with an empty cache to 30 ms with a full one: 27 ms at 85 %."""
    analyzer = Throughput(0.85, 0.7)
    line = [replica(0.1 * part, 0.01 + 0.002 * part) for part in range(1, 11)]
    analyzer.analyze_group(group(line, rate), 0.0)
    return analyzer.analyze_group(group([replica(0.5, 0.02, waiting=waiting)], rate), 30.0)


def test_throughput_is_taken_where_the_cache_is_full() -> None:
    found = throughput(5.0)  # 85 requests of 1000 tokens, a token each in 27 ms: 3148 tokens/s
    assert found.per_replica == [pytest.approx(85.0 / 0.027)]
    assert found.demand == pytest.approx(5.0 * 400.0)  # 2000: between 0.7 and 0.85 of it
    assert found.required == 0.0
    assert found.spare == pytest.approx(85.0 / 0.027 - 2000.0 / 0.7)
    assert throughput(10.0).required == pytest.approx(4000.0 / 0.85 - 85.0 / 0.027)


def test_queued_requests_count_as_half_a_token_each() -> None:
    assert throughput(5.0, waiting=54).demand == pytest.approx(2000.0 + 54 / (2 * 0.027))


def test_with_few_samples_the_line_begins_at_six_milliseconds() -> None:
    found = Throughput(0.85, 0.7).analyze_group(group([replica(0.5, 0.026)], 1.0), 0.0)
    assert found.per_replica == [pytest.approx(85.0 / (0.006 + 0.04 * 0.85))]


def queueing(rate: float, slo: Objective | None = None) -> Finding:
    """Replicas as the model has them: 10 ms, 10 us per token, 20 ns per token of context."""
    alpha, beta, gamma = 0.01, 1e-5, 2e-8
    analyzer = Queueing()
    for look in range(60):
        seen = 5.0 + 3.0 * (look % 7)  # the rate of one replica
        load = seen * (beta * 1200.0 + gamma * 401.0 * 1000.0)
        step_s = alpha / (1.0 - load)
        shown = replica(0.5, step_s + beta + gamma * 1000.5, step_s + (beta + gamma) * 800.0)
        analyzer.analyze_group(group([shown], seen, slo=slo), 15.0 * look)
    found = analyzer.analyze_group(group([replica(0.5, 0.0, 0.0)], rate, slo=slo), 900.0)
    assert found.known
    return found


def test_a_filter_finds_what_an_iteration_costs() -> None:
    # Up to a step of 30 ms, where two thirds of the time are taken: 0.667 / 0.02002 = 33.3/s.
    (carried,) = queueing(30.0).per_replica
    assert carried == pytest.approx(33.3, rel=0.05)
    assert queueing(20.0).required == 0.0
    assert queueing(60.0).required == pytest.approx(60.0 - carried)


def test_a_tighter_slo_leaves_less_of_a_replica() -> None:
    # 20 ms per token: a step of 19.98 ms, half of the time, 25/s.
    (carried,) = queueing(30.0, Objective(tpot_s=0.02)).per_replica
    assert carried == pytest.approx(25.0, rel=0.05)


@pytest.mark.parametrize("analyzer", [Throughput(0.85, 0.7), Queueing()])
def test_prefill_alone_is_not_known(analyzer: Throughput | Queueing) -> None:
    assert not analyzer.analyze_group(group([replica(0.5, 0.02)], 1.0, role="prefill"), 0.0).known


def test_analyzers_vote_beside_each_other() -> None:
    names = ["throughput", "saturation", "queueing", "throughput"]
    parts = WvaSettings(policy="wva", analyzers=names).parts()
    assert [one.name for one in parts.analyzers] == ["throughput", "saturation", "queueing"]
    assert [one.name for one in WvaSettings(policy="wva").parts().analyzers] == ["saturation"]
