"""The metrics that users name in autoscaling policies, and where a snapshot has them.

A policy written for a cluster says `vllm:num_requests_waiting`; every name in use for the same
quantity maps to the same number here.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.snapshot import ReplicaView
from windtunnel.settings.drawing import Dice

WAITING: Final = "waiting"
QUEUED: Final = "queued"
RUNNING: Final = "running"
REQUESTS: Final = "requests"
KV_USED: Final = "kv_used"
KV_PERCENT: Final = "kv_percent"
KV_FREE: Final = "kv_free"
TTFT: Final = "ttft"
TTFT_P90: Final = "ttft_p90"
TTFT_P95: Final = "ttft_p95"
TTFT_P99: Final = "ttft_p99"
TPOT: Final = "tpot"
RATE: Final = "rate"
PROMPT_RATE: Final = "prompt_rate"
OUTPUT_RATE: Final = "output_rate"
BATCH_PERCENT: Final = "batch_percent"
EXTERNAL: Final = "external"
"""The result of a query that only a live Prometheus can run: see `Variant.external`."""
RATES: Final = (RATE, PROMPT_RATE, OUTPUT_RATE)
PERCENTILES: Final = (TTFT_P90, TTFT_P95, TTFT_P99)
TIMES: Final = (TTFT, TPOT, *PERCENTILES)
OF_FLOW: Final = (*RATES, *PERCENTILES)
"""Quantities counted at the gateway, for which no replica is scraped."""

SUM: Final = "sum"
MEAN: Final = "avg"
LARGEST: Final = "max"

NAMES: Final[dict[str, list[str]]] = {
    WAITING: [
        "waiting",
        "queue_depth",
        "num_requests_waiting",
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "aibrix_queue_depth",
        "prefill_queue_length",
        "dynamo_frontend_pending_requests",
        "dynamo_frontend_queued_requests",
        "dynamo_queued_requests",
        "dynamo_frontend_stage_requests",
        "inference_pool_average_queue_size",
    ],
    QUEUED: [
        "queued",
        "kthena_router_fairness_queue_size",
        "dynamo_frontend_router_queue_pending_requests",
        "inference_extension_flow_control_queue_size",
    ],
    RUNNING: [
        "running",
        "num_requests_running",
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "aibrix_running_requests",
        "kthena_router_active_upstream_requests",
    ],
    REQUESTS: [
        "requests",
        "concurrency",
        "in_flight",
        "kthena_router_active_requests",
        "kthena_router_active_downstream_requests",
        "dynamo_frontend_active_requests",
        "dynamo_frontend_inflight_requests",
    ],
    KV_USED: [
        "kv_used",
        "kv_cache_utilization",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "kvstats_gpu_cache_usage_percent",
        "inference_pool_average_kv_cache_utilization",
    ],
    KV_PERCENT: ["kv_percent", "kv_cache_usage_percent", "gpu_kv_cache_usage_percent"],
    KV_FREE: ["kv_free_tokens", "kv_available_tokens", "sglang:kv_available_tokens"],
    TTFT: [
        "ttft",
        "time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
        "kthena_router_request_prefill_duration_seconds",
    ],
    TTFT_P90: ["ttft_p90"],
    TTFT_P95: ["ttft_p95", "dynamo_ttft_p95_seconds"],
    TTFT_P99: ["ttft_p99"],
    TPOT: [
        "tpot",
        "time_per_output_token_seconds",
        "vllm:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
        "sglang:inter_token_latency_seconds",
        "dynamo_frontend_inter_token_latency_seconds",
    ],
    RATE: ["rate", "rps", "request_rate"],
    PROMPT_RATE: ["prompt_tokens_per_second", "avg_prompt_throughput_toks_per_s"],
    OUTPUT_RATE: ["output_tokens_per_second", "avg_generation_throughput_toks_per_s"],
    BATCH_PERCENT: ["batch_utilization", "decode_batch_utilization"],
}
"""The names in use for each quantity. Shares are from 0 to 1, times in seconds."""


OF_REPLICA: Final[dict[str, Callable[[ReplicaView], float]]] = {
    WAITING: lambda replica: replica.waiting,
    QUEUED: lambda _: 0.0,
    RUNNING: lambda replica: replica.running,
    REQUESTS: lambda replica: replica.waiting + replica.running,
    KV_USED: lambda replica: replica.kv_used,
    KV_PERCENT: lambda replica: 100.0 * replica.kv_used,
    KV_FREE: lambda replica: max(0.0, replica.kv_tokens - replica.kv_tokens_used),
    TTFT: lambda replica: replica.ttft_s,
    TPOT: lambda replica: replica.tpot_s,
}
"""How to get each quantity from a replica."""

DRAWN: Final = (
    "num_requests_waiting",
    "running",
    "concurrency",
    "kv_used",
    "ttft",
    "ttft_p95",
    "tpot",
    "rate",
)
"""One name of each, for scenarios of the fuzzer."""


def draw_targets(dice: Dice) -> dict[str, float]:
    """Draws some metrics with a target for each."""
    return {name: dice.span(0.02, 10.0) for name in dice.some(DRAWN)}


class Metric:
    """A metric of a replica, and of a whole group."""

    def __init__(self, name: str, quantity: str) -> None:
        self.name: Final = name  # as the user wrote it
        self.quantity: Final = quantity

    def of_replica(self, replica: ReplicaView, group: Group) -> float:
        if self.quantity in OF_FLOW:
            return self._of_flow(group) / self._among(group)
        if self.quantity == BATCH_PERCENT:
            most = group.variants[0].spec.max_num_seqs
            return 100.0 * replica.running / most if most > 0 else 0.0
        return OF_REPLICA[self.quantity](replica)

    def of_replicas(self, group: Group) -> list[float]:
        """One value per replica; rates at the gateway are divided equally."""
        if self.quantity in OF_FLOW:
            return [self._of_flow(group) / self._among(group)] * group.ready
        return [
            self.of_replica(replica, group)
            for variant in group.variants
            for replica in variant.replicas
        ]

    def of_group(self, group: Group, aggregate: str = SUM) -> float:
        """The sum over its replicas, with its share of the requests queued at the gateway.

        Or the mean or the maximum over the replicas; 0 without replicas.
        """
        if self.quantity in OF_FLOW:
            return self._of_flow(group)
        values = self.of_replicas(group)
        if aggregate == LARGEST:
            return max(values, default=0.0)
        total = sum(values, 0.0)
        if aggregate == MEAN:
            return total / len(values) if values else 0.0
        if self.quantity in (WAITING, QUEUED, REQUESTS):
            total += group.model.queued * share(group)
        return total

    def _of_flow(self, group: Group) -> float:
        if self.quantity in RATES:
            return _rate(group, self.quantity)
        ttft = group.model.flow.ttft
        if self.quantity == TTFT_P90:
            return ttft.p90_s
        return ttft.p95_s if self.quantity == TTFT_P95 else ttft.p99_s

    def _among(self, group: Group) -> int:
        """The number of replicas among which a figure of the gateway is divided."""
        return max(1, group.ready) if self.quantity in RATES else 1

    @property
    def natural(self) -> str:
        """The default aggregate: mean for times, sum for all else."""
        return MEAN if self.quantity in TIMES else SUM

    def missing(self, group: Group) -> int:
        """The number of replicas without a value."""
        return 0 if self.quantity in (*OF_FLOW, QUEUED) else group.missing

    def is_known(self, group: Group) -> bool:
        """Whether a value is known: for at least one replica, if there are any.

        While there are requests and none has completed, latencies are unknown.
        """
        flow = group.model.flow
        if self.quantity in PERCENTILES:
            return flow.completed > 0 or group.work() == 0
        if self.quantity in (TTFT, TPOT) and not any(self.of_replicas(group)):
            return group.work() == 0 and group.missing == 0
        if self.quantity in RATES:
            return flow.interval_s > 0
        return self.missing(group) == 0 or group.missing < group.ready


def with_missing(total: float, missing: int, target: float, size: int) -> float:
    """Adds replicas that did not answer to a total, as Kubernetes counts them.

    They count as idle if a pool of this size would grow, and as at their target if it would shrink,
    so missing data alone never changes a size.
    """
    enough = target * size
    return total if missing == 0 or total >= enough else min(total + missing * target, enough)


PREFIXES: Final = ("vllm_", "kthena:", "kthena_")
"""Possible prefixes of names: adapters write `_` for `:`, and some servers add their name."""
MANAGED: Final = ("prometheus.googleapis.com|", ("|gauge", "|unknown"))
"""The prefix, and the suffixes for the metric type, that Google's adapter adds to a name."""


def metric(name: str, where: str = "metric") -> Metric:
    """The metric of this name; an InputError lists the metrics."""
    known: list[str] = []
    plain = _unmanaged(name)
    for prefix in PREFIXES:
        plain = plain.removeprefix(prefix)
    for quantity, names in NAMES.items():
        if name in names or plain in names:
            return Metric(name, quantity)
        known.extend(names)
    near = get_close_matches(name, known, 1)
    raise InputError(
        f"{name!r} is not a metric that is measured here",
        where=where,
        allowed=", ".join(names[0] for names in NAMES.values()),
        hint=f"did you mean {near[0]!r}?" if near else None,
    )


def _unmanaged(name: str) -> str:
    """The name as published by the server."""
    before, kinds = MANAGED
    for kind in kinds:
        if name.startswith(before) and name.endswith(kind):
            return name[len(before) : -len(kind)]
    return name


def share(group: Group) -> float:
    """A group's share of the model's traffic: its share of the ready replicas.

    Each role sees all of the traffic. If no replica is ready, requested replicas count.
    """
    variants = group.model.variants
    if len(group.variants) == len(variants):
        return 1.0
    roles = [variant.role for variant in group.variants]
    beside = [variant for variant in variants if variant.role in roles]
    ready = sum(variant.ready for variant in beside)
    if ready > 0:
        return group.ready / ready
    asked = sum(variant.target for variant in beside)
    return group.current / asked if asked > 0 else len(group.variants) / len(beside)


def _rate(group: Group, quantity: str) -> float:
    """The rate of arriving requests, of their prompt tokens, or of output tokens."""
    flow = group.model.flow
    if flow.interval_s <= 0:
        return 0.0
    rate = share(group) * flow.arrived / flow.interval_s
    if quantity == PROMPT_RATE:
        return rate * flow.lengths.prompt_tokens
    if quantity == OUTPUT_RATE:
        completed = share(group) * flow.completed / flow.interval_s
        return completed * flow.lengths.output_tokens
    return rate
