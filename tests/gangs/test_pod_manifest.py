"""What would be created, as Kubernetes would hold it; and Windtunnel can read its own."""

from typing import Any

import yaml

from tests.gangs.manifests import binding, constraint, load, the_clique, the_group, workload
from windtunnel.gangs.api.load import load_manifests_text
from windtunnel.twin.kubernetes.render import manifests_of


def made(manifest: dict[str, Any], *more: dict[str, Any]) -> dict[str, list[Any]]:
    found = load(*more, manifest)
    kinds: dict[str, list[Any]] = {}
    for one in manifests_of(found.sets[0], found.levels):
        kinds.setdefault(one["kind"], []).append(one)
    return kinds


def test_a_pod_has_the_labels_and_the_environment_of_its_place() -> None:
    manifest = workload(4)
    manifest["metadata"]["namespace"] = "serving"
    the_clique(manifest, 2)["labels"] = {"app": "chat"}
    container = the_clique(manifest, 2)["spec"]["podSpec"]["containers"][0]
    container["env"] = [{"name": "MINE", "value": "1"}, {"name": "GROVE_PCS_NAME", "value": "x"}]
    pods = {pod["spec"]["hostname"]: pod for pod in made(manifest)["Pod"]}
    pod = pods["web-0-sg-x-1-pc-c-2"]
    assert pod["metadata"]["namespace"] == "serving"
    assert pod["metadata"]["labels"] == {
        "app": "chat",
        "app.kubernetes.io/component": "pcs-pod",
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "web",
        "app.kubernetes.io/name": pod["metadata"]["name"],
        "grove.io/podclique": "web-0-sg-x-1-pc-c",
        "grove.io/podgang": "web-0-sg-x-0",
        "grove.io/base-podgang": "web-0",
        "grove.io/podcliqueset-replica-index": "0",
        "grove.io/podcliquescalinggroup": "web-0-sg-x",
        "grove.io/podcliquescalinggroup-replica-index": "1",
        "grove.io/podclique-pod-index": "2",
        "grove.io/pod-template-hash": load(manifest).sets[0].spec.roles["pc-c"].hash,
    }
    env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert env == {
        "GROVE_PCS_NAME": "web",
        "GROVE_PCS_INDEX": "0",
        "GROVE_PCLQ_NAME": "web-0-sg-x-1-pc-c",
        "GROVE_HEADLESS_SERVICE": "web-0.serving.svc.cluster.local",
        "GROVE_PCSG_NAME": "web-0-sg-x",
        "GROVE_PCSG_INDEX": "1",
        "GROVE_PCSG_TEMPLATE_NUM_PODS": "4",
        "GROVE_PCLQ_POD_INDEX": None,
        "MINE": "1",
    }
    assert pod["spec"]["subdomain"] == "web-0"
    assert pod["spec"]["schedulingGates"] == [{"name": "grove.io/podgang-pending-creation"}]
    waiter = pod["spec"]["initContainers"][-1]
    assert (waiter["name"], waiter["args"]) == ("grove-initc", ["--podcliques=web-0-sg-x-1-pc-b:1"])
    assert waiter["image"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes["sa-token-secret-vol"]["secret"] == {"secretName": "web-ic-sat"}
    assert [mount["name"] for mount in waiter["volumeMounts"]] == list(volumes)
    base = pods["web-0-sg-x-0-pc-b-0"]
    assert "grove.io/base-podgang" not in base["metadata"]["labels"]
    assert base["spec"]["initContainers"][0]["args"] == ["--podcliques=web-0-pc-a:1"]
    assert "initContainers" not in pods["web-0-pc-a-0"]["spec"]


def test_claims_are_in_the_pod_and_in_every_container() -> None:
    manifest = workload(1)
    the_clique(manifest)["resourceSharing"] = [{"name": "t", "scope": "PerReplica"}]
    the_clique(manifest)["annotations"] = {"grove.io/mnnvl-group": "fast"}
    resources = the_clique(manifest)["spec"]["podSpec"]["containers"][0]["resources"]
    resources["requests"]["nvidia.com/gpu"] = 1
    pods = {pod["spec"]["hostname"]: pod["spec"] for pod in made(manifest)["Pod"]}
    assert pods["web-0-pc-a-1"]["resourceClaims"] == [
        {"name": "web-0-pc-a-1-t", "resourceClaimName": "web-0-pc-a-1-t"},
        {"name": "mnnvl-claim", "resourceClaimTemplateName": "web-0-fast"},
    ]
    used = pods["web-0-pc-a-1"]["containers"][0]["resources"]["claims"]
    assert used == [{"name": "web-0-pc-a-1-t"}, {"name": "mnnvl-claim"}]
    assert "resourceClaims" not in pods["web-0-sg-x-0-pc-b-0"]


def test_a_gang_is_what_a_scheduler_expects_and_we_can_read_it() -> None:
    manifest = workload(
        2, topologyConstraint=constraint("zone", topology="cluster"), priorityClassName="high"
    )
    the_group(manifest)["topologyConstraint"] = constraint("block", "rack")
    manifest["metadata"]["labels"] = {"team": "chat", "grove.io/x": "y"}
    kinds = made(manifest, binding())
    base, scaled = kinds["PodGang"]
    assert base["metadata"]["labels"]["team"] == "chat"
    assert "grove.io/x" not in base["metadata"]["labels"]
    assert base["metadata"]["annotations"] == {"grove.io/topology-name": "cluster"}
    assert [len(one["podReferences"]) for one in base["spec"]["podgroups"]] == [2, 1, 3]
    pack = {"packConstraint": {"required": "block-key", "preferred": "rack-key"}}
    assert base["spec"]["topologyConstraintGroupConfigs"] == [
        {
            "name": "web-0-sg-x-0",
            "podGroupNames": ["web-0-sg-x-0-pc-b", "web-0-sg-x-0-pc-c"],
            "topologyConstraint": pack,
        }
    ]
    assert scaled["spec"]["topologyConstraint"] == pack
    assert scaled["spec"]["priorityClassName"] == "high"
    ours = [
        one for kind in ("PodGang", "PodCliqueScalingGroup", "PodClique") for one in kinds[kind]
    ]
    again = load_manifests_text(yaml.safe_dump_all(ours), "ours.yaml")
    assert len(again.kinds) == len(ours) == 8


COMPONENTS = {
    "Service": "pcs-headless-service",
    "ServiceAccount": "pod-service-account",
    "Secret": "pod-sa-token-secret",
    "Role": "pod-role",
    "RoleBinding": "pod-role-binding",
    "HorizontalPodAutoscaler": "pcs-hpa",
    "ResourceClaim": "resource-claim",
    "PodGang": "podgang",
    "PodCliqueScalingGroup": "pcs-podcliquescalinggroup",
}


def everything() -> dict[str, list[Any]]:
    manifest = workload(1)
    manifest["metadata"]["namespace"] = "serving"
    the_clique(manifest)["spec"]["autoScalingConfig"] = {"maxReplicas": 4}
    the_clique(manifest)["spec"]["podSpec"]["schedulingGates"] = [{"name": "mine"}]
    device = {"spec": {"devices": {"requests": [{"name": "gpu"}]}}}
    manifest["spec"]["template"]["resourceClaimTemplates"] = [{"name": "t", "templateSpec": device}]
    the_clique(manifest)["resourceSharing"] = [{"name": "t", "scope": "AllReplicas"}]
    return made(manifest)


def test_everything_that_would_be_created_is_there_and_says_what_it_goes_with() -> None:
    kinds = everything()
    for kind, component in COMPONENTS.items():
        for one in kinds[kind]:
            assert one["metadata"]["labels"]["app.kubernetes.io/component"] == component
            assert one["metadata"]["namespace"] == "serving"
    cliques = {one["metadata"]["name"]: one for one in kinds["PodClique"]}
    for name, one in cliques.items():
        (reference,) = one["metadata"]["ownerReferences"]
        group = "sg-x" in name
        wanted = ("PodCliqueScalingGroup", "web-0-sg-x") if group else ("PodCliqueSet", "web")
        assert (reference["kind"], reference["name"]) == wanted
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        assert component == ("pcsg-podclique" if group else "pcs-podclique")
    for pod in kinds["Pod"]:
        (reference,) = pod["metadata"]["ownerReferences"]
        assert reference["kind"] == "PodClique"
        assert reference["name"] == pod["metadata"]["labels"]["grove.io/podclique"]
    everyone = [one for found in kinds.values() for one in found]
    uids = {one["metadata"]["uid"]: (one["kind"], one["metadata"]["name"]) for one in everyone}
    assert len(uids) == len(everyone)
    of_set = {one["metadata"]["ownerReferences"][0]["uid"] for one in kinds["PodGang"]}
    assert len(of_set) == 1
    uids[of_set.pop()] = ("PodCliqueSet", "web")
    for one in everyone:
        (reference,) = one["metadata"]["ownerReferences"]
        assert reference["apiVersion"] == "grove.io/v1alpha1"
        assert uids[reference["uid"]] == (reference["kind"], reference["name"])
        assert reference["controller"] is True


def test_every_pod_is_created_gated() -> None:
    for pod in everything()["Pod"]:
        gates = [gate["name"] for gate in pod["spec"]["schedulingGates"]]
        mine = ["mine"] if "pc-a" in pod["metadata"]["name"] else []
        assert gates == ["grove.io/podgang-pending-creation", *mine]


def test_what_goes_with_a_set_is_complete() -> None:
    kinds = everything()
    (service,) = kinds["Service"]
    assert service["spec"]["clusterIP"] == "None"
    selector = service["spec"]["selector"]
    pods = [pod["metadata"]["labels"] for pod in kinds["Pod"]]
    assert all(selector.items() <= labels.items() for labels in pods)
    (autoscaler,) = kinds["HorizontalPodAutoscaler"]
    assert autoscaler["apiVersion"] == "autoscaling/v2"
    assert autoscaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": "web-0-pc-a",
    }
    (role,), (binding_,), (secret,) = kinds["Role"], kinds["RoleBinding"], kinds["Secret"]
    assert role["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert binding_["roleRef"]["name"] == role["metadata"]["name"] == "grove.io:pcs:web"
    assert binding_["subjects"] == [
        {"kind": "ServiceAccount", "name": "web", "namespace": "serving"}
    ]
    assert secret["type"] == "kubernetes.io/service-account-token"
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert account == kinds["ServiceAccount"][0]["metadata"]["name"] == "web"
    (claim,) = kinds["ResourceClaim"]
    assert claim["spec"] == {"devices": {"requests": [{"name": "gpu"}]}}
