"""What of a set may change once it is there."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.gangs.manifests import (
    constraint,
    put,
    template_of,
    the_clique,
    the_group,
    the_pod,
    workload,
)
from windtunnel.core.errors import InputError
from windtunnel.gangs.api.set_rules import set_faults
from windtunnel.gangs.api.set_spec import SetManifest
from windtunnel.gangs.api.update_rules import update_faults
from windtunnel.settings.document import Document
from windtunnel.settings.faults import input_error

Change = Callable[[dict[str, Any]], object]


def check_update(old: SetManifest, new: SetManifest) -> None:
    """Raises what may not change once a set is there, or is wrong with what it changes to."""
    faults = update_faults(old, new) or set_faults(new, new=False)
    if faults:
        raise input_error(Document("PodCliqueSet", {}, {}), faults)


UPDATES: list[tuple[str, Change, str | None]] = [
    ("replicas", lambda m: put(replicas=5)(m["spec"]), None),
    ("clique replicas", lambda m: put(replicas=4)(the_clique(m)["spec"]), None),
    ("image", lambda m: put(image="b:2")(the_pod(m)["containers"][0]), None),
    ("priority", lambda m: put(priorityClassName="high")(template_of(m)), None),
    ("delay", lambda m: put(terminationDelay="1h")(template_of(m)), None),
    ("reorder", lambda m: template_of(m)["cliques"].reverse(), None),
    ("remove", lambda m: template_of(m)["cliques"].pop(0), "now without pc-a (create another set"),
    ("rename", lambda m: put(name="pc-z")(the_clique(m)), "without pc-a and with pc-z"),
    ("role", lambda m: put(roleName="r")(the_clique(m)["spec"]), "was 'pc-a', and cannot become"),
    ("minimum", lambda m: put(minAvailable=1)(the_clique(m)["spec"]), "it was 2, and cannot"),
    (
        "minimum left out",
        lambda m: (
            the_clique(m)["spec"].pop("minAvailable"),
            put(replicas=4)(the_clique(m)["spec"]),
        ),
        "it was 2, and cannot become 4 (write minAvailable: 2)",
    ),
    ("scheduler", lambda m: put(schedulerName="x")(the_pod(m)), "was 'kai-scheduler', and cannot"),
    (
        "startup",
        lambda m: put(cliqueStartupType="CliqueStartupTypeInOrder")(template_of(m)),
        "cliqueStartupType: it was 'CliqueStartupTypeAnyOrder', and cannot become",
    ),
    ("group minimum", lambda m: put(minAvailable=1)(the_group(m)), "it was 2, and cannot become 1"),
    ("members", lambda m: put(cliqueNames=["pc-b"])(the_group(m)), "cliqueNames: it cannot change"),
    (
        "groups",
        lambda m: template_of(m).pop("podCliqueScalingGroups"),
        "the scaling groups of a set cannot change: sg-x",
    ),
    (
        "topology",
        lambda m: put(topologyConstraint=constraint("rack", topology="t"))(template_of(m)),
        "topologyConstraint: it cannot change",
    ),
    (
        "mnnvl",
        lambda m: put(annotations={"grove.io/mnnvl-group": "g"})(the_clique(m)),
        "it was nothing, and cannot become 'g'",
    ),
    (
        "sharing",
        lambda m: put(resourceSharing=[{"name": "t", "scope": "AllReplicas"}])(template_of(m)),
        "resourceSharing: it cannot change",
    ),
]


@pytest.mark.parametrize(
    ("change", "sentence"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES]
)
def test_what_may_change_later(change: Change, sentence: str | None) -> None:
    old = SetManifest.model_validate(workload(1))
    changed = workload(1)
    change(changed)
    new = SetManifest.model_validate(changed)
    if sentence is None:
        check_update(old, new)
        return
    with pytest.raises(InputError) as caught:
        check_update(old, new)
    assert sentence in str(caught.value)


def test_the_order_of_cliques_stays_where_they_start_in_order() -> None:
    changed = workload(3)
    template_of(changed)["cliques"].reverse()
    old, new = (SetManifest.model_validate(one) for one in (workload(3), changed))
    with pytest.raises(InputError, match="the startup order of the cliques cannot change"):
        check_update(old, new)


def test_an_old_pack_domain_may_be_repaired() -> None:
    steps = [
        {"packDomain": "rack"},
        {"packDomain": "rack", "topologyName": "t"},
        {"pack": {"required": "rack"}, "topologyName": "t"},
    ]
    specs = [SetManifest.model_validate(workload(1, topologyConstraint=step)) for step in steps]
    check_update(specs[0], specs[1])
    check_update(specs[1], specs[2])
    wrong = SetManifest.model_validate(
        workload(1, topologyConstraint={"pack": {"required": "zone"}, "topologyName": "t"})
    )
    with pytest.raises(InputError, match="it was 'rack', and cannot become 'zone'"):
        check_update(specs[1], wrong)
