"""The input of an autoscaler: models, their variants and replicas, and recent traffic.

The twin and a live cluster fill the same values, so a policy cannot tell which of the two it runs
in. A variant is one way to run a model (accelerator, parallelism, role), such as a pool of a
scenario, or a Deployment or scaling group of a cluster. Everything is as of `taken_s`, which may be
some time before the decision.
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from mypy_extensions import mypyc_attr

LARGEST: Final = 1e15
MOST: Final = 10**15
"""Upper bound on counts in a snapshot (`LARGEST`: on lengths and times); more is an error."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StepTimes:
    """The step times of a variant's engine, with which a predictive policy plans."""

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        """Seconds per step with these new prompt tokens and this many decoding sequences.

        `context_tokens` is the sum over the contexts of the decoding sequences.
        """
        raise NotImplementedError


@dataclass
class ReplicaView:
    """A ready replica, as of its last answer."""

    name: str
    _: KW_ONLY
    waiting: int = 0
    """Requests in its queue."""
    running: int = 0
    """Requests in its batch."""
    expected: int = 0
    """Requests assigned to it that are in neither: on their way, or between prefill and decode."""
    kv_tokens_used: float = 0.0
    kv_tokens: float = 0.0
    """KV-cache capacity in tokens."""
    ttft_s: float = 0.0
    """Mean over recently completed answers; 0: there were none."""
    tpot_s: float = 0.0

    @property
    def kv_used(self) -> float:
        """The share of its KV cache in use."""
        return self.kv_tokens_used / self.kv_tokens if self.kv_tokens > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ReplicaSpec:
    """One replica of a variant: its accelerators, its price, and the limits of its engine."""

    accelerator: str = ""
    accelerators: int = 1
    price_per_hour: float = 0.0
    startup_s: float = 0.0
    """Mean time from request to ready."""
    kv_tokens: float = 0.0
    """KV-cache capacity in tokens; 0: unknown."""
    max_num_seqs: int = 0
    """0: unknown."""
    max_num_batched_tokens: int = 0
    """0: unknown."""
    step_times: StepTimes | None = None


@dataclass(frozen=True)
class ReplicaCounts:
    """Replicas of a variant by state, apart from the ready ones that answered."""

    target: int = 0
    """The size last requested."""
    _: KW_ONLY
    starting: int = 0
    """Placed, and loading the model."""
    draining: int = 0
    """Finishing their requests, without accepting new ones."""
    pending: int = 0
    """Requested, but not placed."""
    missing: int = 0
    """Ready, but did not answer."""


@dataclass(frozen=True)
class Variant:
    """One way to run a model, and its replicas by state."""

    name: str
    _: KW_ONLY
    role: str = "both"
    """`both`, `prefill` or `decode`."""
    spec: ReplicaSpec = field(default_factory=ReplicaSpec)
    minimum: int = 0
    maximum: int = 1_000_000
    counts: ReplicaCounts = field(default_factory=ReplicaCounts)
    replicas: list[ReplicaView] = field(default_factory=list)
    """The ready replicas that answered."""
    external: dict[str, float] | None = None
    """Results of the policy's queries, by metric; None: queries are computed from replicas."""

    @property
    def target(self) -> int:
        """The size last requested."""
        return self.counts.target

    @property
    def ready(self) -> int:
        return len(self.replicas) + self.counts.missing

    @property
    def coming(self) -> int:
        """Replicas that are requested but cannot serve yet."""
        return self.counts.starting + self.counts.pending


@dataclass(frozen=True)
class RequestLengths:
    """Mean lengths of the requests of an interval; 0: there were none."""

    prompt_tokens: float = 0.0
    """Of the requests that arrived."""
    _: KW_ONLY
    prompt_cv: float = 0.0
    """Standard deviation of prompt lengths over their mean."""
    output_tokens: float = 0.0
    """Of the requests that completed."""
    prefix_hit: float = 0.0
    """Share of prompt tokens found in a prefix cache."""


@dataclass(frozen=True, kw_only=True)
class MeanLatencies:
    """Mean latencies of the requests completed in an interval; 0: there were none."""

    ttft_s: float = 0.0
    tpot_s: float = 0.0
    e2e_s: float = 0.0


@dataclass(frozen=True)
class TtftPercentiles:
    """TTFT percentiles of the requests completed in an interval; 0: there were none."""

    p90_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0


@dataclass(frozen=True)
class Flow:
    """The traffic of a model over the `interval_s` before the snapshot."""

    interval_s: float = 0.0
    _: KW_ONLY
    arrived: int = 0
    completed: int = 0
    met: int = 0
    """Completed requests within the targets of their class."""
    lengths: RequestLengths = field(default_factory=RequestLengths)
    latencies: MeanLatencies = field(default_factory=MeanLatencies)
    ttft: TtftPercentiles = field(default_factory=TtftPercentiles)


def joined(flows: list[Flow]) -> Flow:
    """Merges the flows of several intervals into one, with weighted means.

    Percentiles cannot be merged and are left at 0.
    """
    arrived = completed = met = came = ended = 0
    interval_s = prompt = squares = output = hits = ttft_s = tpot_s = e2e_s = 0.0
    for flow in flows:
        interval_s += flow.interval_s
        arrived += flow.arrived
        completed += flow.completed
        met += flow.met
        if flow.lengths.prompt_tokens > 0.0:  # otherwise its lengths are unknown
            came += flow.arrived
        if flow.lengths.output_tokens > 0.0:
            ended += flow.completed
        prompt += flow.lengths.prompt_tokens * flow.arrived
        squares += flow.lengths.prompt_tokens**2 * (1.0 + flow.lengths.prompt_cv**2) * flow.arrived
        output += flow.lengths.output_tokens * flow.completed
        hits += flow.lengths.prefix_hit * flow.completed
        ttft_s += flow.latencies.ttft_s * flow.completed
        tpot_s += flow.latencies.tpot_s * flow.completed
        e2e_s += flow.latencies.e2e_s * flow.completed
    came, ended = max(1, came), max(1, ended)
    mean = prompt / came
    spread = math.sqrt(max(0.0, squares / came - mean * mean))
    return Flow(
        interval_s,
        arrived=arrived,
        completed=completed,
        met=met,
        lengths=RequestLengths(
            prompt_tokens=mean,
            prompt_cv=spread / mean if mean > 0.0 else 0.0,
            output_tokens=output / ended,
            prefix_hit=hits / ended,
        ),
        latencies=MeanLatencies(ttft_s=ttft_s / ended, tpot_s=tpot_s / ended, e2e_s=e2e_s / ended),
    )


@dataclass(frozen=True)
class Objective:
    """The latency targets of a model; 0: none."""

    ttft_s: float = 0.0
    tpot_s: float = 0.0
    e2e_s: float = 0.0
    attained: float = 0.95
    """The share of requests that must meet them."""


@dataclass(frozen=True)
class Model:
    """A model, its variants, its traffic, and the requests queued before any replica."""

    name: str
    variants: list[Variant]
    _: KW_ONLY
    flow: Flow = field(default_factory=Flow)
    queued: int = 0
    """Requests queued at the gateway, on no replica."""
    queued_prompt_tokens: float = 0.0
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True)
class Snapshot:
    """All models at one moment."""

    taken_s: float
    models: list[Model]
    free: dict[str, int] | None = None
    """Free accelerators by kind; None: unlimited."""


def believable(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot without impossible numbers: negative, too large, or NaN.

    A replica or query with such a number counts as not having answered. Impossible lengths and
    latencies of a flow become unknown (0), and a flow with impossible counts becomes empty.
    """
    if all(map(_is_sound, snapshot.models)):
        return snapshot
    return replace(snapshot, models=[_cleaned(model) for model in snapshot.models])


def _can_be(value: float) -> bool:
    return 0.0 <= value <= LARGEST


def _answers(replica: ReplicaView) -> bool:
    return (
        0 <= replica.waiting <= MOST
        and 0 <= replica.running <= MOST
        and 0 <= replica.expected <= MOST
        and _can_be(replica.kv_tokens_used)
        and _can_be(replica.kv_tokens)
        and _can_be(replica.ttft_s)
        and _can_be(replica.tpot_s)
    )


def _flow_numbers(flow: Flow) -> list[float]:
    lengths, latencies, ttft = flow.lengths, flow.latencies, flow.ttft
    return [
        lengths.prompt_tokens,
        lengths.prompt_cv,
        lengths.output_tokens,
        lengths.prefix_hit,
        latencies.ttft_s,
        latencies.tpot_s,
        latencies.e2e_s,
        ttft.p90_s,
        ttft.p95_s,
        ttft.p99_s,
    ]


def _counts(flow: Flow) -> bool:
    counted = 0 <= flow.arrived <= MOST and 0 <= flow.completed <= MOST and 0 <= flow.met <= MOST
    return counted and _can_be(flow.interval_s)


def _is_sound(model: Model) -> bool:
    for variant in model.variants:
        for replica in variant.replicas:
            if not _answers(replica):
                return False
        if variant.external is not None and not all(map(_can_be, variant.external.values())):
            return False
    waiting = 0 <= model.queued <= MOST and _can_be(model.queued_prompt_tokens)
    return waiting and _counts(model.flow) and all(map(_can_be, _flow_numbers(model.flow)))


def _cleaned(model: Model) -> Model:
    variants = []
    for variant in model.variants:
        answered = [replica for replica in variant.replicas if _answers(replica)]
        missing = variant.ready - len(answered)
        counts = replace(variant.counts, missing=missing)
        external = variant.external
        if external is not None:
            external = {name: value for name, value in external.items() if _can_be(value)}
        variants.append(replace(variant, counts=counts, replicas=answered, external=external))
    flow = model.flow if _counts(model.flow) else Flow()
    numbers = [value if _can_be(value) else 0.0 for value in _flow_numbers(flow)]
    flow = replace(
        flow,
        lengths=RequestLengths(
            numbers[0], prompt_cv=numbers[1], output_tokens=numbers[2], prefix_hit=numbers[3]
        ),
        latencies=MeanLatencies(ttft_s=numbers[4], tpot_s=numbers[5], e2e_s=numbers[6]),
        ttft=TtftPercentiles(numbers[7], numbers[8], numbers[9]),
    )
    queued = model.queued if 0 <= model.queued <= MOST else 0
    tokens = model.queued_prompt_tokens
    return replace(
        model,
        variants=variants,
        flow=flow,
        queued=queued,
        queued_prompt_tokens=tokens if _can_be(tokens) else 0.0,
    )
