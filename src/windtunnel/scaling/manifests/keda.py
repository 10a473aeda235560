"""KEDA's ScaledObject, as its users write it; its triggers are queries of Prometheus."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import (
    AnyText,
    Count,
    ManifestForm,
    Most,
    Opaque,
    Seconds,
    converted,
    number_in,
)
from windtunnel.scaling.manifests.hpa import HpaBehaviorForm
from windtunnel.scaling.manifests.pools import Assignment, PoolNames
from windtunnel.scaling.manifests.queries import SUM, asked
from windtunnel.scaling.policies.hpa import TOTAL, VALUE, HpaDown, HpaMetric, HpaUp
from windtunnel.scaling.policies.keda import KedaSettings
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Flag
from windtunnel.settings.section import ApiSection

PAUSES = (
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
)


class TriggerForm(ApiSection):
    """Something that asks for replicas."""

    type: AnyText = Field(description="Only `prometheus` is simulated.")
    name: AnyText | None = Field(default=None, description="Not used.")
    metric_type: Literal["AverageValue", "Value"] = Field(
        default="AverageValue", description="Whether `threshold` is of one replica or of all."
    )
    metadata: dict[str, AnyText] = Field(description="query, threshold, activationThreshold.")
    use_cached_metrics: Annotated[bool, Flag()] = Field(default=False, description="Not used.")
    authentication_ref: Opaque | None = Field(default=None, description="Not used.")


class HpaConfigForm(ApiSection):
    """What is said to the HPA."""

    name: AnyText | None = Field(default=None, description="Not used.")
    behavior: HpaBehaviorForm = Field(default_factory=HpaBehaviorForm, description="How fast.")


class AdvancedForm(ApiSection):
    """More of it."""

    to_come: ClassVar[tuple[str, ...]] = ("scalingModifiers",)

    restore_to_original_replica_count: Annotated[bool, Flag()] = Field(
        default=False, description="Not used: nothing is deleted."
    )
    horizontal_pod_autoscaler_config: HpaConfigForm = Field(
        default_factory=HpaConfigForm, description="What is said to the HPA."
    )


class ScaledObjectForm(ApiSection):
    """What a ScaledObject says."""

    scale_target_ref: Opaque = Field(description="What is scaled.")
    polling_interval: Seconds = Field(default=30, description="Not used: its HPA looks more often.")
    cooldown_period: Seconds | None = Field(
        default=None, description="How long it stays before zero."
    )
    initial_cooldown_period: Seconds = Field(default=0, description="Not used.")
    idle_replica_count: Count | None = Field(default=None, description="While nothing is active.")
    min_replica_count: Count = Field(default=0, description="The fewest replicas.")
    max_replica_count: Most = Field(default=100, description="The most replicas.")
    fallback: Opaque | None = Field(default=None, description="Not used: metrics never fail here.")
    advanced: AdvancedForm = Field(default_factory=AdvancedForm, description="More of it.")
    triggers: list[TriggerForm] = Field(min_length=1, max_length=32, description="What asks.")


class ScaledObject(ManifestForm):
    """A whole ScaledObject."""

    spec: ScaledObjectForm = Field(description="What it says.")

    def assignment(self, label: str, pools: PoolNames) -> tuple[Assignment | None, list[Fault]]:
        """Who scales which pool, or what is wrong."""
        spec = self.spec
        config = spec.advanced.horizontal_pod_autoscaler_config
        path = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")
        faults = [*self._bound_faults(), *config.behavior.faults(path)]
        name = spec.scale_target_ref.get("name")
        place = ("spec", "scaleTargetRef", "name")
        pool = pools.find(name if isinstance(name, str) else "", place)
        metrics, activations = [], []
        for number, trigger in enumerate(spec.triggers):
            found = _trigger(trigger, ("spec", "triggers", number))
            if isinstance(found, Fault):
                faults.append(found)
            else:
                metrics.append(found[0])
                activations.append(found[1])
        if len({*activations}) > 1:
            what = "triggers with different activationThresholds are not simulated"
            faults.append(Fault(("spec", "triggers"), what))
        if isinstance(pool, Fault):
            faults.append(pool)
        if faults or isinstance(pool, Fault):
            return None, faults
        idle = spec.idle_replica_count
        fewest = spec.min_replica_count if idle is None else idle
        policy = converted(
            KedaSettings,
            {"cooldown_period": "cooldown_s", "idle_replica_count": "idle"},
            spec,
            policy="keda",
            metrics=metrics,
            up=config.behavior.scale_up.direction(HpaUp),
            down=config.behavior.scale_down.direction(HpaDown),
            activation=activations[0],
            least=max(spec.min_replica_count, 1),
            pools={pool: PoolBounds(min=fewest, max=spec.max_replica_count)},
        )
        return Assignment(label, policy), []

    def _bound_faults(self) -> list[Fault]:
        spec, faults = self.spec, []
        if spec.min_replica_count > spec.max_replica_count:
            what = f"MinReplicaCount={spec.min_replica_count} must be less than MaxReplicaCount"
            what += f"={spec.max_replica_count}"
            faults.append(Fault(("spec", "minReplicaCount"), what))
        idle = spec.idle_replica_count
        if idle is not None and idle >= spec.min_replica_count:
            what = f"IdleReplicaCount={idle} must be less than MinReplicaCount"
            what += f"={spec.min_replica_count}"
            faults.append(Fault(("spec", "idleReplicaCount"), what))
        for name in self.metadata.annotations or {}:
            if name in PAUSES:
                place = ("metadata", "annotations", name)
                faults.append(Fault(place, "a paused object scales nothing", hint="leave it out"))
        return faults


def _trigger(trigger: TriggerForm, path: KeyPath) -> tuple[HpaMetric, float] | Fault:
    """The metric that a trigger asks for, and what it takes to be active."""
    if trigger.type != "prometheus":
        return Fault((*path, "type"), f"{trigger.type!r} is not simulated", "prometheus")
    here = (*path, "metadata")
    for key in ("query", "threshold"):
        if key not in trigger.metadata:
            return Fault((*here, key), "missing")
    try:
        found = asked(trigger.metadata["query"])
    except InputError as error:
        return Fault((*here, "query"), error.what, error.allowed, error.hint)
    if found.aggregate != SUM:
        what = f"KEDA takes the answer for a total, and this is {found.aggregate}"
        return Fault((*here, "query"), what, "sum(...)")
    threshold = number_in(trigger.metadata["threshold"])
    if threshold is None or threshold <= 0:
        what = f"{trigger.metadata['threshold']!r} is no such threshold"
        return Fault((*here, "threshold"), what, "a number above 0")
    written = trigger.metadata.get("activationThreshold", "0")
    activation = number_in(written)
    if activation is None:
        return Fault((*here, "activationThreshold"), f"{written!r} is not a number", "a number")
    kind = TOTAL if trigger.metric_type == "AverageValue" else VALUE
    return HpaMetric(name=found.name, target=threshold, type=kind), activation
