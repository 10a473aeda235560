"""Whatever somebody writes into a manifest, the answer is a set or sentences, and never a crash."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gangs.manifests import binding, constraint, the_clique, the_group, workload
from windtunnel.core.errors import InputError
from windtunnel.gangs.api.load import load_manifests_text
from windtunnel.twin.kubernetes.render import lines_of, tree_of

pytestmark = pytest.mark.once

JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    10**12,
    1.5,
    float("inf"),
    "",
    "x",
    "pc-a",
    "25%",
    "4h",
    "é" * 70,
    [],
    [None],
    ["pc-a", "pc-a"],
    {},
    {"name": "x"},
    {"a": {"b": []}},
]


def full() -> list[dict[str, Any]]:
    """Manifests in which every part is used."""
    manifest = workload(5, topologyConstraint=constraint("zone", topology="cluster"))
    the_clique(manifest)["spec"]["autoScalingConfig"] = {"minReplicas": 2, "maxReplicas": 4}
    the_clique(manifest)["resourceSharing"] = [{"name": "t", "scope": "PerReplica"}]
    the_clique(manifest)["labels"] = {"a": "b"}
    pod = the_clique(manifest)["spec"]["podSpec"]
    pod["initContainers"] = [{"name": "first", "image": "x"}]
    pod["schedulingGates"] = [{"name": "quota"}]
    pod["overhead"] = {"cpu": "100m"}
    pod["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    the_group(manifest)["topologyConstraint"] = constraint("block", "rack")
    the_group(manifest)["rollingUpdate"] = {"maxSurge": 1, "progressDeadline": "10m"}
    the_group(manifest)["terminationDelay"] = "Never"
    manifest["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": "50%"}}
    manifest["spec"]["template"]["resourceClaimTemplates"] = [
        {"name": "t", "templateSpec": {"spec": {"devices": {"requests": [{"name": "gpu"}]}}}}
    ]
    return [binding(), manifest]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, below in value.items():
            found += places(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            found += places(below, (*path, number))
    return found


PLACES = places(full())


def change(documents: Any, path: tuple[Any, ...], how: str, junk: Any) -> None:
    inside = documents
    for key in path[:-1]:
        if isinstance(inside, list) and not (isinstance(key, int) and key < len(inside)):
            return
        if isinstance(inside, dict) and key not in inside:
            return
        if not isinstance(inside, list | dict):
            return
        inside = inside[key]
    key = path[-1]
    if isinstance(inside, dict):
        if how == "take away":
            inside.pop(key, None)
        elif how == "rename":
            inside[f"{key}x"] = inside.pop(key, None)
        else:
            inside[key] = junk
    elif isinstance(inside, list) and isinstance(key, int) and key < len(inside):
        if how == "take away":
            del inside[key]
        else:
            inside[key] = junk


@settings(max_examples=50, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.sampled_from(["take away", "rename", "put"]),
            st.sampled_from(JUNK),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_changed_manifest_is_a_set_or_sentences(
    changes: list[tuple[tuple[Any, ...], str, Any]],
) -> None:
    documents = full()
    for path, how, junk in changes:
        change(documents, path, how, copy.deepcopy(junk))
    text = yaml.safe_dump_all(documents, allow_unicode=True)
    said, found = "", None
    try:
        found = load_manifests_text(text, "m.yaml")
    except InputError as error:
        said = str(error)
    if found is None:
        assert all(line.startswith("m.yaml") for line in said.splitlines())
        return
    for one in found.sets:
        assert lines_of(tree_of(one, found.levels))
