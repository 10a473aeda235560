"""Grove's manifests: what is read, what is filled in, and the sentence about each mistake."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.gangs.manifests import (
    clique,
    group,
    load,
    load_set,
    pod_clique_set,
    put,
    template_of,
    the_clique,
    the_group,
    the_pod,
    workload,
)
from windtunnel.core.errors import InputError
from windtunnel.gangs.api.load import load_manifests_text
from windtunnel.gangs.api.pod_spec import requests_of
from windtunnel.gangs.templates import OFF
from windtunnel.settings.manifests import quantity

Change = Callable[[dict[str, Any]], object]
EXPLICIT = "CliqueStartupTypeExplicit"


def test_a_manifest_as_users_write_it_gets_its_defaults() -> None:
    text = """
# a comment
---
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata:
  name: simple
  namespace: serving
  labels: {app: simple}
spec:
  replicas: 1
  template:
    cliques:
      - name: router
        spec:
          roleName: router
          podSpec:
            containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 2}}}]
    podCliqueScalingGroups:
      - name: g
        cliqueNames: [router]
        scaleConfig: {maxReplicas: 5}
---
"""
    found = load_manifests_text(text, "m.yaml").sets[0]
    spec = found.spec
    assert found.name == "serving/simple"
    assert (spec.termination_delay_s, spec.on_all_scheduled_lost) == (14400.0, "Hold")
    assert (spec.startup, spec.update.type) == ("CliqueStartupTypeAnyOrder", "RollingRecreate")
    assert spec.publish_not_ready
    router = spec.roles["router"]
    assert (router.replicas, router.min_available) == (1, 1)
    assert router.requests == {"nvidia.com/gpu": 2.0}
    assert router.pod_spec["restartPolicy"] == "Always"
    assert router.pod_spec["terminationGracePeriodSeconds"] == 30
    assert router.scheduler == "default-scheduler"
    scale = spec.groups[0].scale
    assert scale is not None
    assert (spec.groups[0].replicas, spec.groups[0].min_available) == (1, 1)
    assert (scale.minimum, scale.maximum) == (1, 5)


def test_the_minimum_defaults_to_the_replicas_also_when_both_are_left_out() -> None:
    manifest = pod_clique_set([clique("a")])
    del the_clique(manifest)["spec"]["replicas"], the_clique(manifest)["spec"]["minAvailable"]
    assert load_set(manifest).spec.roles["a"].min_available == 1
    the_clique(manifest)["spec"]["replicas"] = 3
    assert load_set(manifest).spec.roles["a"].min_available == 3


def test_what_is_ours_beside_grove_is_read_too() -> None:
    manifest = workload(1, terminationDelay="Never", onAllScheduledLost="Terminate")
    the_group(manifest)["terminationDelay"] = "30m"
    the_group(manifest)["rollingUpdate"] = {"maxSurge": "50%", "maxUnavailable": 0}
    manifest["spec"]["updateStrategy"] = {"type": "Coherent", "parallelReplicas": 2, "paused": True}
    spec = load_set(manifest).spec
    assert spec.delay_s(None) == OFF
    assert spec.delay_s(spec.groups[0]) == 1800.0
    assert spec.on_all_scheduled_lost == "Terminate"
    assert spec.update.type == "Coherent"
    assert (spec.update.parallel_replicas, spec.update.paused) == (2, True)
    rolling = spec.groups[0].rolling
    assert rolling is not None
    assert rolling.max_surge.of(3, up=True) == 2
    assert rolling.max_surge.of(3, up=False) == 1


FAULTS: list[tuple[str, Change, str]] = [
    ("replicas", lambda m: put(replicas=-1)(m["spec"]), "spec.replicas: -1 is too small"),
    ("no cliques", lambda m: put(cliques=[])(template_of(m)), "the list has no item"),
    (
        "unknown key",
        lambda m: put(replica=2)(the_clique(m)["spec"]),
        "cliques[0].spec.replica: unknown key (did you mean 'replicas'?)",
    ),
    (
        "unknown key of a pod",
        lambda m: put(contaners=[])(the_pod(m)),
        "podSpec.contaners: unknown key (did you mean 'containers'",
    ),
    (
        "unknown key of a container",
        lambda m: put(imagee="x")(the_pod(m)["containers"][0]),
        "containers[0].imagee: unknown key (did you mean 'image'",
    ),
    (
        "name",
        lambda m: put(name="pc_a")(the_clique(m)),
        "cliques[0].name: 'pc_a' is not a DNS label",
    ),
    (
        "two cliques of a name",
        lambda m: put(name="pc-b")(the_clique(m)),
        "cliques[1].name: there is another clique named 'pc-b'",
    ),
    (
        "two roles of a name",
        lambda m: put(roleName="pc-b")(the_clique(m)["spec"]),
        "cliques[1].spec.roleName: there is another role named 'pc-b'",
    ),
    (
        "minimum 0",
        lambda m: put(minAvailable=0)(the_clique(m)["spec"]),
        "cliques[0].spec.minAvailable: 0 is too small; allowed: at least 1",
    ),
    (
        "minimum above replicas",
        lambda m: put(minAvailable=3)(the_clique(m)["spec"]),
        "minAvailable: minAvailable 3 is above replicas 2; allowed: 1 to 2",
    ),
    (
        "autoscaler below the minimum",
        lambda m: put(autoScalingConfig={"minReplicas": 1, "maxReplicas": 4})(
            the_clique(m)["spec"]
        ),
        "autoScalingConfig.minReplicas: minReplicas 1 is below minAvailable 2",
    ),
    (
        "autoscaler upside down",
        lambda m: put(autoScalingConfig={"minReplicas": 3, "maxReplicas": 2})(
            the_clique(m)["spec"]
        ),
        "autoScalingConfig.maxReplicas: maxReplicas 2 is below minReplicas 3",
    ),
    (
        "autoscaler below replicas",
        lambda m: (
            put(replicas=5)(the_clique(m)["spec"]),
            put(autoScalingConfig={"minReplicas": 2, "maxReplicas": 4})(the_clique(m)["spec"]),
        ),
        "autoScalingConfig.maxReplicas: maxReplicas 4 is below replicas 5",
    ),
    (
        "autoscaler of a member",
        lambda m: put(autoScalingConfig={"maxReplicas": 4})(the_clique(m, 1)["spec"]),
        "a member of the scaling group 'sg-x' is not scaled by itself (give the group a",
    ),
    (
        "group of nobody",
        lambda m: put(cliqueNames=["pc-d"])(the_group(m)),
        "cliqueNames[0]: there is no clique 'pc-d'; allowed: pc-a, pc-b, pc-c (did you mean",
    ),
    (
        "clique in two groups",
        lambda m: template_of(m)["podCliqueScalingGroups"].append(group("sg-y", ["pc-b"])),
        "podCliqueScalingGroups[1].cliqueNames[0]: the clique 'pc-b' is already in the scaling",
    ),
    (
        "two groups of a name",
        lambda m: template_of(m)["podCliqueScalingGroups"].append(group("sg-x", ["pc-a"])),
        "podCliqueScalingGroups[1].name: there is another scaling group named 'sg-x'",
    ),
    ("group without replicas", lambda m: put(replicas=0)(the_group(m)), "replicas: 0 is too small"),
    (
        "group minimum",
        lambda m: put(minAvailable=3)(the_group(m)),
        "minAvailable 3 is above replicas 2",
    ),
    (
        "group autoscaler",
        lambda m: put(scaleConfig={"minReplicas": 1, "maxReplicas": 4})(the_group(m)),
        "scaleConfig.minReplicas: minReplicas 1 is below minAvailable 2",
    ),
    (
        "group autoscaler's most",
        lambda m: put(scaleConfig={"maxReplicas": 1})(the_group(m)),
        "scaleConfig.maxReplicas: maxReplicas 1 is below minAvailable 2",
    ),
    (
        "two schedulers",
        lambda m: put(schedulerName="volcano")(the_pod(m)),
        "the scheduler is 'kai-scheduler' here and 'volcano' in the first clique",
    ),
    (
        "no delay",
        lambda m: put(terminationDelay="0s")(template_of(m)),
        "terminationDelay: '0s' is too small; allowed: a duration above 0s",
    ),
    ("spread", lambda m: put(topologySpreadConstraints=[])(the_pod(m)), "not allowed in a clique"),
    (
        "toleration",
        lambda m: put(tolerations=[{"operator": "Like", "key": "a"}])(the_pod(m)),
        "podSpec.tolerations: 'Like' is not an operator; allowed: Equal, Exists",
    ),
    (
        "affinity",
        lambda m: put(affinity={"podAffinity": [1]})(the_pod(m)),
        "podSpec.affinity: podAffinity is not a mapping",
    ),
    ("node name", lambda m: put(nodeName="n1")(the_pod(m)), "podSpec.nodeName: not allowed"),
    (
        "no container",
        lambda m: put(containers=[])(the_pod(m)),
        "podSpec.containers: the list has no item",
    ),
    (
        "environment",
        lambda m: put(env=[{"name": "A"}, {"name": "A"}])(the_pod(m)["containers"][0]),
        "env[1].name: 'A' is there twice",
    ),
    (
        "environment name",
        lambda m: put(env=[{"name": "1A"}])(the_pod(m)["containers"][0]),
        "env[0]: '1A' is not a name of an environment variable",
    ),
    (
        "quantity",
        lambda m: put(requests={"memory": "80Mx"})(the_pod(m)["containers"][0]["resources"]),
        "requests.memory: '80Mx' has the unknown unit 'Mx'",
    ),
    (
        "two names for one clique",
        lambda m: put(name="sg-x-0-pc-b")(the_clique(m)),
        "replica 0 of the group 'sg-x' gives this name to its clique 'pc-b'",
    ),
    (
        "unavailable",
        lambda m: put(updateStrategy={"rollingUpdate": {"maxUnavailable": 0}})(m["spec"]),
        "with maxUnavailable 0 and maxSurge 0 nothing could ever be updated",
    ),
    (
        "rolling on delete",
        lambda m: put(updateStrategy={"type": "OnDelete", "rollingUpdate": {}})(m["spec"]),
        "OnDelete has no rolling update",
    ),
    (
        "rolling of a member",
        lambda m: put(rollingUpdate={"maxSurge": 1})(the_clique(m, 1)),
        "a member of the scaling group 'sg-x' is updated with its group",
    ),
    (
        "strategy",
        lambda m: put(updateStrategy={"type": "Recreate"})(m["spec"]),
        "'Recreate' is not known here; allowed: RollingRecreate, OnDelete, Coherent",
    ),
    (
        "mnnvl",
        lambda m: put(annotations={"grove.io/mnnvl-group": "A B"})(the_clique(m)),
        "'A B' is not a DNS label",
    ),
]


@pytest.mark.parametrize(
    ("change", "sentence"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_each_mistake_has_its_sentence(change: Change, sentence: str) -> None:
    manifest = workload(1)
    change(manifest)
    with pytest.raises(InputError) as caught:
        load(manifest)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("m.yaml:")


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        ({"a": ["a"]}, "the clique 'a' cannot start after itself"),
        ({"a": ["x"]}, "there is no clique 'x'"),
        ({"a": ["b", "b"]}, "the clique 'b' is there twice"),
        ({"a": [""]}, "the name is empty"),
        ({"a": ["b"], "b": ["a"]}, "in a cycle: a after b after a"),
        (
            {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]},
            "in a cycle: b after c after d after b",
        ),
        ({"b": ["a"], "c": ["a"], "d": ["b", "c"]}, None),
        ({"b": ["a"], "d": ["c"]}, None),
        ({}, None),
    ],
)
def test_who_starts_after_whom(after: dict[str, list[str]], sentence: str | None) -> None:
    roles = [clique(name, startsAfter=after.get(name, [])) for name in "abcd"]
    manifest = pod_clique_set(roles, cliqueStartupType=EXPLICIT)
    if sentence is None:
        load(manifest)
        return
    with pytest.raises(InputError, match="startsAfter") as caught:
        load(manifest)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("lengths", "fits"),
    [((20, 0, 25), True), ((20, 0, 26), False), ((10, 15, 20), True), ((10, 16, 20), False)],
)
def test_the_name_budget_is_45_letters(lengths: tuple[int, int, int], fits: bool) -> None:
    name, group_name, role = ("n" * length for length in lengths)
    groups = [group(group_name, [role])] if group_name else []
    manifest = pod_clique_set([clique(role)], groups, name=name)
    if fits:
        load(manifest)
    else:
        with pytest.raises(InputError, match="have 46 characters in total"):
            load(manifest)


def test_the_name_of_a_set_begins_host_names_and_has_no_dot() -> None:
    with pytest.raises(InputError, match=r"metadata\.name: 'a\.b' has a dot, and host names"):
        load(pod_clique_set([clique("a")], name="a.b"))


def listed(*manifests: dict[str, Any], kind: str = "List") -> str:
    """As `kubectl get -o yaml` prints objects."""
    for one in manifests:
        known = {"uid": "u", "resourceVersion": "1", "generation": 2, "managedFields": []}
        one["metadata"] |= {**known, "creationTimestamp": "2026-11-18T10:00:00Z"}
        one["status"] = {"replicas": 1}
    found = {"apiVersion": "v1", "items": list(manifests), "kind": kind}
    return yaml.safe_dump({**found, "metadata": {"resourceVersion": ""}})


@pytest.mark.parametrize("kind", ["List", "PodCliqueSetList"])
def test_a_list_of_objects_is_read_as_its_objects(kind: str) -> None:
    text = listed(*(pod_clique_set([clique("a")], name=name) for name in "xy"), kind=kind)
    found = load_manifests_text(f"{text}---\n{yaml.safe_dump(pod_clique_set([clique('a')]))}")
    assert [one.name for one in found.sets] == ["x", "y", "web"]
    wrong = pod_clique_set([clique("a")], name="y")
    wrong["spec"]["replica"] = 1
    text = listed(pod_clique_set([clique("a")], name="x"), wrong, kind=kind)
    line = text.splitlines().index("    replica: 1") + 1
    with pytest.raises(InputError, match=f"manifest.yaml:{line}: spec.replica: unknown key"):
        load_manifests_text(text)
    with pytest.raises(InputError, match="the file is empty"):
        load_manifests_text(listed(kind=kind))
    with pytest.raises(InputError, match=r"manifest.yaml:3: an item of the list is a single value"):
        load_manifests_text("kind: List\nitems:\n- 7\n")


SHARING: list[tuple[str, dict[str, Any], str]] = [
    ("scope", {"name": "t", "scope": "Some"}, "'Some' is not known here; allowed: AllReplicas"),
    ("name", {"name": "", "scope": "AllReplicas"}, "name: the name is empty"),
    (
        "namespace",
        {"name": "t", "namespace": "x", "scope": "AllReplicas"},
        "'t' is a claim template of this set, and has no namespace",
    ),
    ("filter", {"name": "t", "scope": "AllReplicas", "filter": {}}, "the filter selects nothing"),
    (
        "stranger",
        {"name": "t", "scope": "AllReplicas", "filter": {"childCliqueNames": ["pc-b"]}},
        "there is no 'pc-b' at this level; allowed: pc-a",
    ),
]


@pytest.mark.parametrize(
    ("entry", "sentence"), [row[1:] for row in SHARING], ids=[row[0] for row in SHARING]
)
def test_shared_claims_are_checked(entry: dict[str, Any], sentence: str) -> None:
    devices = {"devices": {"requests": [{"name": "gpu"}]}}
    template = {"name": "t", "templateSpec": {"spec": devices}}
    manifest = workload(1, resourceClaimTemplates=[template], resourceSharing=[entry])
    with pytest.raises(InputError) as caught:
        load(manifest)
    assert sentence in str(caught.value)


def test_a_claim_template_asks_for_a_device_and_is_named_once() -> None:
    claims = [{"name": "t", "templateSpec": {"spec": {}}}] * 2
    with pytest.raises(InputError) as caught:
        load(workload(1, resourceClaimTemplates=claims))
    assert "the claim requests no device" in str(caught.value)
    assert "another claim template named 't'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "m.yaml: the file is empty"),
        ("- a", "m.yaml:1: the file is a list"),
        (
            "kind: Deployment",
            "'Deployment' is not a kind that is read here; allowed: PodCliqueSet",
        ),
        ("kind: PodCliqueset", "(did you mean 'PodCliqueSet' or 'PodClique'?)"),
        ("apiVersion: v1", "m.yaml:1: kind: missing"),
        (
            "kind: PodGang\napiVersion: grove.io/v1alpha1",
            "is not an apiVersion of PodGang; allowed: sch",
        ),
        ("a: 1\n---\na: 1\na: 2\n", "m.yaml:4: the key 'a' is written twice"),
        ("kind: PodCliqueSet\napiVersion: grove.io/v1alpha1", "metadata: missing"),
    ],
)
def test_what_is_no_manifest(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load_manifests_text(text, "m.yaml")
    assert sentence in str(caught.value)


def test_faults_of_all_documents_are_told_at_their_lines() -> None:
    first, second = workload(1), workload(2)
    second["metadata"]["name"] = "other"
    for manifest in (first, second):
        the_clique(manifest)["spec"]["minAvailable"] = 9
    with pytest.raises(InputError) as caught:
        load(first, second)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    places = [int(line.split(":")[1]) for line in lines]
    assert places[1] - places[0] > 50


def test_the_other_kinds_are_read() -> None:
    pod = clique("x")["spec"]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("PodClique", {**pod, "startsAfter": ["web-0-y"]}),
        ("PodCliqueScalingGroup", {"cliqueNames": ["x"]}),
        ("PodGang", {"podgroups": [{"name": "web-0-x", "minReplicas": 1}]}),
    ]
    manifests = []
    for kind, spec in kinds:
        version = ("scheduler." if kind == "PodGang" else "") + "grove.io/v1alpha1"
        manifests.append(
            {"apiVersion": version, "kind": kind, "metadata": {"name": "n"}, "spec": spec}
        )
    assert load(*manifests).kinds == ("PodClique n", "PodCliqueScalingGroup n", "PodGang n")
    broken: Any = copy.deepcopy(manifests[2])
    broken["spec"]["topologyConstraintGroupConfigs"] = [{"name": "g", "podGroupNames": ["web-0-y"]}]
    with pytest.raises(InputError, match="there is no pod group 'web-0-y'"):
        load(broken)


def test_a_hash_follows_what_is_written_and_nothing_else() -> None:
    plain = load_set(workload(1)).spec
    same = workload(1)
    template_of(same)["cliques"].reverse()
    the_clique(same)["labels"] = {}
    for changed in ("replicas", "minAvailable"):
        the_clique(same, 2)["spec"][changed] = 1
    the_pod(same)["containers"] = [dict(reversed(the_pod(same)["containers"][0].items()))]
    again = load_set(same).spec
    assert again.hash == plain.hash
    assert {name: role.hash for name, role in again.roles.items()} == {
        name: role.hash for name, role in plain.roles.items()
    }
    # Pinned: a new version of the program must not roll anybody's pods.
    assert plain.roles["pc-a"].hash == plain.roles["pc-b"].hash == "f86rl7pwfg"
    other = workload(1)
    the_clique(other)["labels"] = {"x": "y"}
    changed_spec = load_set(other).spec
    assert changed_spec.roles["pc-a"].hash != plain.roles["pc-a"].hash
    assert changed_spec.roles["pc-b"].hash == plain.roles["pc-b"].hash
    assert changed_spec.hash != plain.hash
    assert load_set(workload(1, priorityClassName="high")).spec.hash != plain.hash


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", 0.5), (2, 2.0), ("80Mi", 80 * 2**20), ("1.5G", 1.5e9), ("2e3", 2000.0), (".5", 0.5)],
)
def test_quantities(text: object, amount: float) -> None:
    assert quantity(text) == pytest.approx(amount, rel=1e-12)


def test_what_a_pod_asks_for() -> None:
    def asks(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    pod: dict[str, Any] = {"containers": [asks("1"), asks("500m")], "initContainers": [asks("3")]}
    assert requests_of(pod) == {"cpu": 3.0}
    pod["initContainers"] = [asks("2", restartPolicy="Always")]
    assert requests_of(pod) == {"cpu": 3.5}


def test_what_is_allowed_and_yet_not_as_it_seems_is_said() -> None:
    manifest = workload(1)
    the_pod(manifest)["restartPolicy"] = "Never"
    the_clique(manifest, 1)["spec"]["replicas"] = 0
    manifest["status"] = {"replicas": 1}
    warnings = load_set(manifest).warnings
    assert [warning.split(": ")[0] for warning in warnings[:2]] == [
        "clique 'pc-a'",
        "clique 'pc-b'",
    ]
    assert len(warnings) == 3


# Grove's own API server, and what is in the same file.


def with_extensions() -> dict[str, Any]:
    manifest = workload(
        1,
        terminationDelay="Never",
        onAllScheduledLost="Hold",
        onStranded="Hold",
        holdAtNodesNotReady=1,
    )
    spec = manifest["spec"]
    spec["updateStrategy"] = {"type": "Coherent", "paused": True, "rollingUpdate": {"maxSurge": 1}}
    spec["revisionHistoryLimit"] = 3
    spec["template"]["podCliqueScalingGroups"][0]["terminationDelay"] = "1h"
    the_clique(manifest)["rollingUpdate"] = {"maxUnavailable": 1}
    return manifest


EXTENSIONS = [
    "spec.revisionHistoryLimit: not a field of Grove",
    "spec.template.cliques[0].rollingUpdate: not a field of Grove",
    "spec.template.holdAtNodesNotReady: not a field of Grove",
    "spec.template.onAllScheduledLost: not a field of Grove",
    "spec.template.onStranded: not a field of Grove",
    "spec.template.podCliqueScalingGroups[0].terminationDelay: not a field of Grove",
    "spec.template.terminationDelay: Never is not a value of Grove",
    "spec.updateStrategy.paused: not a field of Grove",
    "spec.updateStrategy.rollingUpdate: not a field of Grove",
    "spec.updateStrategy.type: Coherent is not a value of Grove",
]


def of_grove(manifest: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_manifests_text(yaml.safe_dump(manifest), "m.yaml", grove=True)
    return str(caught.value).splitlines()


def test_our_extensions_are_noted_and_refused_for_grove() -> None:
    manifest = with_extensions()
    notes = load_set(manifest).warnings
    assert sorted(note.partition(": its API")[0] for note in notes) == EXTENSIONS
    said = of_grove(manifest)
    for extension in EXTENSIONS:
        assert any(f" {extension}" in line for line in said), extension


def test_a_set_that_grove_takes_has_no_note() -> None:
    manifest = workload(1)
    for role in manifest["spec"]["template"]["cliques"]:
        role["spec"].setdefault("roleName", role["name"])
        role["labels"] = {"app.kubernetes.io/name": "web_1", "tier": ""}
    found = load_manifests_text(yaml.safe_dump(manifest), "m.yaml", grove=True)
    assert found.sets[0].warnings == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: the_clique(m)["spec"].pop("replicas"), "spec.replicas: missing: Grove's CRD"),
        (lambda m: the_clique(m)["spec"].pop("roleName", None), "spec.roleName: missing: Grove's"),
        (lambda m: the_clique(m).update(labels={"a b": "c"}), "'a b' is not a key of a label"),
        (lambda m: the_clique(m).update(labels={"-a": "c"}), "'-a' is not a key of a label"),
        (lambda m: the_clique(m).update(labels={"a": "b c"}), "'b c' is not the value of a label"),
        (lambda m: the_clique(m).update(labels={"a": "x" * 64}), "is not the value of a label"),
        (lambda m: m["metadata"].update(labels={"A.b/": "c"}), "'A.b/' is not a key of a label"),
        (lambda m: m["metadata"].update(annotations={"X/y": ""}), "'X/y' is not a key of a label"),
    ],
)
def test_what_grove_refuses_beside_that(change: Change, sentence: str) -> None:
    manifest = workload(1)
    change(manifest)
    assert any(sentence in line for line in of_grove(manifest))


def test_what_grove_takes_and_does_not_use_is_noted() -> None:
    manifest = workload(1, cliqueStartupType="CliqueStartupTypeInOrder")
    the_clique(manifest)["spec"]["startsAfter"] = ["pc-b"]
    assert any("startsAfter is used with" in note for note in load_set(manifest).warnings)
    manifest = workload(1)
    one = manifest["spec"]["template"]["podCliqueScalingGroups"][0]
    one["replicas"] = 4
    one["scaleConfig"] = {"minReplicas": 2, "maxReplicas": 3}
    assert any("maxReplicas 3 is below replicas 4" in note for note in load_set(manifest).warnings)
    one["scaleConfig"] = {"maxReplicas": 3}
    loaded = load_set(manifest)
    assert any("maxReplicas 3 is below replicas 4" in note for note in loaded.warnings)
    scale = loaded.spec.groups[0].scale
    assert scale is not None
    assert (scale.minimum, scale.maximum) == (3, 3)  # an autoscaler that can be made
    one["scaleConfig"] = {"minReplicas": 3, "maxReplicas": 2}
    with pytest.raises(InputError, match="maxReplicas 2 is below minReplicas 3"):
        load_set(manifest)


BESIDE = """
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {anything: [1, 2]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpus}}
---
{apiVersion: v1, kind: ConfigMap, data: {a: b}}
"""


def test_objects_of_other_apis_are_skipped() -> None:
    found = load_manifests_text(yaml.safe_dump(workload(1)) + BESIDE)
    assert found.kinds == ("PodCliqueSet web",)
    assert found.foreign == (
        "Service web",
        "ResourceClaimTemplate gpus",
        "ConfigMap without a name",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BESIDE.removeprefix("\n---"), "'Service' is not a kind that is read here"),
        ("{apiVersion: grove.io/v1alpha1, kind: PodCliqe}", "did you mean 'PodClique'"),
        ("{apiVersion: groove.io/v1alpha1, kind: PodClique}", "is not an apiVersion of PodClique"),
    ],
)
def test_a_mistake_is_not_taken_for_another_api(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load_manifests_text(text, "m.yaml")
    assert sentence in str(caught.value)


def test_devices_without_a_limit_are_noted() -> None:
    manifest = workload(1)
    resources = the_clique(manifest)["spec"]["podSpec"]["containers"][0]["resources"]
    resources["requests"]["nvidia.com/gpu"] = "1"
    (note,) = load_set(manifest).warnings
    assert "'main' requests nvidia.com/gpu without a limit, which Kubernetes refuses" in note
    resources["limits"] = {"nvidia.com/gpu": "1"}
    assert load_set(manifest).warnings == ()
