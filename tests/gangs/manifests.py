"""Manifests that the tests start from; `workload` makes those of the reference scenarios."""

from collections.abc import Callable, Sequence
from typing import Any

import yaml

from windtunnel.gangs.api.load import Manifests, NamedSet, load_manifests_text


def clique(name: str, replicas: int = 1, minimum: int | None = None, **spec: Any) -> dict[str, Any]:
    """A role whose pods ask for 80 Mi, so that one fits on a node of 150 Mi."""
    asks = {"requests": {"memory": "80Mi"}}
    pod = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "busybox:1", "resources": asks}],
    }
    counts = {"replicas": replicas, "minAvailable": replicas if minimum is None else minimum}
    return {"name": name, "spec": {"roleName": name, "podSpec": pod, **counts, **spec}}


def group(name: str, roles: Sequence[str], replicas: int = 1, minimum: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "cliqueNames": list(roles),
        "replicas": replicas,
        "minAvailable": minimum,
    }


def pod_clique_set(
    cliques: Sequence[dict[str, Any]],
    groups: Sequence[dict[str, Any]] = (),
    replicas: int = 1,
    name: str = "web",
    strategy: dict[str, Any] | None = None,
    **template: Any,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "replicas": replicas,
        "template": {"cliques": list(cliques), **template},
    }
    if groups:
        spec["template"]["podCliqueScalingGroups"] = list(groups)
    if strategy is not None:
        spec["updateStrategy"] = strategy
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def workload(number: int, replicas: int = 1, **template: Any) -> dict[str, Any]:
    """WL1 to WL6: pc-a alone, pc-b and pc-c in the scaling group sg-x of two replicas.

    Odd ones guarantee everything, even ones the least; 3 and 4 start in order, 5 and 6 as written.
    """
    full = number % 2 == 1
    a, b = clique("pc-a", 2, 2 if full else 1), clique("pc-b", 1)
    c = clique("pc-c", 3, 3 if full else 1)
    sg = group("sg-x", ["pc-b", "pc-c"], 2, 2 if full else 1)
    if number in (3, 4):
        template["cliqueStartupType"] = "CliqueStartupTypeInOrder"
    if number in (5, 6):
        template["cliqueStartupType"] = "CliqueStartupTypeExplicit"
        after = {5: (c, "pc-a", b, "pc-c"), 6: (b, "pc-a", c, "pc-b")}[number]
        after[0]["spec"]["startsAfter"] = [after[1]]
        after[2]["spec"]["startsAfter"] = [after[3]]
    return pod_clique_set([a, b, c], [sg], replicas, **template)


def binding(name: str = "cluster", **levels: str) -> dict[str, Any]:
    """A topology; its levels are given as domain=key, broadest first."""
    levels = levels or {"zone": "zone-key", "block": "block-key", "rack": "rack-key"}
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "ClusterTopologyBinding",
        "metadata": {"name": name},
        "spec": {"levels": [{"domain": domain, "key": key} for domain, key in levels.items()]},
    }


def load(*manifests: dict[str, Any]) -> Manifests:
    text = "---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests)
    return load_manifests_text(text, "m.yaml")


def load_set(manifest: dict[str, Any]) -> NamedSet:
    return load(manifest).sets[0]


def template_of(manifest: dict[str, Any]) -> Any:
    return manifest["spec"]["template"]


def the_clique(manifest: dict[str, Any], number: int = 0) -> Any:
    return template_of(manifest)["cliques"][number]


def the_pod(manifest: dict[str, Any]) -> Any:
    return the_clique(manifest)["spec"]["podSpec"]


def the_group(manifest: dict[str, Any]) -> Any:
    return template_of(manifest)["podCliqueScalingGroups"][0]


def put(**values: Any) -> Callable[[Any], None]:
    return lambda section: section.update(values)


def constraint(required: str = "", preferred: str = "", topology: str = "") -> dict[str, Any]:
    pack = {key: word for key, word in (("required", required), ("preferred", preferred)) if word}
    return {"pack": pack, **({"topologyName": topology} if topology else {})}
