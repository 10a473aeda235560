"""Karpenter's NodeClaims: how they are written, and what their conditions mean."""

from typing import Any, Final

from windtunnel.core.kubernetes import Received
from windtunnel.core.taints import taint_of
from windtunnel.fleet.demand.requests import ACCELERATOR, CPU, GPU, MEMORY
from windtunnel.fleet.kubernetes.objects import (
    CLAIM,
    CREATE,
    DELETE,
    FLEET,
    IDLE_TAINT,
    MACHINE,
    NOTE,
    POOL,
    FleetCall,
    Note,
    condition,
    is_true,
)
from windtunnel.fleet.kubernetes.settings import LivePool
from windtunnel.fleet.settings import FleetPool
from windtunnel.fleet.shape import INSTANCE_TYPE, ZONE

CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
_CAPACITY: Final = {"bare-metal": "on-demand"}
"""Karpenter's names of capacity types that differ from ours."""


def create_call(
    fleet: str, machine: str, pool: FleetPool, live: LivePool, note: Note, why: str
) -> FleetCall:
    """Creates the NodeClaim of a machine, under the machine's name, so that it exists only once."""
    labels = {**pool.labels, ACCELERATOR: pool.accelerator}
    labels |= {FLEET: fleet, POOL: pool.name, MACHINE: machine}
    meta = {"name": machine, "labels": labels, "annotations": {NOTE: note.text()}}
    body = {"metadata": meta, "spec": _spec(pool, live)}
    return FleetCall(CREATE, CLAIM, machine, machine, body=body, why=why)


def delete_call(machine: str, claim: Received, why: str) -> FleetCall:
    """Deletes exactly this claim, unless it has changed since it was read."""
    meta = claim.metadata
    guards = meta.uid, meta.resource_version
    return FleetCall(DELETE, CLAIM, meta.name, machine, "", {}, *guards, why)


def _spec(pool: FleetPool, live: LivePool) -> dict[str, Any]:
    requirements: list[dict[str, Any]] = []
    if live.instance_types:
        requirements.append(_in(INSTANCE_TYPE, *live.instance_types))
    if pool.written("zone"):
        requirements.append(_in(ZONE, pool.zone))
    requirements.append(_in(CAPACITY_TYPE, _CAPACITY.get(pool.capacity, pool.capacity)))
    for one in live.requirements:
        more: dict[str, Any] = {"key": one.key, "operator": one.operator}
        requirements.append({**more, "values": list(one.values)} if one.values else more)
    requests = {GPU: str(pool.accelerators)}
    if pool.written("cpu"):
        requests[CPU] = f"{int(pool.cpu * 1000)}m"
    if pool.written("memory_bytes"):
        requests[MEMORY] = str(int(pool.memory_bytes))
    assert live.node_class is not None
    ref = live.node_class
    return {
        "requirements": requirements,
        "resources": {"requests": requests},
        "nodeClassRef": {"group": ref.group, "kind": ref.kind, "name": ref.name},
        "taints": [*map(_taint, pool.taints), {"key": IDLE_TAINT, "effect": "NoSchedule"}],
        "expireAfter": "Never",
    }


def _taint(text: str) -> dict[str, str]:
    key, value, effect = taint_of(text)
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def is_initialized(claim: Received) -> bool:
    """Whether its node has registered and is ready for pods."""
    return is_true(claim, "Initialized")


def node_name(claim: Received) -> str:
    return str(claim.status.get("nodeName") or "")


def why_given_up(claim: Received) -> str:
    """Why Karpenter gave up a claim that was never initialized, by its last conditions."""
    for kind in ("Launched", "Registered", "Initialized"):
        found = condition(claim, kind)
        if found.get("status") != "True":
            says = " ".join(str(found.get(key) or "") for key in ("reason", "message")).strip()
            return f"Karpenter gave its NodeClaim up before it was {kind.lower()}" + (
                f": {says}" if says else ""
            )
    return "its NodeClaim is gone"
