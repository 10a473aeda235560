"""Writes docs/reference/fleet.md from the settings of a fleet on Kubernetes.

Run it after a change of a field: `python docs/fleet_reference.py`. A test holds the page to it.
"""

import runpy
from pathlib import Path

from windtunnel.fleet.kubernetes.objects import (
    CORDONED,
    DO_NOT_DISRUPT,
    FLEET,
    IDLE_TAINT,
    MACHINE,
    NEED,
    NOTE,
    NOTICES,
    POOL,
)
from windtunnel.fleet.kubernetes.settings import LiveFleet
from windtunnel.live.operate.fleet.program import NAME

# ruff: noqa: E501 - lines of Markdown
PAGE = Path(__file__).parent / "reference" / "fleet.md"

INTRODUCTION = f"""\
# The fleet on Kubernetes

What [`windtunnel operate --fleet FILE`](../how-to/get-machines-on-kubernetes.md) reads and writes. The file has `fleet`, as in a [scenario](scenario.md), and `live.fleet`, below (`*`: required). `machines.initial`, `provisioning` and `replaced_after` have no effect; `machines.min` machines are kept once they were needed; `machines.max` limits NodeClaims, not existing nodes.

## States of a machine

- speculative: a place within `machines.max` without a NodeClaim
- creating: the NodeClaim is not yet `Initialized`
- idle: the node has the taint `{IDLE_TAINT}:NoSchedule`
- configured: without the taint
- draining: cordoned; pods are evicted
- deleting: the NodeClaim is being deleted
- failed: lost, or about to be ([notices](#notices-and-losses))

Where state is stored:

- A NodeClaim is named `FLEET-POOL-NUMBER`, so a machine never has two. Its annotation `{NOTE}` has the order under way.
- Demand is stored in the ConfigMap `{NAME}-FLEET-SHARD` before a machine is ordered, up to 900 KiB (about 6,000 machines). The Lease of the same name says which operator decides; its `leaseTransitions` is part of the epoch.
- With several shards, the key `report` of that ConfigMap is for the coordinator, whose books and instructions are in `{NAME}-FLEET-coordinator`.

## Objects

- Labels of NodeClaims: `{FLEET}`, `{POOL}`, `{MACHINE}`, `windtunnel.dev/accelerator` and the pool's, which Karpenter copies to the node. Without `karpenter.sh/nodepool`, Karpenter neither consolidates nor expires these claims.
- Spec of NodeClaims: `requirements` from `instance_types`, the pool's zone, the capacity type (`bare-metal` as `on-demand`) and `requirements`; `resources.requests` of accelerators and the pool's `cpu` and `memory`; taints of the pool and `{IDLE_TAINT}`; `expireAfter: Never`.
- Nodes: the taint `{IDLE_TAINT}`; while draining `spec.unschedulable`, with the annotation `{CORDONED}` that says why; and the label `{NEED}`. Cordons by others are left alone.
- Pods are evicted through `pods/eviction`, within disruption budgets, and retried after 5 s. Pods of DaemonSets, static pods and ended pods do not count. A pod with `{DO_NOT_DISRUPT}: "true"` is only evicted from a machine that is taken away.

## Which pods get machines

Machines are ordered for pods that kube-scheduler or, with `--place`, gang placement marks `Unschedulable` (condition `PodScheduled`). They are packed into machines as in a simulation: `nodeSelector`, required node affinity, tolerations and `required` topology of gangs count; `podAffinity` and spreads do not. Gangs that must share a label that only some nodes have, such as a rack, get only existing nodes. A pod that fits no kind of machine gets the event `FleetNoKind`.

## Notices and losses

A node will be taken away if it has one of the taints {", ".join(f"`{one}`" for one in NOTICES)}, or if another program deletes its NodeClaim. Its need gets another machine at once, and its pods are evicted.
If a NodeClaim disappears before it was `Initialized`, Karpenter had no capacity: its instance type, zone and capacity type are not tried again for 30 s, doubling up to 10 min. A node that is gone, or not ready for `lost_after`, is replaced, unless more than half of the nodes are not ready.

## Events, logs and metrics

Events at the pod and at the machine (`FleetProvision`, `FleetBootstrap`, `FleetReclaim`, `FleetPreempt`, `FleetDelete`, `FleetFailed`, `FleetShort`, ...), JSON lines on standard error, `fleet.*` in the event log of `--log`, and the metrics
`windtunnel_fleet_leader`, `_machines` by pool and state, `_needs_short`, `_state_unreadable` (a ConfigMap of the fleet; its shard decides nothing until it is repaired), and `_calls_total` by verb, kind and outcome (`refused`: a disruption budget).

## Limitations

- Machines in use are never replaced by cheaper ones: consolidation and the buffer for failures are for soaks.
- A pod bound at the moment its machine is found to be unneeded is evicted, unless it tolerates `windtunnel.dev/idle` or is marked do-not-disrupt.
- A drain held up by disruption budgets for more than half an hour counts as failed until the machine is empty; it is not cancelled.
- After a restart, a NodeClaim that an earlier process created and Karpenter gives up is ordered again without a back-off.
- Changes of the file need a restart. With several shards, a zone cannot be given to another one.
"""


def page() -> str:
    """The whole page."""
    script = runpy.run_path(str(Path(__file__).parent / "scenario_reference.py"))
    parts = [INTRODUCTION]
    parts += script["sections"]("live.fleet", "live.fleet", LiveFleet)
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
