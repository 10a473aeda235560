"""Topology constraints and the bindings that they name."""

from typing import Any

import pytest

from tests.gangs.manifests import (
    binding,
    constraint,
    load,
    template_of,
    the_clique,
    the_group,
    workload,
)
from windtunnel.core.errors import InputError


@pytest.mark.parametrize(
    ("whole", "part", "sentence"),
    [
        (constraint("rack", topology="cluster"), None, None),
        (constraint("zone", topology="cluster"), constraint("rack"), None),
        (constraint("zone", "rack", "cluster"), constraint("zone", "rack"), None),
        (constraint("row", topology="cluster"), None, "has no level 'row'; allowed: zone, block"),
        (constraint("rack", topology="clutser"), None, "no ClusterTopologyBinding 'clutser'"),
        (constraint("rack"), None, "does not say which topology"),
        (
            constraint("rack", topology="cluster"),
            constraint("zone"),
            "'zone' is broader than 'rack'",
        ),
        (
            constraint("zone", "rack", "cluster"),
            constraint("zone", "block"),
            "preferred: 'block' is broader than 'rack'",
        ),
        (
            constraint("zone", topology="cluster"),
            constraint("rack", topology="other"),
            "the topology is 'other' here and 'cluster' elsewhere",
        ),
        ({"topologyName": "cluster"}, None, "pack: missing; allowed: required, preferred or both"),
        ({"topologyName": "cluster", "pack": {}}, None, "pack: it is empty"),
        ({"topologyName": "cluster", "packDomain": "rack"}, None, "packDomain is refused for new"),
        (
            {"topologyName": "cluster", "packDomain": "rack", "pack": {"required": "rack"}},
            None,
            "packDomain is the old form of pack.required",
        ),
    ],
)
def test_topology_constraints(
    whole: dict[str, Any], part: dict[str, Any] | None, sentence: str | None
) -> None:
    manifest = workload(1, topologyConstraint=whole)
    if part is not None:
        the_group(manifest)["topologyConstraint"] = part
    if sentence is None:
        load(binding(), manifest)
        return
    with pytest.raises(InputError) as caught:
        load(binding(), manifest)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("place", ["whole", "group", "clique"])
def test_tas22_pack_domain_is_refused_at_every_level(place: str) -> None:
    manifest = workload(1)
    old = {"topologyName": "cluster", "packDomain": "rack"}
    section = {"whole": template_of, "group": the_group, "clique": the_clique}[place](manifest)
    section["topologyConstraint"] = old
    with pytest.raises(InputError, match="packDomain is refused for new sets"):
        load(binding(), manifest)


def test_a_preference_that_changes_nothing_is_said() -> None:
    manifest = workload(1, topologyConstraint=constraint("rack", "zone", "cluster"))
    (warning,) = load(binding(), manifest).sets[0].warnings
    assert "'zone' is broader than the required 'rack'" in warning


@pytest.mark.parametrize(
    ("levels", "bindings", "sentence"),
    [
        ([("zone", "z"), ("zone", "r")], [], "another level with the domain 'zone'"),
        ([("zone", "z"), ("rack", "z")], [], "another level with the key 'z'"),
        ([("Zone", "z")], [], "'Zone' is not a domain"),
        ([], [], "the list has no item"),
        ([("zone", "z")], ["kai"], "there is no scheduler 'kai'"),
        ([("zone", "z")], ["volcano"], "the scheduler 'volcano' does not support topologies"),
        ([("zone", "z")], ["kai-scheduler"] * 2, "the scheduler 'kai-scheduler' is there twice"),
    ],
)
def test_tas21_a_topology_binding_is_checked(
    levels: list[tuple[str, str]], bindings: list[str], sentence: str
) -> None:
    manifest = binding()
    manifest["spec"] = {
        "levels": [{"domain": domain, "key": key} for domain, key in levels],
        "schedulerTopologyBindings": [
            {"schedulerName": name, "topologyReference": "t"} for name in bindings
        ],
    }
    with pytest.raises(InputError) as caught:
        load(manifest)
    assert sentence in str(caught.value)
