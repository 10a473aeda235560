"""The plan of one autoscaling object on a cluster: targets, policy, and metric sources."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from windtunnel.core.errors import WindtunnelError
from windtunnel.scaling.build import ScalingSetup
from windtunnel.scaling.settings import PoolBounds
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, StepTimes

REPLICA_LABELS: Final = {
    "PodCliqueSet": "grove.io/podcliqueset-replica-index",
    "PodCliqueScalingGroup": "grove.io/podcliquescalinggroup-replica-index",
}
"""By kind of target: the label whose value is shared by the pods of one replica."""

SHARES_ONLY: Final = ("hpa", "keda", "knative", "aibrix")
"""Policies that never count KV-cache tokens; nor do those of Kthena."""


class ObjectName(NamedTuple):
    """The name of an API object: version, kind, namespace and name."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ScaledTarget(NamedTuple):
    """A target to scale: one pool of the policy, one object with a scale subresource."""

    pool: str
    named: ObjectName
    bounds: PoolBounds
    role: str = "both"
    selector: str = ""
    """A label selector for the pods to scrape, in addition to the selector of the scale."""
    selects_alone: bool = False
    """Whether `selector` replaces the selector of the scale."""
    replica_label: str = ""
    """Pods with the same value of this label form one replica; empty: each pod is a replica."""
    port: int = 8000
    path: str = "/metrics"
    replica: ReplicaSpec = ReplicaSpec()
    cannot: str = ""
    """Why no order can be issued, so that the size is only recommended."""


class PrometheusSource(NamedTuple):
    """Pod metrics come from Prometheus instead of from the pods."""

    pod_label: str = "pod"


class ExternalQuery(NamedTuple):
    """A metric of a pool that is the result of a Prometheus query."""

    pool: str
    metric: str
    url: str
    query: str


class QueueSource(NamedTuple):
    """A gateway's metrics page, and its metric for queued requests."""

    url: str
    metric: str


class ScalingPlan(NamedTuple):
    """Everything that one object asks for."""

    model: str
    targets: tuple[ScaledTarget, ...]
    setup: ScalingSetup
    objective: Objective = Objective()
    prometheus: PrometheusSource | None = None
    """None: the pods themselves are scraped."""
    queries: tuple[ExternalQuery, ...] = ()
    asks_pods: bool = True
    """Whether pods are scraped: not if every metric comes from a query."""
    queue: QueueSource | None = None
    recommends_only: bool = False

    @property
    def needs_capacity(self) -> bool:
        """Whether the policy counts tokens and so needs the KV-cache capacity."""
        return not any(
            policy.policy in SHARES_ONLY or policy.policy.startswith("kthena-")
            for _, policy in self.setup.policies
        )

    @property
    def interval_s(self) -> float:
        return self.setup.timing.interval_s

    @property
    def oldest_s(self) -> float:
        return self.setup.timing.oldest_s


TargetKey = tuple[str, str, str]
"""Kind, namespace and name of a target."""


class Claimant(NamedTuple):
    """An object that would scale its targets."""

    named: ObjectName
    created: str
    targets: tuple[ScaledTarget, ...]
    acts: bool


def taken_targets(
    claimants: Iterable[Claimant], others: Mapping[TargetKey, str]
) -> dict[ObjectName, dict[str, str]]:
    """By object and pool: the rival that has the target: one of `others`, else the oldest object.

    An object that only recommends claims no target.
    """
    owners = dict(others)
    taken: dict[ObjectName, dict[str, str]] = {}
    for one in sorted(claimants, key=lambda one: (one.created, one.named)):
        for target in one.targets:
            key = (target.named.kind, target.named.namespace, target.named.name)
            if target.cannot:
                continue
            if key in owners:
                taken.setdefault(one.named, {})[target.pool] = owners[key]
            elif one.acts:
                owners[key] = str(one.named)
    return taken


class InvalidPlan(WindtunnelError):
    """An object that cannot be carried out; the message lists every fault in it."""


class PlanBug(InvalidPlan):
    """An object that cannot be carried out because of a bug; its cause is the exception."""


Made = TypeVar("Made")


def attempt(make: Callable[[], Made]) -> Made | InvalidPlan:
    """Returns the result of `make` or its error: a bug with one object must not stop others."""
    try:
        return make()
    except InvalidPlan as error:
        return error
    except Exception as error:  # noqa: BLE001 - any bug
        bug = PlanBug(f"a bug in Windtunnel keeps it from being read, please report it: {error!r}")
        bug.__cause__ = error
        return bug


class LinearStepTimes(StepTimes):
    """Step times from a fixed cost and costs per unit of work, as in the `linear` model."""

    def __init__(
        self, fixed_s: float, prefill_token_s: float, decode_s: float, context_token_s: float
    ) -> None:
        self._costs: Final = (fixed_s, prefill_token_s, decode_s, context_token_s)

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        if not prefill_tokens and not decoding:
            return 0.0
        fixed_s, prefill_s, decode_s, context_s = self._costs
        return (
            fixed_s + prefill_s * prefill_tokens + decode_s * decoding + context_s * context_tokens
        )
