"""Admission reviews of sets: the rules of files, and defaults that change nothing else."""

import base64
import copy
from typing import Any

import msgspec
import pytest

from tests.gangs.manifests import clique, group, load_set, pod_clique_set, workload
from windtunnel.gangs.kubernetes.admission import Review, defaulted, probe_set, validated


def review(new: dict[str, Any], old: dict[str, Any] | None = None) -> Review:
    asked: dict[str, Any] = {"uid": "u", "namespace": "team", "object": new, "oldObject": old}
    asked["operation"] = "CREATE" if old is None else "UPDATE"
    return msgspec.convert(asked, Review)


def patched(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a JSON patch of `add`s makes of a set."""
    made = copy.deepcopy(manifest)
    patch = defaulted(review(manifest)).get("patch")
    for step in msgspec.json.decode(base64.b64decode(patch)) if patch else []:
        assert step["op"] == "add"
        *path, last = step["path"].strip("/").split("/")
        at: Any = made
        for key in path:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = step["value"]
    return made


@pytest.mark.parametrize("number", range(1, 7))
def test_defaults_say_what_is_assumed_and_change_nothing(number: int) -> None:
    manifest = workload(number)
    template = manifest["spec"]["template"]
    del template["cliques"][0]["spec"]["minAvailable"]
    del template["podCliqueScalingGroups"][0]["minAvailable"]
    template["cliques"][0]["spec"]["autoScalingConfig"] = {"maxReplicas": 9}
    full = patched(manifest)
    assert full != manifest
    assert full["spec"]["template"]["cliques"][0]["spec"]["autoScalingConfig"]["minReplicas"] == 2
    assert load_set(full).spec == load_set(manifest).spec, "with the same hash of its pods"
    assert patched(full) == full


def test_a_set_that_is_wrong_is_refused_in_the_words_of_validate() -> None:
    manifest = pod_clique_set([clique("a"), clique("b")], [group("g", ["a", "x"])])
    response = validated(review(manifest), None)
    assert not response["allowed"]
    assert "cliqueNames[1]: there is no clique 'x'; allowed: a, b" in response["status"]["message"]
    assert "patch" not in defaulted(review({"spec": 7, "metadata": {}}))
    assert not validated(review({"spec": 7, "metadata": {"name": "x"}}), None)["allowed"]


@pytest.mark.parametrize("containers", ["x", [None], [{"name": "m", "resources": "lots"}]])
def test_containers_of_a_wrong_type_get_no_defaults_and_are_refused(containers: object) -> None:
    manifest = pod_clique_set([clique("a")])
    manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"] = containers
    assert "patch" not in defaulted(review(manifest))
    response = validated(review(manifest), None)
    assert "podSpec.containers" in response["status"]["message"]


def test_what_may_not_change_is_refused_and_what_did_not_is_not_judged() -> None:
    wrong = pod_clique_set([clique("a")], [group("g", ["x"])])
    labelled = {**wrong, "metadata": {**wrong["metadata"], "labels": {"a": "b"}}}
    assert validated(review(labelled, wrong), None)["allowed"]
    assert "patch" not in defaulted(review(labelled, wrong))
    going = {
        **wrong,
        "metadata": {**wrong["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    going["spec"] = {}
    assert validated(review(going, wrong), None)["allowed"], "finalizers can be taken off"
    right = workload(1)
    other = workload(1, cliqueStartupType="CliqueStartupTypeInOrder")
    assert "cannot become" in validated(review(other, right), None)["status"]["message"]
    assert validated(review(right, wrong), None)["allowed"], "a set that was wrong can be mended"


def test_warnings_come_along_and_a_probe_is_refused() -> None:
    manifest = workload(1)
    manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["restartPolicy"] = "Never"
    response = validated(review(manifest), None)
    assert response["allowed"]
    assert "restartPolicy is ignored" in response["warnings"][0]
    probe = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", **probe_set("n", "abc")}
    assert validated(review(probe), None)["status"]["message"] == "probe abc"
