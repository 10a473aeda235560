"""The generated CRDs: structural, with Grove's names and paths, and no field of a set is pruned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.gangs.manifests import constraint, the_clique, the_group, workload
from windtunnel.cli.live.operate import operate
from windtunnel.gangs.kubernetes.crds import crds
from windtunnel.scaling.kubernetes.crds import crds as scaling_crds
from windtunnel.settings.crds import KEPT

EXAMPLES = Path(__file__).parents[3] / "examples" / "gangs"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": float}
KEYS = {
    *("type", "description", "properties", "required", "items", "additionalProperties", "enum"),
    *("default", "pattern", "minimum", "maximum", "maxLength", "minItems", "maxItems", "anyOf"),
    *(KEPT, "x-kubernetes-int-or-string", "x-kubernetes-validations", "x-kubernetes-map-type"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}
STATUS = {
    "PodCliqueSet": "observedGeneration conditions lastErrors replicas updatedReplicas "
    "availableReplicas hpaPodSelector podGangStatuses currentGenerationHash updateProgress",
    "PodClique": "observedGeneration lastErrors replicas readyReplicas updatedReplicas "
    "scheduleGatedReplicas scheduledReplicas hpaPodSelector conditions "
    "currentPodCliqueSetGenerationHash currentPodTemplateHash updateProgress",
    "PodCliqueScalingGroup": "replicas scheduledReplicas availableReplicas updatedReplicas "
    "selector observedGeneration lastErrors conditions currentPodCliqueSetGenerationHash "
    "updateProgress",
    "PodGang": "phase conditions placementScore",
}
SELECTORS = {
    "PodCliqueSet": ".status.hpaPodSelector",
    "PodClique": ".status.hpaPodSelector",
    "PodCliqueScalingGroup": ".status.selector",
}
SHORT = {"pcs", "pclq", "pcsg", "pg", "ct"}


def version(crd: dict[str, Any]) -> dict[str, Any]:
    (found,) = crd["spec"]["versions"]
    assert isinstance(found, dict)
    return found


def schemas() -> dict[str, dict[str, Any]]:
    return {one["spec"]["names"]["kind"]: version(one)["schema"]["openAPIV3Schema"]
            for one in crds()}  # fmt: skip


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for key, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


@pytest.mark.parametrize("kind", schemas())
def test_every_value_has_one_type_and_only_keys_that_an_api_server_knows(kind: str) -> None:
    for path, node in nodes(schemas()[kind], kind):
        assert set(node) <= KEYS, path
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
            continue
        assert node["type"] in {*TYPES, "boolean"}, path
        assert "anyOf" not in node, path
        if node["type"] == "array":
            assert node["items"], path
        if "default" in node:
            assert ".status" not in path, path


def test_names_scale_paths_and_status_fields_are_those_of_grove() -> None:
    found = {one["spec"]["names"]["kind"]: one for one in crds()}
    assert {name for one in found.values() for name in one["spec"]["names"]["shortNames"]} == SHORT
    for kind, one in found.items():
        names, group = one["spec"]["names"], one["spec"]["group"]
        assert one["metadata"]["name"] == f"{names['plural']}.{group}"
        assert group == ("scheduler.grove.io" if kind == "PodGang" else "grove.io")
        scale = version(one)["subresources"].get("scale")
        assert (scale or {}).get("labelSelectorPath") == SELECTORS.get(kind)
        known = version(one)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert set(STATUS.get(kind, "").split()) <= set(known)
        for column in version(one)["additionalPrinterColumns"]:
            first, *_, last = column["jsonPath"].split(".")[1:]
            assert first in ("metadata", "spec", "status")
            below = version(one)["schema"]["openAPIV3Schema"]["properties"][first]
            text = str(below)
            assert first == "metadata" or last.rstrip("]") in text, column


def pruned(schema: dict[str, Any], value: Any) -> Any:
    """What an API server keeps of a value; it fails on one of another type."""
    if schema.get("x-kubernetes-int-or-string"):
        assert isinstance(value, int | str)
        return value
    if schema["type"] == "boolean":
        assert isinstance(value, bool)
    else:
        assert isinstance(value, TYPES[schema["type"]]), (schema, value)
    if "enum" in schema:
        assert value in schema["enum"]
    if schema["type"] == "array":
        return [pruned(schema["items"], one) for one in value]
    if schema["type"] != "object" or schema.get(KEPT):
        return value
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    assert set(schema.get("required", [])) <= set(value)
    return {
        key: pruned(known.get(key, more), one)
        for key, one in value.items()
        if key in known or more is not None
    }


def rich() -> dict[str, Any]:
    manifest = workload(5, terminationDelay="4h", priorityClassName="high")
    spec = manifest["spec"]["template"]
    spec["topologyConstraint"] = constraint("zone", topology="cluster")
    spec["headlessServiceConfig"] = {"publishNotReadyAddresses": False}
    spec["resourceSharing"] = [{"name": "t", "scope": "PerReplica"}]
    the_group(manifest)["scaleConfig"] = {"maxReplicas": 4, "metrics": [{"type": "Resource"}]}
    the_clique(manifest)["labels"] = {"app": "chat"}
    the_clique(manifest)["rollingUpdate"] = {"maxUnavailable": "25%", "maxSurge": 1}
    the_clique(manifest)["spec"]["podSpec"]["affinity"] = {"podAffinity": {"x": [1]}}
    manifest["spec"]["updateStrategy"] = {"type": "RollingRecreate"}
    return manifest


def written() -> list[dict[str, Any]]:
    found = [workload(number) for number in range(1, 7)] + [rich()]
    for path in sorted(EXAMPLES.glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(path.read_text()) if one and "kind" in one]
    return found


def test_nothing_of_a_manifest_is_pruned() -> None:
    known, seen = schemas(), set()
    for one in written():
        if one["kind"] in known:
            seen.add(one["kind"])
            spec = known[one["kind"]]["properties"]["spec"]
            assert pruned(spec, one["spec"]) == one["spec"]
    assert {"PodCliqueSet", "ClusterTopologyBinding"} <= seen


def test_the_command_prints_what_kubectl_applies() -> None:
    plain = CliRunner().invoke(operate, ["crds"], catch_exceptions=False)
    everything = [*crds(), *scaling_crds()]
    assert list(yaml.safe_load_all(plain.output)) == everything
    listed = CliRunner().invoke(operate, ["crds", "--json"], catch_exceptions=False)
    assert yaml.safe_load(listed.output)["items"] == everything


@pytest.mark.parametrize(("feature", "groups"), [("gangs", {"grove.io", "scheduler.grove.io"}),
                                                 ("autoscale", {"windtunnel.dev"})])  # fmt: skip
def test_the_kinds_of_one_feature_are_printed(feature: str, groups: set[str]) -> None:
    printed = CliRunner().invoke(operate, ["crds", "--for", feature], catch_exceptions=False)
    assert {one["spec"]["group"] for one in yaml.safe_load_all(printed.output)} == groups
