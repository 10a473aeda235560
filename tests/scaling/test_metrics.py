"""Every name of a metric leads to the number that is meant."""

from dataclasses import replace

import pytest

from windtunnel.core.errors import InputError
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.metrics import NAMES, metric
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    TtftPercentiles,
    Variant,
)

REPLICAS = [
    ReplicaView(
        "a", waiting=2, running=3, kv_tokens_used=50, kv_tokens=100, ttft_s=0.25, tpot_s=0.0625
    ),
    ReplicaView(
        "b", waiting=0, running=1, kv_tokens_used=25, kv_tokens=100, ttft_s=0.5, tpot_s=0.125
    ),
]


def group() -> Group:
    spec = ReplicaSpec(max_num_seqs=10)
    variant = Variant("v", spec=spec, replicas=REPLICAS, counts=ReplicaCounts(target=2))
    lengths = RequestLengths(100.0, output_tokens=20.0)
    ttft = TtftPercentiles(0.9, 1.5, 3.0)
    flow = Flow(10.0, arrived=40, completed=40, lengths=lengths, ttft=ttft)
    model = Model("m", [variant], flow=flow, queued=4)
    return Group(model, "both", [variant], "m/both")


@pytest.mark.parametrize(
    ("name", "of_replica", "of_group"),
    [
        ("vllm:num_requests_waiting", 2.0, 6.0),
        ("vllm:num_requests_running", 3.0, 4.0),
        ("concurrency", 5.0, 10.0),
        ("vllm:kv_cache_usage_perc", 0.5, 0.75),
        ("ttft", 0.25, 0.75),
        ("ttft_p90", 0.9, 0.9),
        ("dynamo_ttft_p95_seconds", 1.5, 1.5),
        ("ttft_p99", 3.0, 3.0),
        ("gpu_kv_cache_usage_percent", 50.0, 75.0),
        ("sglang:kv_available_tokens", 50.0, 125.0),
        ("tpot", 0.0625, 0.1875),
        ("rps", 2.0, 4.0),
        ("vllm_num_requests_waiting", 2.0, 6.0),
        ("kthena:num_requests_running", 3.0, 4.0),
        ("sglang:token_usage", 0.5, 0.75),
        ("kthena_router_active_downstream_requests", 5.0, 10.0),
        ("kthena_router_fairness_queue_size", 0.0, 4.0),
        ("dynamo_frontend_pending_requests", 2.0, 6.0),
        ("dynamo_frontend_inflight_requests", 5.0, 10.0),
        ("aibrix_running_requests", 3.0, 4.0),
        ("avg_prompt_throughput_toks_per_s", 200.0, 400.0),
        ("avg_generation_throughput_toks_per_s", 40.0, 80.0),
        ("decode_batch_utilization", 30.0, 40.0),
    ],
)
def test_a_name_leads_to_a_number(name: str, of_replica: float, of_group: float) -> None:
    found = metric(name)
    assert found.of_replica(REPLICAS[0], group()) == of_replica
    assert found.of_group(group()) == of_group


def test_no_name_means_two_things() -> None:
    names = [name for names in NAMES.values() for name in names]
    assert len(names) == len(set(names))


def test_an_unknown_metric_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'vllm:num_requests_waiting'"):
        metric("vllm:num_request_waiting")


@pytest.mark.parametrize(
    ("ready", "targets", "expected"),
    [((1, 3), (1, 3), 0.25), ((0, 0), (1, 4), 0.2), ((0, 0), (0, 0), 0.5), ((0, 2), (2, 2), 0.0)],
)
def test_one_pool_of_several_sees_its_part_of_the_traffic(
    ready: tuple[int, int], targets: tuple[int, int], expected: float
) -> None:
    pools = [
        Variant(name, counts=ReplicaCounts(target=target), replicas=[ReplicaView(name)] * count)
        for name, count, target in zip("ab", ready, targets, strict=True)
    ]
    prefill = Variant(
        "p", role="prefill", counts=ReplicaCounts(target=9), replicas=[ReplicaView("p")] * 9
    )
    model = Model("m", [*pools, prefill], flow=Flow(10.0, arrived=40), queued=8)
    first = Group(model, "both", pools[:1], "m/both/a")
    assert metric("rps").of_group(first) == 4.0 * expected
    assert metric("queue_depth").of_group(first) == 8 * expected
    assert metric("rps").of_group(Group(model, "prefill", [prefill], "m/prefill")) == 4.0


@pytest.mark.parametrize("name", ["ttft", "tpot", "ttft_p90", "ttft_p99"])
def test_times_are_unknown_while_requests_are_there_and_none_completes(name: str) -> None:
    """An overloaded pool must not shrink because nothing that would tell of it has ended."""
    measured, busy = metric(name), group()
    assert measured.is_known(busy)
    silent = [replace(one, ttft_s=0.0, tpot_s=0.0) for one in REPLICAS]
    variant = replace(busy.variants[0], replicas=silent)
    stuck = replace(busy.model, variants=[variant], flow=Flow(10.0, arrived=40))
    assert not measured.is_known(Group(stuck, "both", [variant], "m/both"))
    idle = replace(busy.variants[0], replicas=[ReplicaView("a"), ReplicaView("b")])
    empty = replace(stuck, variants=[idle], queued=0)
    assert measured.is_known(Group(empty, "both", [idle], "m/both"))
