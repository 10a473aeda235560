"""Caches hold what controllers read of pods, and what pods have in common once."""

from typing import Any

import msgspec

from windtunnel.fleet.demand.cluster import selector_of
from windtunnel.gangs.api.pod_spec import requests_of
from windtunnel.gangs.kubernetes.reading import read
from windtunnel.gangs.objects import CLIQUE, POD
from windtunnel.gangs.placement.constraints import node_terms, rules_of, terms_of
from windtunnel.gangs.pod_manifest import GANG_LABEL, PART_OF, SET_INDEX, WAITER, WAITS_FOR
from windtunnel.gangs.view import View
from windtunnel.live.operate.received import Received, ReceivedPod

BOUND, READY = "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"
FIELDS = (
    *("name", "uid", "version", "owner_uid", "created_s", "deleted_s", "gates", "node", "phase"),
    *("scheduled_s", "started", "ready", "ready_s", "erroneous", "index", "clique", "clique_uid"),
    *("template_hash", "requests", "scheduler", "waits_for"),
)
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NEAR = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "x"}}}
POD_JSON: dict[str, Any] = {
    "metadata": {
        "name": "p-1",
        "namespace": "ns",
        "uid": "uid-1",
        "labels": {SET_INDEX: "0", PART_OF: "set", GANG_LABEL: "set-0"},
        "ownerReferences": [{"kind": CLIQUE, "name": "c", "uid": "uid-c", "controller": True}],
        "deletionTimestamp": "2026-01-01T00:00:40Z",
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "vllm",
                "env": [{"name": "TOKEN", "value": "secret"}],
                "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "8"}},
                "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
            }
        ],
        "initContainers": [
            {"name": WAITER, "args": [f"{WAITS_FOR}other:2"]},
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        ],
        "overhead": {"memory": "1Gi"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
        },
        "nodeSelector": {"kind": "h100"},
        "tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "grove.io/podgang-pending-creation"}],
        "hostname": "p-1",
        "nodeName": "n",
        "schedulerName": "windtunnel",
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "weights", "emptyDir": {}}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:01Z",
            },
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
        ],
        "containerStatuses": [
            {"name": "main", "ready": True, "started": True, "image": "vllm", "state": {}}
        ],
    },
}


def test_a_pod_without_what_its_kubelet_needs_is_read_as_the_whole_one() -> None:
    text = msgspec.json.encode(POD_JSON)
    whole = msgspec.json.decode(text, type=Received)
    kept = msgspec.json.decode(text, type=ReceivedPod)
    pods = [read(POD, one, View(), 2e9) for one in (whole, kept)]
    fields = [{name: getattr(pod, name) for name in FIELDS} for pod in pods]
    assert fields[0] == fields[1]
    assert fields[0]["ready"]
    assert fields[0]["waits_for"] == (("ns/other", 2),)
    assert fields[0]["requests"] == requests_of(kept.spec)
    for rule in (rules_of, node_terms, selector_of):
        assert repr(rule(whole.spec)) == repr(rule(kept.spec))
    assert terms_of(pods[0]) == terms_of(pods[1]) != []  # type: ignore[arg-type]
    assert b"secret" not in msgspec.json.encode(kept)


def test_what_pods_have_in_common_is_held_once() -> None:
    other = {**POD_JSON, "metadata": {**POD_JSON["metadata"], "name": "p-2", "uid": "uid-2"}}
    one, two = (
        msgspec.json.decode(msgspec.json.encode(pod), type=ReceivedPod) for pod in (POD_JSON, other)
    )
    for key in ("containers", "tolerations", "affinity"):
        assert one.spec[key] is two.spec[key]
    assert one.metadata.labels == two.metadata.labels == POD_JSON["metadata"]["labels"]
    label = one.metadata.labels[PART_OF]
    assert label is two.metadata.labels[PART_OF]
