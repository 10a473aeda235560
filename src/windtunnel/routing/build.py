"""Builds the router that a plan asks for: the one table of policies, and the one of scorers."""

from collections.abc import Callable

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.routing import prompt_scorers, scorers
from windtunnel.routing.counterfactual import Counterfactual
from windtunnel.routing.custom import CustomRouter, Labels, is_custom, load_policy, policy_class
from windtunnel.routing.load_balancing import LeastLoaded, PowerOfTwo, RandomChoice, RoundRobin
from windtunnel.routing.plan import RouterPlan, ScorerPlan
from windtunnel.routing.prefixes import CacheIndex, CacheJournal
from windtunnel.routing.prompt_scorers import CachedShare
from windtunnel.routing.router import Router
from windtunnel.routing.scorers import Scorer
from windtunnel.routing.sticky import ConsistentHash, SessionSticky
from windtunnel.routing.weighted import Weighted

POLICIES = (
    "round-robin",
    "random",
    "least-loaded",
    "power-of-two",
    "session-sticky",
    "consistent-hash",
    "weighted",
)

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

GUESSES = {"prefix-affinity": 1 << 40, "kthena-prefix-cache": prompt_scorers.KTHENA_LONGEST}
"""Scorers that guess what is cached, and of how many tokens of the prompt."""

HABITS = ("no-hit-lru",)
"""Scorers that say nothing of the servers as they are."""

DEFAULT_SCORERS = (
    ScorerPlan("prefix-cache", 2.0),
    ScorerPlan("queue-depth", 1.0),
    ScorerPlan("kv-utilization", 1.0),
)


def looks_at_servers(scorer: str) -> bool:
    """Whether a scorer goes by what servers say when they are asked, which may be old."""
    make = BY_SIGNALS.get(scorer)
    return make is not None and make(Signals([1], 0.0)).reads_signals()


def build_router(
    plan: RouterPlan,
    candidates: list[int],
    signals: Signals,
    stream: Stream,
    journal: CacheJournal,
    pools: list[str] | None = None,
    labels: Labels | None = None,
) -> Router:
    """A router over some of the servers.

    Routers that run side by side share `journal`, and servers write to it only when one of them
    reads what is cached. `pools` names the pool of each server and `labels` what requests have as
    numbers, for policies of your own.
    """
    policy = plan.policy
    if policy == "round-robin":
        return RoundRobin(candidates)
    if policy == "random":
        return RandomChoice(candidates, stream)
    if policy == "least-loaded":
        return LeastLoaded(candidates, signals)
    if policy == "power-of-two":
        return PowerOfTwo(candidates, signals, stream)
    if policy == "session-sticky":
        return SessionSticky(candidates, signals)
    if policy == "consistent-hash":
        return ConsistentHash(candidates, signals, plan.virtual_nodes, plan.load_factor)
    if policy == "weighted":
        return _weighted(plan, candidates, signals, journal)
    if not is_custom(policy):
        raise unknown_policy(policy)
    index = CacheIndex(journal, candidates, plan.cache_delay_s)
    names = pools or [""] * len(signals.slots)
    chooser = load_policy(policy, plan.folder, stream)
    return CustomRouter(policy, chooser, candidates, signals, index, names, labels or Labels())


def unknown_policy(policy: str) -> InputError:
    what = f"{policy!r} is no policy"
    allowed = f"{', '.join(POLICIES)}, or a class of your own as package.module:Class"
    return InputError(what, allowed=allowed, hint=nearest(policy, POLICIES))


def policy_fault(plan: RouterPlan) -> InputError | None:
    """What is wrong with a class of somebody's own, once its module is looked at."""
    if plan.policy in POLICIES:
        return None
    try:
        policy_class(plan.policy, plan.folder)
    except InputError as fault:
        return fault
    return None


def _weighted(
    plan: RouterPlan, candidates: list[int], signals: Signals, journal: CacheJournal
) -> Weighted:
    chosen = plan.scorers or DEFAULT_SCORERS
    index = None
    if any(scorer.name in BY_CACHE for scorer in chosen):
        index = CacheIndex(journal, candidates, plan.cache_delay_s)
    built: list[tuple[Scorer, float]] = []
    for scorer in chosen:
        if index is not None and scorer.name in BY_CACHE:
            built.append((BY_CACHE[scorer.name](signals, index), scorer.weight))
        else:
            built.append((BY_SIGNALS[scorer.name](signals), scorer.weight))
    return Weighted(candidates, signals, built, index)


def build_counterfactual(
    plan: RouterPlan,
    candidates: list[int],
    signals: Signals,
    journal: CacheJournal,
) -> Counterfactual:
    """What judges the choices of a plan's router: its own scorers, on fresh signals.

    What a router only guesses at is replaced by what it guesses, and its habits have no say. A
    policy that scores nothing is held against the default scorers.
    """
    fresh = Signals(signals.slots, 0.0, signals.answering)
    fresh.in_flight = signals.in_flight
    fresh.ttft_s, fresh.tpot_s = signals.ttft_s, signals.tpot_s
    index = CacheIndex(journal, candidates, 0.0)
    built: list[tuple[Scorer, float]] = []
    for scorer in [s for s in plan.scorers if s.name not in HABITS] or DEFAULT_SCORERS:
        if scorer.name in GUESSES:
            opinion: Scorer = CachedShare(fresh, index, GUESSES[scorer.name])
        elif scorer.name in BY_CACHE:
            opinion = BY_CACHE[scorer.name](fresh, index)
        else:
            opinion = BY_SIGNALS[scorer.name](fresh)
        built.append((opinion, scorer.weight))
    yardstick = Weighted(candidates, fresh, built, index)
    return Counterfactual(plan.counterfactual, fresh, yardstick)
