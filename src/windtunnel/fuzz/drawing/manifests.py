"""Draws the autoscaler of a scenario as Kubernetes manifests, one for each pool."""

from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.settings.drawing import Dice, Values

KEPT = ("interval", "scrape_delay", "freshness", "actuation_delay", "wake")
"""Timing keys of `scaling`, which manifests do not have."""
METRICS = {"vllm:num_requests_waiting": 5.0, "vllm:num_requests_running": 8.0}
KNATIVE = "autoscaling.knative.dev"


def draw_manifests(swarm: Swarm, scaling: Values, file: str) -> tuple[Values, list[Values]] | None:
    """A `scaling` section that names manifests in place of the drawn one, and the manifests."""
    if not swarm.has("scaling-manifests"):
        return None
    dice = swarm.dice("scaling-manifests")
    made = [
        dice.pick(_hpa, _scaled_object, _pod_autoscaler, _service)(dice, pool, bounds)
        for pool, bounds in scaling["pools"].items()
    ]
    return {"manifests": [file], **{key: scaling[key] for key in KEPT if key in scaling}}, made


def _object(version: str, kind: str, name: str, spec: Values) -> Values:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _metric(dice: Dice) -> tuple[str, str]:
    name = dice.pick(*METRICS)
    return name, f"{METRICS[name] * dice.span(0.1, 2.0):.3g}"


def _hpa(dice: Dice, pool: str, bounds: Values) -> Values:
    name, target = _metric(dice)
    number = {"type": "AverageValue", "averageValue": target}
    metric = {"type": "Pods", "pods": {"metric": {"name": name}, "target": number}}
    spec: Values = {
        "scaleTargetRef": {"kind": "Deployment", "name": pool},
        "minReplicas": max(1, bounds["min"]),
        "maxReplicas": bounds["max"],
        "metrics": [metric],
    }
    if dice.chance(0.7):
        window = {"stabilizationWindowSeconds": dice.pick(0, 5, 30)}
        spec["behavior"] = {"scaleDown": window}
    return _object("autoscaling/v2", "HorizontalPodAutoscaler", pool, spec)


def _scaled_object(dice: Dice, pool: str, bounds: Values) -> Values:
    name, target = _metric(dice)
    trigger: Values = {
        "serverAddress": "http://prometheus:9090",
        "query": f'sum({name}{{app="{pool}"}})',
        "threshold": target,
    }
    if dice.chance(0.4):
        trigger["activationThreshold"] = dice.pick("0", "1", "3")
    spec: Values = {
        "scaleTargetRef": {"name": pool},
        "minReplicaCount": bounds["min"],
        "maxReplicaCount": bounds["max"],
        "triggers": [{"type": "prometheus", "metadata": trigger}],
    }
    if dice.chance(0.7):
        spec["cooldownPeriod"] = dice.pick(0, 2, 30)
    return _object("keda.sh/v1alpha1", "ScaledObject", pool, spec)


def _pod_autoscaler(dice: Dice, pool: str, bounds: Values) -> Values:
    name, target = _metric(dice)
    source = {
        "metricSourceType": "pod",
        "protocolType": "http",
        "port": "8000",
        "path": "metrics",
        "targetMetric": name.removeprefix("vllm:"),
        "targetValue": target,
    }
    spec = {
        "scalingStrategy": dice.pick("APA", "KPA", "HPA"),
        "minReplicas": max(1, bounds["min"]),
        "maxReplicas": bounds["max"],
        "metricsSources": [source],
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool},
    }
    return _object("autoscaling.aibrix.ai/v1alpha1", "PodAutoscaler", pool, spec)


def _service(dice: Dice, pool: str, bounds: Values) -> Values:
    annotations = {
        "min-scale": str(bounds["min"]),
        "max-scale": str(bounds["max"]),
        "target": str(dice.few(1, 8)),
        "window": f"{dice.whole(6, 60)}s",
    }
    if dice.chance(0.4):
        annotations["scale-down-delay"] = f"{dice.whole(0, 20)}s"
    named = {f"{KNATIVE}/{key}": value for key, value in annotations.items()}
    spec = {"template": {"metadata": {"annotations": named}}}
    return _object("serving.knative.dev/v1", "Service", pool, spec)
