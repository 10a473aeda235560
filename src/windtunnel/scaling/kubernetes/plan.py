"""What one autoscaling object of a cluster comes to: targets, policy, and where metrics are."""

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
"""By kind of target: the label whose value the pods of one replica share."""

SHARES_ONLY: Final = ("hpa", "keda", "knative", "aibrix")
"""Policies that never count tokens of KV cache; those of Kthena do not, either."""


class ObjectName(NamedTuple):
    """An object of the API, by its version, kind, namespace and name."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ScaledTarget(NamedTuple):
    """What is scaled: one pool of the policy, one object with a scale subresource."""

    pool: str
    named: ObjectName
    bounds: PoolBounds
    role: str = "both"
    selector: str = ""
    """Labels of the pods that are asked, beside the selector of the object's scale."""
    selects_alone: bool = False
    """The selector of the scale is not for pods that are asked."""
    replica_label: str = ""
    """Pods that share its value are one replica; empty: each pod is one."""
    port: int = 8000
    path: str = "/metrics"
    replica: ReplicaSpec = ReplicaSpec()
    cannot: str = ""
    """Why no order can be given, and a size is only recommended."""


class PrometheusSource(NamedTuple):
    """Pods are not asked: Prometheus has what they said."""

    pod_label: str = "pod"


class ExternalQuery(NamedTuple):
    """A metric of a pool that is the answer to a query."""

    pool: str
    metric: str
    url: str
    query: str


class QueueSource(NamedTuple):
    """A gateway's page of metrics, and the one that counts its queued requests."""

    url: str
    metric: str


class ScalingPlan(NamedTuple):
    """All that one object asks for."""

    model: str
    targets: tuple[ScaledTarget, ...]
    setup: ScalingSetup
    objective: Objective = Objective()
    prometheus: PrometheusSource | None = None
    """None: pods are asked."""
    queries: tuple[ExternalQuery, ...] = ()
    asks_pods: bool = True
    """Whether pods have anything to say: not where every metric is the answer to a query."""
    queue: QueueSource | None = None
    recommends_only: bool = False

    @property
    def needs_capacity(self) -> bool:
        """Whether the policy counts tokens, so that it must know how many fit."""
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
    """An object that wants to scale its targets."""

    named: ObjectName
    created: str
    targets: tuple[ScaledTarget, ...]
    acts: bool


def taken_targets(
    claimants: Iterable[Claimant], others: Mapping[TargetKey, str]
) -> dict[ObjectName, dict[str, str]]:
    """By object and pool: rivals for a target. The oldest object has it, and `others` first.

    What only recommends claims no target.
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
    """An object that cannot be carried out; the sentence says all that is wrong with it."""


class PlanBug(InvalidPlan):
    """An object that a bug keeps from being carried out; its cause is the exception."""


Made = TypeVar("Made")


def attempt(make: Callable[[], Made]) -> Made | InvalidPlan:
    """What `make` returns; a bug that one object brings to light must not stop the others."""
    try:
        return make()
    except InvalidPlan as error:
        return error
    except Exception as error:  # noqa: BLE001 - any bug
        bug = PlanBug(f"a bug in Windtunnel keeps it from being read, please report it: {error!r}")
        bug.__cause__ = error
        return bug


class LinearStepTimes(StepTimes):
    """Step times by a fixed cost and costs per unit of work, as the `linear` model has them."""

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
