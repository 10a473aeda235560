"""What an autoscaler sees: models, their variants and replicas, the traffic since the last look.

The twin and a live cluster fill the same values, so a policy cannot tell which of the two it runs
in. A variant is one way to run a model (accelerator, parallelism, role); a pool of a scenario is
one, a Deployment or a scaling group of a cluster is one. Everything is as of `taken_s`, which may
be some time before the decision.
"""

import math
from typing import Final

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StepTimes:
    """How long an engine of a variant takes for a step: what a predictive policy plans with."""

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        """Seconds of a step with these new prompt tokens and so many sequences that decode.

        `context_tokens` is the sum of what the decoding sequences attend to.
        """
        raise NotImplementedError


class ReplicaView:
    """A ready replica, as it was last asked."""

    def __init__(
        self,
        name: str,
        *,
        waiting: int = 0,
        running: int = 0,
        expected: int = 0,
        kv_tokens_used: float = 0.0,
        kv_tokens: float = 0.0,
        ttft_s: float = 0.0,
        tpot_s: float = 0.0,
    ) -> None:
        self.name: Final = name
        self.waiting: Final = waiting  # requests in its queue
        self.running: Final = running  # requests in its batch
        # Requests that need it and are in neither: on their way, or between prefill and decode.
        self.expected: Final = expected
        self.kv_tokens_used: Final = kv_tokens_used
        self.kv_tokens: Final = kv_tokens  # tokens that fit
        self.ttft_s: Final = ttft_s  # mean over the answers that ended lately; 0: none did
        self.tpot_s: Final = tpot_s

    @property
    def kv_used(self) -> float:
        """The share of its KV cache in use."""
        return self.kv_tokens_used / self.kv_tokens if self.kv_tokens > 0 else 0.0


class ReplicaSpec:
    """One replica of a variant: its accelerators, its price, and the limits of its engine."""

    def __init__(
        self,
        *,
        accelerator: str = "",
        accelerators: int = 1,
        price_per_hour: float = 0.0,
        startup_s: float = 0.0,
        kv_tokens: float = 0.0,
        max_num_seqs: int = 0,
        max_num_batched_tokens: int = 0,
        step_times: StepTimes | None = None,
    ) -> None:
        self.accelerator: Final = accelerator
        self.accelerators: Final = accelerators
        self.price_per_hour: Final = price_per_hour
        self.startup_s: Final = startup_s  # mean time from asked for to ready
        self.kv_tokens: Final = kv_tokens  # tokens that fit; 0: unknown
        self.max_num_seqs: Final = max_num_seqs  # 0: unknown
        self.max_num_batched_tokens: Final = max_num_batched_tokens  # 0: unknown
        self.step_times: Final = step_times


class ReplicaCounts:
    """Replicas of a variant by state, besides those that are ready and answered."""

    def __init__(
        self,
        target: int = 0,
        *,
        starting: int = 0,
        draining: int = 0,
        pending: int = 0,
        missing: int = 0,
    ) -> None:
        self.target: Final = target  # what was last asked for
        self.starting: Final = starting  # placed, and loading the model
        self.draining: Final = draining  # no new requests, and some left to finish
        self.pending: Final = pending  # asked for, and not placed
        self.missing: Final = missing  # ready, and did not answer when they were asked


class Variant:
    """One way to run a model, and its replicas by state."""

    def __init__(
        self,
        name: str,
        *,
        role: str = "both",
        spec: ReplicaSpec | None = None,
        minimum: int = 0,
        maximum: int = 1_000_000,
        counts: ReplicaCounts | None = None,
        replicas: list[ReplicaView] | None = None,
    ) -> None:
        each = ReplicaSpec() if spec is None else spec
        many = ReplicaCounts() if counts is None else counts
        self.name: Final = name
        self.role: Final = role  # both, prefill or decode
        self.minimum: Final = minimum
        self.maximum: Final = maximum
        self.replicas: Final[list[ReplicaView]] = replicas or []  # the ready ones that answered
        # Of one replica:
        self.accelerator: Final = each.accelerator
        self.accelerators: Final = each.accelerators
        self.price_per_hour: Final = each.price_per_hour
        self.startup_s: Final = each.startup_s
        self.kv_tokens: Final = each.kv_tokens
        self.max_num_seqs: Final = each.max_num_seqs
        self.max_num_batched_tokens: Final = each.max_num_batched_tokens
        self.step_times: Final = each.step_times
        # Of all of them:
        self.target: Final = many.target
        self.starting: Final = many.starting
        self.draining: Final = many.draining
        self.pending: Final = many.pending
        self.missing: Final = many.missing

    @property
    def ready(self) -> int:
        return len(self.replicas) + self.missing

    @property
    def coming(self) -> int:
        """Replicas that are asked for and cannot serve yet."""
        return self.starting + self.pending


class RequestLengths:
    """Mean lengths of the requests of an interval; 0: there were none."""

    def __init__(
        self,
        prompt_tokens: float = 0.0,
        *,
        prompt_cv: float = 0.0,
        output_tokens: float = 0.0,
        prefix_hit: float = 0.0,
    ) -> None:
        self.prompt_tokens: Final = prompt_tokens  # of those that arrived
        self.prompt_cv: Final = prompt_cv  # standard deviation of those, over their mean
        self.output_tokens: Final = output_tokens  # of those that completed
        self.prefix_hit: Final = prefix_hit  # share of prompt tokens found in a cache


class MeanLatencies:
    """Of the requests that completed in an interval; 0: none did."""

    def __init__(self, *, ttft_s: float = 0.0, tpot_s: float = 0.0, e2e_s: float = 0.0) -> None:
        self.ttft_s: Final = ttft_s
        self.tpot_s: Final = tpot_s
        self.e2e_s: Final = e2e_s


class Flow:
    """The traffic of a model over the `interval_s` before the snapshot."""

    def __init__(
        self,
        interval_s: float = 0.0,
        *,
        arrived: int = 0,
        completed: int = 0,
        met: int = 0,
        lengths: RequestLengths | None = None,
        latencies: MeanLatencies | None = None,
    ) -> None:
        of = RequestLengths() if lengths is None else lengths
        after = MeanLatencies() if latencies is None else latencies
        self.interval_s: Final = interval_s
        self.arrived: Final = arrived
        self.completed: Final = completed
        self.met: Final = met  # of those that completed: within the targets of their class
        self.prompt_tokens: Final = of.prompt_tokens
        self.prompt_cv: Final = of.prompt_cv
        self.output_tokens: Final = of.output_tokens
        self.prefix_hit: Final = of.prefix_hit
        self.ttft_s: Final = after.ttft_s
        self.tpot_s: Final = after.tpot_s
        self.e2e_s: Final = after.e2e_s


def joined(flows: list[Flow]) -> Flow:
    """One flow of several intervals, means weighted by what they are means of."""
    arrived = completed = met = 0
    interval_s = prompt = squares = output = hits = ttft_s = tpot_s = e2e_s = 0.0
    for flow in flows:
        interval_s += flow.interval_s
        arrived += flow.arrived
        completed += flow.completed
        met += flow.met
        prompt += flow.prompt_tokens * flow.arrived
        squares += flow.prompt_tokens**2 * (1.0 + flow.prompt_cv**2) * flow.arrived
        output += flow.output_tokens * flow.completed
        hits += flow.prefix_hit * flow.completed
        ttft_s += flow.ttft_s * flow.completed
        tpot_s += flow.tpot_s * flow.completed
        e2e_s += flow.e2e_s * flow.completed
    came, ended = max(1, arrived), max(1, completed)
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


class Objective:
    """What the model's users were promised; 0 is no promise."""

    def __init__(
        self, ttft_s: float = 0.0, tpot_s: float = 0.0, e2e_s: float = 0.0, attained: float = 0.95
    ) -> None:
        self.ttft_s: Final = ttft_s
        self.tpot_s: Final = tpot_s
        self.e2e_s: Final = e2e_s
        self.attained: Final = attained  # the share of requests for which it must hold


class Model:
    """A model, the variants that serve it, what comes in, and what waits before any replica."""

    def __init__(
        self,
        name: str,
        variants: list[Variant],
        *,
        flow: Flow | None = None,
        queued: int = 0,
        queued_prompt_tokens: float = 0.0,
        objective: Objective | None = None,
    ) -> None:
        self.name: Final = name
        self.variants: Final = variants
        self.flow: Final = flow or Flow()
        self.queued: Final = queued  # requests at the gateway, on no replica
        self.queued_prompt_tokens: Final = queued_prompt_tokens
        self.objective: Final = objective or Objective()


class Snapshot:
    """All models at one moment."""

    def __init__(
        self, taken_s: float, models: list[Model], free: dict[str, int] | None = None
    ) -> None:
        self.taken_s: Final = taken_s
        self.models: Final = models
        self.free: Final = free  # accelerators that nobody uses, by kind; None: without end
