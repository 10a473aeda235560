"""From pods and their metrics to the snapshot that policies decide on.

Pods with the same value of a label form one replica, such as those of a scaling group. A replica is
ready when all its pods are, and has answered when one of them reported its load; a ready one that
has not is `missing`, which policies handle as Kubernetes does. Counters are remembered by pod uid:
one that is lower than before was reset, and its value is itself the increase. If some ready
replicas did not answer, the traffic is extrapolated from the others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import convert, to_builtins

from windtunnel.scaling.kubernetes.pages import (
    CACHE_HITS,
    CACHE_LOOKUPS,
    COMPLETED,
    E2E,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    TPOT,
    TTFT,
    HistogramSums,
    PodReading,
)
from windtunnel.scaling.kubernetes.plan import ScaledTarget, ScalingPlan
from windtunnel.scaling.snapshot import (
    Flow,
    MeanLatencies,
    Model,
    Objective,
    ReplicaCounts,
    ReplicaView,
    RequestLengths,
    Snapshot,
    TtftPercentiles,
    Variant,
)

WITHOUT_END: Final = 10**12
"""Stands for an unlimited number of accelerators of a kind."""
UNKNOWN_KV: Final = 1.0
"""Placeholder for an unknown KV capacity in tokens; the share in use is still right."""


class PodView(NamedTuple):
    """A pod as the API server shows it."""

    uid: str
    name: str
    created_s: float
    address: str = ""
    labels: Mapping[str, str] = {}
    bound: bool = True
    ready: bool = True
    terminating: bool = False
    ended: bool = False
    """Failed or succeeded, so that it is ignored."""


class PoolObservation(NamedTuple):
    """One target as observed: its requested size and its pods."""

    size: int
    pods: Sequence[PodView] = ()
    external: Mapping[str, float] | None = None
    """Results of the policy's queries, by metric."""
    uid: str = ""
    """The target's uid: a re-created target has no earlier orders."""


class _Earlier(NamedTuple):
    at_s: float
    reading: PodReading


class _Traffic:
    """Increases of one model's counters and histograms over an interval."""

    def __init__(self) -> None:
        self.arrived = 0.0
        self.counters: Final[dict[str, float]] = {}
        self.histograms: Final = {what: HistogramSums() for what in (TTFT, TPOT, E2E)}

    def add(self, what: str, amount: float) -> None:
        self.counters[what] = self.counters.get(what, 0.0) + amount

    def merge(self, what: str, more: HistogramSums, weight: float) -> None:
        known = self.histograms[what]
        buckets = dict(known.buckets)
        for bound, count in more.buckets.items():
            buckets[bound] = buckets.get(bound, 0.0) + weight * count
        total, count = known.total + weight * more.total, known.count + weight * more.count
        self.histograms[what] = HistogramSums(dict(sorted(buckets.items())), total, count)


class SnapshotBuilder:
    """Builds the snapshots for one policy; remembers the counters of the last tick."""

    def __init__(self, plan: ScalingPlan) -> None:
        self._plan: Final = plan
        self._earlier: dict[str, _Earlier] = {}
        self._taken_s = -math.inf

    def take(
        self,
        pools: Mapping[str, PoolObservation],
        readings: Mapping[str, PodReading],
        queued: int,
        now_s: float,
    ) -> Snapshot:
        """Builds a snapshot; `readings` are by pod uid, and a pod without one did not answer."""
        traffic = _Traffic()
        earlier: dict[str, _Earlier] = {}
        variants = []
        for target in self._plan.targets:
            look = pools[target.pool]
            views: list[ReplicaView] = []
            counts = {"starting": 0, "draining": 0, "pending": 0, "missing": 0}
            gained = _Traffic()
            for name, pods in _replicas(look.pods, target.replica_label):
                state = _state(pods)
                if state != "ready":
                    counts[state] += 1
                    continue
                answers = [
                    (pod, reading)
                    for pod in pods
                    if (reading := readings.get(pod.uid)) is not None
                    and self._counts(reading, target)
                ]
                if not self._plan.asks_pods:
                    views.append(ReplicaView(name))
                    continue
                if not answers:
                    counts["missing"] += 1
                    continue
                increases = [self._increase(pod, reading, now_s) for pod, reading in answers]
                for pod, reading in answers:
                    earlier[pod.uid] = _Earlier(now_s, reading)
                views.append(_replica(name, [one for _, one in answers], increases, target))
                for increase in increases:
                    _gain(gained, increase, target.role)
            ready = len(views) + counts["missing"]
            _carry(traffic, gained, ready / len(views) if views else 1.0)
            there = ready + counts["starting"] + counts["pending"]
            counts["pending"] += max(0, look.size - there)
            variants.append(
                Variant(
                    target.pool,
                    role=target.role,
                    spec=target.replica,
                    minimum=target.bounds.min,
                    maximum=target.bounds.max,
                    counts=ReplicaCounts(look.size, **counts),
                    replicas=views,
                    external=None if look.external is None else dict(look.external),
                )
            )
        interval_s = now_s - self._taken_s
        heard = any(variant.replicas for variant in variants)
        knows = math.isfinite(interval_s) and interval_s > 0.0 and heard
        objective = self._plan.objective
        flow = _flow(traffic, interval_s, objective) if knows else Flow()
        self._remember(earlier, pools, now_s)
        model = Model(
            self._plan.model, variants, flow=flow, queued=queued, objective=objective,
            queued_prompt_tokens=queued * flow.lengths.prompt_tokens,
        )  # fmt: skip
        return Snapshot(now_s, [model], self._free(variants))

    def state(self) -> dict[str, Any]:
        """The counters of the last tick, as plain data."""
        taken_s = self._taken_s if math.isfinite(self._taken_s) else None
        return {"taken_s": taken_s, "earlier": to_builtins(self._earlier, str_keys=True)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state`."""
        taken_s = state["taken_s"]
        self._taken_s = -math.inf if taken_s is None else float(taken_s)
        self._earlier = convert(state["earlier"], dict[str, _Earlier], str_keys=True)

    def _free(self, variants: Sequence[Variant]) -> dict[str, int] | None:
        """Free accelerators within the policy's limits, neither in use nor requested."""
        limits = self._plan.setup.accelerators
        if limits is None:
            return None
        free = {one.spec.accelerator: WITHOUT_END for one in variants} | limits
        for one in variants:
            there = one.ready + one.coming + one.counts.draining
            free[one.spec.accelerator] -= there * one.spec.accelerators
        return free

    def _counts(self, reading: PodReading, target: ScaledTarget) -> bool:
        """Whether a scrape is usable: it reports load and, where required, KV capacity."""
        return reading.says_load and (
            not self._plan.needs_capacity
            or reading.kv_tokens is not None
            or target.replica.kv_tokens > 0
        )

    def _increase(self, pod: PodView, reading: PodReading, now_s: float) -> "_Increase | None":
        """The increase since the last tick; None: an older pod without an earlier reading."""
        before = self._earlier.get(pod.uid)
        span_s = now_s - self._taken_s
        if before is None:
            # A pod newer than the last tick has counted nothing before it.
            return _Increase(reading, 1.0) if pod.created_s >= self._taken_s > 0.0 else None
        gap_s = now_s - before.at_s
        weight = min(1.0, span_s / gap_s) if gap_s > 0.0 else 1.0
        return _Increase(_since(before.reading, reading), weight)

    def _remember(
        self, seen: dict[str, _Earlier], pools: Mapping[str, PoolObservation], now_s: float
    ) -> None:
        """Keeps the latest reading of each pod that still exists."""
        alive = {pod.uid for look in pools.values() for pod in look.pods}
        kept = {uid: one for uid, one in self._earlier.items() if uid in alive}
        self._earlier = {**kept, **seen}
        self._taken_s = now_s


class _Increase(NamedTuple):
    reading: PodReading
    """Increases of counters and histograms, and the changes in load."""
    weight: float
    """The fraction of it that falls within the interval."""


def _since(before: PodReading, after: PodReading) -> PodReading:
    counts = [
        *after.counters.items(),
        *((what, one.count) for what, one in after.histograms.items()),
    ]
    known = {**before.counters, **{what: one.count for what, one in before.histograms.items()}}
    if any(value < known.get(what, 0.0) for what, value in counts):
        return after  # the server was restarted
    histograms = {}
    for what, one in after.histograms.items():
        old = before.histograms.get(what, HistogramSums())
        buckets = {
            bound: max(0.0, count - old.buckets.get(bound, 0.0))
            for bound, count in one.buckets.items()
        }
        total, count = max(0.0, one.total - old.total), one.count - old.count
        histograms[what] = HistogramSums(buckets, total, count)
    return PodReading(
        (after.waiting or 0) - (before.waiting or 0),
        (after.running or 0) - (before.running or 0),
        counters={
            what: value - before.counters.get(what, 0.0) for what, value in after.counters.items()
        },
        histograms=histograms,
    )


def _gain(traffic: _Traffic, increase: _Increase | None, role: str) -> None:
    """Adds an increase: prompts count at prefill servers, completions at decode servers."""
    if increase is None:
        return
    reading, weight = increase
    if role in ("both", "prefill"):
        first = reading.histograms.get(TTFT)
        waiting = reading.waiting or 0
        if first is None:
            came = reading.counters.get(COMPLETED, 0.0) + waiting + (reading.running or 0)
        else:
            came = first.count + waiting
            traffic.merge(TTFT, first, weight)
        traffic.arrived += weight * came
        for what in (PROMPT_TOKENS, CACHE_HITS, CACHE_LOOKUPS):
            traffic.add(what, weight * reading.counters.get(what, 0.0))
    if role in ("both", "decode"):
        for what in (COMPLETED, OUTPUT_TOKENS):
            traffic.add(what, weight * reading.counters.get(what, 0.0))
        for what in (TPOT, E2E):
            if what in reading.histograms:
                traffic.merge(what, reading.histograms[what], weight)


def _carry(traffic: _Traffic, gained: _Traffic, factor: float) -> None:
    traffic.arrived += factor * gained.arrived
    for what, amount in gained.counters.items():
        traffic.add(what, factor * amount)
    for what, one in gained.histograms.items():
        traffic.merge(what, one, factor)


def _flow(traffic: _Traffic, interval_s: float, objective: Objective) -> Flow:
    counters, histograms = traffic.counters, traffic.histograms
    completed = counters.get(COMPLETED, 0.0)
    first = histograms[TTFT]
    return Flow(
        interval_s,
        arrived=max(0, round(traffic.arrived)),
        completed=max(0, round(completed)),
        met=math.floor(round(completed) * _attained(histograms, objective)),
        lengths=RequestLengths(
            _over(counters.get(PROMPT_TOKENS, 0.0), first.count or completed),
            output_tokens=_over(counters.get(OUTPUT_TOKENS, 0.0), completed),
            prefix_hit=min(
                1.0, _over(counters.get(CACHE_HITS, 0.0), counters.get(CACHE_LOOKUPS, 0.0))
            ),
        ),
        latencies=MeanLatencies(
            ttft_s=_over(first.total, first.count),
            tpot_s=_over(histograms[TPOT].total, histograms[TPOT].count),
            e2e_s=_over(histograms[E2E].total, histograms[E2E].count),
        ),
        ttft=TtftPercentiles(*(quantile(first.buckets, share) for share in (0.9, 0.95, 0.99))),
    )


def _attained(histograms: Mapping[str, HistogramSums], objective: Objective) -> float:
    """An upper bound on SLO attainment: the lowest share within any single target."""
    bounds = {TTFT: objective.ttft_s, TPOT: objective.tpot_s, E2E: objective.e2e_s}
    return min(
        share_below(histograms[what].buckets, bound_s) if bound_s > 0.0 else 1.0
        for what, bound_s in bounds.items()
    )


def _over(amount: float, count: float) -> float:
    return amount / count if count > 0.0 else 0.0


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """As `histogram_quantile`: interpolated within a bucket; 0 for an empty histogram."""
    counts = list(buckets.items())
    if not counts or counts[-1][1] <= 0.0:
        return 0.0
    rank = share * counts[-1][1]
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= rank and count > below:
            return (
                low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
            )
        low, below = (low if math.isinf(bound) else bound), max(count, below)
    return low


def share_below(buckets: Mapping[float, float], bound_s: float) -> float:
    """The share of values up to a bound, interpolated within a bucket; 1 for an empty histogram."""
    counts = list(buckets.items())
    if not counts or counts[-1][1] <= 0.0:
        return 1.0
    low, below = 0.0, 0.0
    for bound, count in counts:
        if bound_s <= bound:
            part = 0.0 if math.isinf(bound) else (bound_s - low) / (bound - low)
            return min(1.0, (below + part * max(0.0, count - below)) / counts[-1][1])
        low, below = bound, max(count, below)
    return 1.0


def _replicas(pods: Sequence[PodView], label: str) -> Iterable[tuple[str, list[PodView]]]:
    """The name and pods of each replica."""
    found: dict[str, list[PodView]] = {}
    for pod in sorted(pods, key=lambda one: one.name):
        if not pod.ended:
            key = pod.labels.get(label, pod.name) if label else pod.name
            found.setdefault(key, []).append(pod)
    return found.items()


def _state(pods: Sequence[PodView]) -> str:
    if any(pod.terminating for pod in pods):
        return "draining"
    if all(pod.ready for pod in pods):
        return "ready"
    return "starting" if all(pod.bound for pod in pods) else "pending"


def _replica(
    name: str,
    readings: Sequence[PodReading],
    increases: Sequence[_Increase | None],
    target: ScaledTarget,
) -> ReplicaView:
    used = [one.kv_used for one in readings if one.kv_used is not None]
    tokens = float(sum(one.kv_tokens or 0 for one in readings)) or target.replica.kv_tokens
    tokens = tokens or UNKNOWN_KV
    times = {}
    for what in (TTFT, TPOT):
        found = [one.reading.histograms.get(what) for one in increases if one is not None]
        sums = [one for one in found if one is not None]
        times[what] = _over(sum(one.total for one in sums), sum(one.count for one in sums))
    return ReplicaView(
        name,
        waiting=sum(one.waiting or 0 for one in readings),
        running=sum(one.running or 0 for one in readings),
        kv_tokens_used=tokens * math.fsum(used) / len(used) if used else 0.0,
        kv_tokens=tokens,
        ttft_s=times[TTFT],
        tpot_s=times[TPOT],
    )
