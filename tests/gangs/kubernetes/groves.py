"""Objects of ours as Grove's own operator makes them: other hashes, finalizers, nothing of ours.

Read in Grove's sources: gangs and autoscalers carry no index of their set replica, and cliques of
scaling groups have environment variables in their pod specs.
"""

import copy
from typing import Any

from windtunnel.gangs.kubernetes.status_fields import MEMORY
from windtunnel.gangs.kubernetes.takeover import FINALIZERS
from windtunnel.gangs.objects import CLIQUE, GANG, POD, SET
from windtunnel.gangs.pod_manifest import CLIQUE_NOTE, GROUP_LABEL, SET_INDEX, TEMPLATE_HASH

HPA = "HorizontalPodAutoscaler"


def groves_hash(ours: str) -> str:
    return f"grove-{ours[::-1]}"


def as_groves(kind: str, ours: dict[str, Any]) -> dict[str, Any]:
    """The same object, as if Grove's operator had made it and brought it up."""
    made = copy.deepcopy(ours)
    meta = made["metadata"]
    labels = meta.get("labels") or {}
    if TEMPLATE_HASH in labels:
        labels[TEMPLATE_HASH] = groves_hash(labels[TEMPLATE_HASH])
    if kind in FINALIZERS:
        meta["finalizers"] = [FINALIZERS[kind]]
        made["status"].pop(MEMORY, None)
        made["status"].pop("conditions", None)
        made["status"]["observedGeneration"] = meta["generation"]
    if kind == SET:
        now = made["status"]["currentGenerationHash"]
        made["status"]["currentGenerationHash"] = groves_hash(now)
    if kind == CLIQUE:
        meta["annotations"].pop(CLIQUE_NOTE)
        if GROUP_LABEL in labels:
            env = [{"name": "GROVE_PCSG_TEMPLATE_NUM_PODS", "value": "4"}]
            for container in made["spec"]["podSpec"]["containers"]:
                container["env"] = [*env, *container.get("env", [])]
    if kind in (GANG, HPA):
        labels.pop(SET_INDEX)
    assert kind != POD or TEMPLATE_HASH in labels
    return made
