"""Builds routers from one table of policies and one of scorers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.routing import filters, prompt_scorers, scorers
from windtunnel.routing.counterfactual import Counterfactual
from windtunnel.routing.custom import (
    CustomRouter,
    NamedPolicy,
    RequestLabels,
    is_custom,
    load_policy,
    named_at,
    policy_class,
    takes_stream,
)
from windtunnel.routing.load_balancing import LeastLoaded, PowerOfTwo, RandomChoice, RoundRobin
from windtunnel.routing.prefixes import CacheIndex, CacheJournal
from windtunnel.routing.prompt_scorers import CachedShare
from windtunnel.routing.router import Router
from windtunnel.routing.scorers import Scorer
from windtunnel.routing.sticky import ConsistentHash, SessionSticky
from windtunnel.routing.weighted import MAX_SCORE, FilteredWeighted, Weighted

if TYPE_CHECKING:
    from windtunnel.routing.settings import FilterSettings, RouterSettings


class RouterInputs(NamedTuple):
    """The inputs that the routers of one model share; provided by a driver."""

    signals: Signals
    journal: CacheJournal
    """Cache changes; servers report them only if a router reads them."""
    pools: list[str]
    """The pool of each server, for custom policies; the driver appends to it."""
    labels: RequestLabels
    """Names for the numbers in a request, for custom policies."""
    folder: Path
    """The folder that is searched first for modules of custom policies."""
    place: str | None = None
    """Where the policy is named, such as `scenario.yaml:7`, for errors of custom policies."""


class RouterParts(NamedTuple):
    """The parts from which one router is built."""

    settings: "RouterSettings"
    candidates: list[int]
    inputs: RouterInputs
    stream: Stream


def _weighted(parts: RouterParts) -> Weighted:
    settings, (signals, journal, *_) = parts.settings, parts.inputs
    weights = settings.weights
    index = None
    if settings.reads_caches:
        index = CacheIndex(journal, parts.candidates, settings.cache_delay_s)
    built: list[tuple[Scorer, float]] = []
    for name, weight in weights.items():
        if index is not None and name in BY_CACHE:
            built.append((BY_CACHE[name](signals, index), weight))
        else:
            built.append((BY_SIGNALS[name](signals), weight))
    if not settings.filters and settings.picker == MAX_SCORE:
        return Weighted(parts.candidates, signals, built, index)
    kept = [_filter(one, signals, index) for one in settings.filters]
    return FilteredWeighted(
        parts.candidates, signals, built, index, kept, settings.picker, parts.stream
    )


def _filter(
    settings: "FilterSettings", signals: Signals, index: CacheIndex | None
) -> filters.ServerFilter:
    if settings.kind == "active-requests":
        return filters.ActiveRequestsFilter(signals, settings.max)
    if settings.kind == "queue-depth":
        return filters.QueueDepthFilter(signals, settings.max)
    if settings.kind == "kv-utilization":
        return filters.KvUtilizationFilter(signals, settings.max)
    if settings.kind == "lora-affinity":
        return filters.LoraFilter(signals)
    assert index is not None
    penalty_s, rate = settings.penalty_s, settings.prefill_tokens_per_s
    return filters.PrefixCacheFilter(signals, index, settings.share, penalty_s, rate)


def _consistent_hash(parts: RouterParts) -> ConsistentHash:
    nodes, factor = parts.settings.virtual_nodes, parts.settings.load_factor
    return ConsistentHash(parts.candidates, parts.inputs.signals, nodes, factor)


def _custom(parts: RouterParts) -> CustomRouter:
    policy, inputs = parts.settings.policy, parts.inputs
    if not is_custom(policy):
        raise unknown_policy(policy)
    index = CacheIndex(inputs.journal, parts.candidates, parts.settings.cache_delay_s)
    with named_at(inputs.place):
        custom = load_policy(policy, inputs.folder, parts.stream)
    named = NamedPolicy(policy, custom, inputs.place)
    return CustomRouter(named, parts.candidates, inputs.signals, index, inputs.pools, inputs.labels)


POLICIES: dict[str, Callable[[RouterParts], Router]] = {
    "round-robin": lambda parts: RoundRobin(parts.candidates),
    "random": lambda parts: RandomChoice(parts.candidates, parts.stream),
    "least-loaded": lambda parts: LeastLoaded(parts.candidates, parts.inputs.signals),
    "power-of-two": lambda parts: PowerOfTwo(parts.candidates, parts.inputs.signals, parts.stream),
    "session-sticky": lambda parts: SessionSticky(parts.candidates, parts.inputs.signals),
    "consistent-hash": _consistent_hash,
    "weighted": _weighted,
}

DRAWING = ("random", "power-of-two")
"""Policies that draw from their random stream."""

BY_SIGNALS: dict[str, Callable[[Signals], Scorer]] = {
    "queue-depth": scorers.QueueDepth,
    "kv-utilization": scorers.KvUtilization,
    "load-balance": scorers.LoadBalance,
    "active-requests": scorers.ActiveRequests,
    "running-requests": scorers.RunningRequests,
    "load-aware": scorers.LoadAware,
    "vllm-dp": scorers.VllmDp,
    "least-request": scorers.LeastRequest,
    "least-latency": scorers.LeastLatency,
    "predicted-latency": scorers.PredictedLatency,
    "token-load": scorers.TokenLoad,
    "prefix-affinity": prompt_scorers.PrefixAffinity,
    "kthena-prefix-cache": prompt_scorers.KthenaPrefixCache,
    "lora-affinity": prompt_scorers.LoraAffinity,
}

BY_CACHE: dict[str, Callable[[Signals, CacheIndex], Scorer]] = {
    "prefix-cache": prompt_scorers.PrefixCache,
    "no-hit-lru": prompt_scorers.NoHitLru,
}

SCORERS = ("prefix-cache", *BY_SIGNALS, "no-hit-lru")

ALIASES = {"precise-prefix-cache": "prefix-cache"}

DEFAULT_SCORERS = {"prefix-cache": 2.0, "queue-depth": 1.0, "kv-utilization": 1.0}

ESTIMATES = {"prefix-affinity": 1 << 40, "kthena-prefix-cache": prompt_scorers.KTHENA_LONGEST}
"""Scorers that estimate what is cached, and the most prompt tokens that each considers."""

NOT_JUDGED = ("no-hit-lru",)
"""Scorers that say nothing about the state of servers."""


def reads_signals(scorer: str) -> bool:
    """Whether a scorer reads the load that servers report when probed."""
    make = BY_SIGNALS.get(scorer)
    return make is not None and make(Signals([1], 0.0)).reads_signals()


def build_router(
    settings: "RouterSettings", candidates: list[int], inputs: RouterInputs, stream: Stream
) -> Router:
    """Builds a router over some of the servers; `stream` is for policies that draw."""
    make = POLICIES.get(settings.policy, _custom)
    return make(RouterParts(settings, candidates, inputs, stream))


def draws(settings: "RouterSettings", folder: Path) -> bool:
    """Whether a router's choices depend on its random stream."""
    policy = settings.policy
    if policy in POLICIES:
        return policy in DRAWING or (policy == "weighted" and settings.picker != MAX_SCORE)
    return takes_stream(policy_class(policy, folder))


def unknown_policy(policy: str) -> InputError:
    what = f"{policy!r} is not a policy"
    allowed = f"{', '.join(POLICIES)}, or a class of your own as package.module:Class"
    return InputError(what, allowed=allowed, hint=nearest(policy, POLICIES))


def build_counterfactual(
    settings: "RouterSettings", candidates: list[int], inputs: RouterInputs
) -> Counterfactual:
    """Builds the judge of a router's choices: its own scorers, on fresh signals.

    A scorer that estimates cached tokens is replaced by one that reads the caches. A policy without
    scorers is judged by the default ones.
    """
    signals = inputs.signals
    fresh = Signals(signals.slots, 0.0, signals.answering)
    fresh.in_flight = signals.in_flight
    fresh.tokens_in_flight = signals.tokens_in_flight
    fresh.ttft_s, fresh.tpot_s = signals.ttft_s, signals.tpot_s
    fresh.latency_seen_s = signals.latency_seen_s
    index = CacheIndex(inputs.journal, candidates, 0.0)
    weights = {name: w for name, w in settings.weights.items() if name not in NOT_JUDGED}
    built: list[tuple[Scorer, float]] = []
    for name, weight in (weights or DEFAULT_SCORERS).items():
        if name in ESTIMATES:
            scorer: Scorer = CachedShare(fresh, index, ESTIMATES[name])
        elif name in BY_CACHE:
            scorer = BY_CACHE[name](fresh, index)
        else:
            scorer = BY_SIGNALS[name](fresh)
        built.append((scorer, weight))
    yardstick = Weighted(candidates, fresh, built, index)
    return Counterfactual(settings.counterfactual, fresh, yardstick)
