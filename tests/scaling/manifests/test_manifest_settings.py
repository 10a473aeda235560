"""Manifests in the `scaling` section: which pools they scale, and what is told of faults."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.scaling.sections import ServingPool, faults_beside
from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.scaling.build import ScalingSection, build_scaler, setup_of
from windtunnel.scaling.manifests.settings import ManifestSettings
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.faults import checker_faults, dotted
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.load import load_text

POOLS = [ServingPool("main", 2), ServingPool("spare", 1)]

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm}
spec:
  scaleTargetRef: {name: TARGET}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods:
      metric: {name: queue_depth}
      target: {type: AverageValue, averageValue: 5}
"""


class Whole(Section):
    """A file with a scaling section."""

    scaling: ScalingSection | None = None


def section(**written: Any) -> ManifestSettings:
    found = Whole.read({"scaling": {"manifests": ["a.yaml"], **written}}).scaling
    assert isinstance(found, ManifestSettings)
    return found


def manifest(folder: Path, target: str = "main") -> Path:
    (folder / "a.yaml").write_text(HPA.replace("TARGET", target))
    return folder


def test_manifests_scale_the_pools_that_they_name(tmp_path: Path) -> None:
    made = setup_of(section(), POOLS, manifest(tmp_path))
    assert made.bounds == {"main": PoolBounds(min=1, max=10), "spare": PoolBounds(min=1, max=1)}
    assert [(source, list(policy.pools)) for source, policy in made.policies] == [
        ("HorizontalPodAutoscaler llm", ["main"])
    ]
    assert made.timing.interval_s == 15.0
    assert build_scaler(made, ["m"]).oldest_s == 45.0


def test_a_target_may_have_another_name(tmp_path: Path) -> None:
    written = section(targets={"llm-deployment": "spare"}, interval="5s", wake=False)
    made = setup_of(written, POOLS, manifest(tmp_path, "llm-deployment"))
    assert made.bounds["spare"] == PoolBounds(min=1, max=10)
    assert (made.timing.interval_s, made.policies[0].policy.wake) == (5.0, False)


def test_pools_that_nobody_may_fill_are_refused(tmp_path: Path) -> None:
    pools = [
        ServingPool("main", 2, "prefill"),
        ServingPool("spare", 0, "decode"),
    ]
    with pytest.raises(InputError) as caught:
        setup_of(section(), pools, manifest(tmp_path))
    assert caught.value.what == (
        "no pool that writes answers may have a server: nothing would ever be served"
    )
    assert caught.value.where == "scaling.manifests"


def test_a_deployment_beside_it_is_noted(tmp_path: Path) -> None:
    folder = manifest(tmp_path)
    file = folder / "a.yaml"
    file.write_text(
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: main}}\n---\n{file.read_text()}"
    )
    made = setup_of(section(), POOLS, folder)
    assert made.bounds["main"] == PoolBounds(min=1, max=10)
    assert made.notes() == list(made.remarks)
    assert "1 Deployment" in made.remarks[0]


def test_the_digest_of_a_scenario_covers_its_manifests(tmp_path: Path) -> None:
    scenario = SMALL + "scaling: {manifests: [a.yaml]}\n"
    manifest(tmp_path)
    file = str(tmp_path / "scenario.yaml")
    first = load_text(scenario, file).sha256
    assert load_text(scenario, file).sha256 == first
    (tmp_path / "a.yaml").write_text(HPA.replace("TARGET", "main").replace("10", "11"))
    assert load_text(scenario, file).sha256 != first


def test_knative_looks_more_often(tmp_path: Path) -> None:
    text = (
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: main}\n"
        "spec: {template: {}}\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    assert setup_of(section(), POOLS, tmp_path).timing.interval_s == 2.0


def test_a_target_of_nobody_names_the_pools(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        setup_of(section(), POOLS, manifest(tmp_path, "mian"))
    assert str(caught.value) == (
        f"{tmp_path}/a.yaml:6: spec.scaleTargetRef.name: no pool is called 'mian'; "
        "allowed: main, spare (did you mean 'main'? or write scaling.targets: {mian: POOL})"
    )


def test_a_pool_of_nobody() -> None:
    found = faults_beside(POOLS, section(targets={"x": "man"}))
    assert [(dotted(fault.path), fault.what) for fault in found] == [
        ("scaling.targets.x", "there is no pool 'man'")
    ]


@pytest.mark.parametrize(
    ("written", "where", "what"),
    [
        ({"manifests": []}, "scaling.manifests", "the list has no items"),
        ({"manifests": ["a"], "pools": {}}, "scaling.pools", "unknown key"),
        ({"manifests": ["a"], "policy": "hpa"}, "scaling", "policy and manifests are both written"),
        ({"policy": "hpaa"}, "scaling.policy", "'hpaa' is not known here"),
        ({}, "scaling", "neither policy nor manifests is written"),
    ],
)
def test_what_is_no_such_section(written: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.read({"scaling": written})
    (fault,) = checker_faults(caught.value, Whole)
    assert (dotted(fault.path), fault.what) == (where, what)


@pytest.mark.parametrize(
    ("metrics", "allowed"),
    [
        ({}, "a list such as - {name: vllm:num_requests_waiting, target: 10}"),
        (
            {"metrics": {"vllm:num_requests_waiting": 10}},
            "a list, each item after a '-', such as "
            "- {name: vllm:num_requests_waiting, target: 10}",
        ),
    ],
)
def test_a_list_is_shown_where_one_is_wanted(metrics: dict[str, Any], allowed: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.read({"scaling": {"policy": "hpa", **metrics}})
    (fault,) = checker_faults(caught.value, Whole)
    assert (dotted(fault.path), fault.allowed) == ("scaling.metrics", allowed)


@pytest.mark.parametrize(
    ("name", "says"), [("nope.yaml", "there is no such file"), (".", "this is a folder")]
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, name: str, says: str) -> None:
    text = SMALL + f"scaling: {{manifests: [{name}]}}\n"
    with pytest.raises(InputError, match=says) as caught:
        load_text(text, str(tmp_path / "scenario.yaml"))
    assert str(tmp_path / name) in str(caught.value)


def test_manifests_that_cannot_be_read_are_told_beside_names_of_no_pool(tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("kind: HorizontalPodAutoscaler\nspec: {")
    text = SMALL + "scaling: {manifests: [nope.yaml, cut.yaml], targets: {chat: nopool}}\n"
    with pytest.raises(InputError) as caught:
        load_text(text, str(tmp_path / "scenario.yaml"))
    said = str(caught.value)
    for words in ("there is no pool 'nopool'", "nope.yaml: there is no such file", "is not YAML"):
        assert said.count(words) == 1
    assert len(said.splitlines()) == 3
