"""Manifests of the tests: whole ones, that single tests bend."""

import copy
from typing import Any

import yaml

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import Assignment
from windtunnel.scaling.manifests.load import read as read_texts
from windtunnel.scaling.manifests.names import ScenarioNames

KTHENA = "workload.serving.volcano.sh/v1alpha1"
POOLS = ["llm", "h100", "a100", "prefill", "decode"]

HOMOGENEOUS: dict[str, Any] = {
    "apiVersion": KTHENA,
    "kind": "AutoscalingPolicy",
    "metadata": {"name": "policy"},
    "spec": {
        "metrics": [{"name": "vllm:num_requests_waiting", "targetValue": "10"}],
        "homogeneousTarget": {
            "target": {
                "targetRef": {"kind": "ModelServing", "name": "llm"},
                "metricSources": {"vllm:num_requests_waiting": {"pod": {"port": 8000}}},
            },
            "minReplicas": 1,
            "maxReplicas": 5,
        },
    },
}


def disaggregated() -> dict[str, Any]:
    source = {"kv": {"pod": {"name": "vllm:kv_cache_usage_perc"}}}
    role = {"minReplicas": 1, "metricSources": source}
    policy = homogeneous()
    policy["spec"] = {
        "metrics": [{"name": "kv", "targetValue": "800m"}],
        "disaggregatedTarget": {
            "targetRef": {"name": "llm"},
            "roles": {
                "prefill": {**copy.deepcopy(role), "maxReplicas": 8},
                "decode": {**copy.deepcopy(role), "maxReplicas": 16},
            },
            "ratioConstraint": {
                "numeratorRole": "prefill",
                "denominatorRole": "decode",
                "minRatio": "250m",
                "maxRatio": "1",
            },
        },
    }
    return policy


def heterogeneous() -> dict[str, Any]:
    policy = homogeneous()
    target = policy["spec"].pop("homogeneousTarget")["target"]
    params = []
    for name, cost, most in (("h100", 30, 4), ("a100", 10, 8)):
        own = {**copy.deepcopy(target), "targetRef": {"kind": "ModelServing", "name": name}}
        params.append({"target": own, "cost": cost, "minReplicas": 1, "maxReplicas": most})
    policy["spec"]["heterogeneousTarget"] = {"params": params}
    return policy


def homogeneous() -> dict[str, Any]:
    return copy.deepcopy(HOMOGENEOUS)


def bent(manifest: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """The manifest with another value at `spec.a.0.b`; None takes the key away."""
    *inside, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    node: Any = manifest
    for key in inside:
        node = node[key] if isinstance(key, int) else node.setdefault(key, {})
    if value is None:
        del node[last]
    else:
        node[last] = value
    return manifest


def read(*manifests: dict[str, Any] | str, **targets: str) -> list[Assignment]:
    text = "---\n".join(
        one if isinstance(one, str) else yaml.safe_dump(one, sort_keys=False) for one in manifests
    )
    named = {name.replace("__", "/"): pool for name, pool in targets.items()}
    return read_texts([(text, "autoscaling.yaml")], ScenarioNames(POOLS, named)).assignments


def faults(*manifests: dict[str, Any] | str, **targets: str) -> list[str]:
    """What is said, without the place in the file."""
    try:
        read(*manifests, **targets)
    except InputError as error:
        found = getattr(error, "faults", (error,))
        return [f"{(one.where or '').split(': ')[-1]}: {one.what}" for one in found]
    return []
