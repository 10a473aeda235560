"""The calls that a machine needs: the one that begins an order, and those that follow from its note
and from what is observed."""

from collections.abc import Mapping
from typing import Final

import msgspec

from windtunnel.fleet.kubernetes.claims import create_call, delete_call
from windtunnel.fleet.kubernetes.machines import TrackedMachine
from windtunnel.fleet.kubernetes.objects import (
    CLAIM,
    CONFIGURE,
    DRAIN,
    IDLE,
    NODE,
    WANTED,
    FleetCall,
    NodeState,
    Note,
    PodOnNode,
    evict_call,
    note_call,
)
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import CREATE, DELETE, MachineOrder
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, DELETING, DRAINING, FAILED
from windtunnel.fleet.states import IDLE as IDLE_STATE

EVICTIONS: Final = 32
"""Maximum evictions at once from one machine."""


def first_call(
    fleet: str, machine: TrackedMachine, order: MachineOrder, record: Machine, note: Note
) -> FleetCall:
    """The call that begins an order."""
    operation, claim = order.operation, machine.claim
    if operation == CREATE:
        note = msgspec.structs.replace(note, goal=WANTED)
        pool = machine.pool
        why = f"for need {order.need.group}" if order.need is not None else "for no need"
        return create_call(fleet, machine.id, pool.settings, pool.live, note, why)
    assert claim is not None
    if operation == DELETE:
        return delete_call(machine.id, claim, "idle for longer than its kind is kept")
    if operation == CONFIGURE:
        return noted(machine, note, "it joins")
    held = machine.note.need if machine.note is not None else record.holder
    drains = msgspec.structs.replace(note, goal=DRAIN, need=held, promised=order.need)
    why = "it is given to another need" if order.need is not None else "no need requires it"
    return noted(machine, drains, why)


def noted(machine: TrackedMachine, note: Note, why: str) -> FleetCall:
    """The call that writes the note of a machine."""
    assert machine.claim is not None
    kind = NODE if machine.is_node else CLAIM
    return note_call(kind, machine.claim, machine.id, note, why)


def follow_up(
    machine: TrackedMachine,
    record: Machine,
    node: NodeState | None,
    pods: Mapping[str, PodOnNode],
    now_s: float,
) -> list[FleetCall]:
    """The calls that follow from the note and from what is observed."""
    note, name = machine.note, machine.id
    if record.state == FAILED:
        return _give_up(machine, node, pods, record.error)
    if node is None or record.state == DELETING:
        return []
    if record.state == DRAINING:
        assert note is not None
        return _drain(machine, node, pods, note, now_s)
    if record.state == CONFIGURING:
        assert record.holder is not None
        group = record.holder.group
        why = f"it is for need {group}"
        return [node.patch(name, why, idle=False, cordon=_uncordon(node), need=group)]
    if record.state == CONFIGURED:
        if node.cordoned_by_us:  # for a notice that was taken back
            return [node.patch(name, "the notice was taken back", cordon=False)]
    elif record.state == IDLE_STATE:
        if not node.is_idle or node.cordoned_by_us:
            why = "no need requires it"
            return [node.patch(name, why, idle=True, cordon=_uncordon(node), need="")]
        # They were bound before a scheduler saw the taint.
        bound = {uid: one for uid, one in pods.items() if not one.parks}
        return _evictions(machine, bound, "its machine is not in use", ask=True)
    return []


def _drain(
    machine: TrackedMachine,
    node: NodeState,
    pods: Mapping[str, PodOnNode],
    note: Note,
    now_s: float,
) -> list[FleetCall]:
    name = machine.id
    if pods:
        if not node.cordoned:
            return [node.patch(name, "it is drained", cordon=True)]
        return _evictions(machine, pods, "its machine is drained", ask=True)
    if not node.is_idle or node.cordoned_by_us:
        why = "it is empty"
        return [node.patch(name, why, idle=True, cordon=_uncordon(node), need="")]
    idle = msgspec.structs.replace(note, goal=IDLE, need=None, promised=None, since_s=now_s)
    return [noted(machine, idle, "it is empty")]


def _give_up(
    machine: TrackedMachine, node: NodeState | None, pods: Mapping[str, PodOnNode], why: str
) -> list[FleetCall]:
    """Empties a machine that is lost or being taken away, while there is time.

    The shard is informed first, so that a replacement is on its way before pods are evicted.
    """
    if machine.known != FAILED:
        return []
    if node is not None and pods and node.ready:
        if not node.cordoned:
            return [node.patch(machine.id, why, cordon=True)]
        return _evictions(machine, pods, why, ask=False)
    claim = machine.claim
    assert claim is not None
    if machine.is_node or claim.metadata.deletion_timestamp is not None:
        return []
    return [delete_call(machine.id, claim, why)]


def _evictions(
    machine: TrackedMachine, pods: Mapping[str, PodOnNode], why: str, *, ask: bool
) -> list[FleetCall]:
    staying = [one for one in pods.values() if not one.leaving]
    going = [one for one in staying if not (ask and one.stays)]
    going.sort(key=lambda one: (one.namespace, one.name))
    return [evict_call(one, machine.id, why) for one in going[:EVICTIONS]]


def _uncordon(node: NodeState) -> bool | None:
    """Whether to uncordon: a cordon that is not ours stays."""
    return False if node.cordoned_by_us else None
