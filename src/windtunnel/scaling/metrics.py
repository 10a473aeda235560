"""The metrics that users name in autoscaling policies, and where a snapshot has them.

A policy written for a cluster says `vllm:num_requests_waiting`; every name that people use for the
same thing leads to the same number here.
"""

from difflib import get_close_matches
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.snapshot import ReplicaView
from windtunnel.settings.drawing import Dice

WAITING: Final = "waiting"
RUNNING: Final = "running"
REQUESTS: Final = "requests"
KV_USED: Final = "kv_used"
TTFT: Final = "ttft"
TPOT: Final = "tpot"
RATE: Final = "rate"

NAMES: Final[dict[str, list[str]]] = {
    WAITING: [
        "waiting",
        "queue_depth",
        "num_requests_waiting",
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
    ],
    RUNNING: [
        "running",
        "num_requests_running",
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
    ],
    REQUESTS: ["requests", "concurrency", "in_flight"],
    KV_USED: [
        "kv_used",
        "kv_cache_utilization",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
    ],
    TTFT: ["ttft", "time_to_first_token_seconds", "vllm:time_to_first_token_seconds"],
    TPOT: [
        "tpot",
        "time_per_output_token_seconds",
        "vllm:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
    ],
    RATE: ["rate", "rps", "request_rate"],
}
"""What is measured, and the names that people give it. A share is 0 to 1, a time in seconds."""


DRAWN: Final = ("num_requests_waiting", "running", "concurrency", "kv_used", "ttft", "tpot", "rate")
"""One name of each, for scenarios of the fuzzer."""


def draw_targets(dice: Dice) -> dict[str, float]:
    """Some metrics, and what each should be."""
    return {name: dice.span(0.02, 10.0) for name in dice.some(DRAWN)}


class Metric:
    """A number of a replica, and of a group as a whole."""

    def __init__(self, name: str, quantity: str) -> None:
        self.name: Final = name  # as the user wrote it
        self.quantity: Final = quantity

    def of_replica(self, replica: ReplicaView, group: Group) -> float:
        if self.quantity == WAITING:
            return replica.waiting
        if self.quantity == RUNNING:
            return replica.running
        if self.quantity == REQUESTS:
            return replica.waiting + replica.running
        if self.quantity == KV_USED:
            return replica.kv_used
        if self.quantity == TTFT:
            return replica.ttft_s
        if self.quantity == TPOT:
            return replica.tpot_s
        return _rate(group) / max(1, group.ready)

    def of_replicas(self, group: Group) -> list[float]:
        """One value a replica that answered; a rate, which nobody is asked for, has all of them."""
        if self.quantity == RATE:
            return [_rate(group) / max(1, group.ready)] * group.ready
        return [
            self.of_replica(replica, group)
            for variant in group.variants
            for replica in variant.replicas
        ]

    def of_group(self, group: Group) -> float:
        """The sum over its replicas, with its part of the requests that wait at the gateway."""
        if self.quantity == RATE:
            return _rate(group)
        total = sum(self.of_replicas(group), 0.0)
        if self.quantity in (WAITING, REQUESTS):
            total += group.model.queued * share(group)
        return total

    def missing(self, group: Group) -> int:
        """How many replicas it is not known of."""
        return 0 if self.quantity == RATE else group.missing

    def is_known(self, group: Group) -> bool:
        """Whether anything is: of one replica at least, where there are some."""
        if self.quantity == RATE:
            return group.model.flow.interval_s > 0
        return group.missing == 0 or group.missing < group.ready


def with_missing(total: float, missing: int, target: float, size: int) -> float:
    """A total to which replicas that did not answer are added, as Kubernetes counts them.

    They are idle where a pool of this size would grow, and at their target where it would shrink:
    silence alone never changes a size.
    """
    enough = target * size
    return total if missing == 0 or total >= enough else min(total + missing * target, enough)


PREFIXES: Final = ("vllm_", "kthena:", "kthena_")
"""Before any of these names: adapters write `_` for `:`, and some servers their own name."""


def metric(name: str, where: str = "metric") -> Metric:
    """The metric of this name; an error that lists them where there is none."""
    known: list[str] = []
    plain = name
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
        allowed=", ".join(known),
        hint=f"did you mean {near[0]!r}?" if near else None,
    )


def share(group: Group) -> float:
    """The part of a model's traffic that comes to a group: as many as it has of the ready replicas.

    Each role sees all of the traffic. Where nobody is ready, replicas that were asked for count.
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


def _rate(group: Group) -> float:
    flow = group.model.flow
    return share(group) * flow.arrived / flow.interval_s if flow.interval_s > 0 else 0.0
