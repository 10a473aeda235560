"""A machine as a record, as listed by providers; one function changes its state."""

import math

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import ACTIONS, NOTHING
from windtunnel.fleet.shape import MachineShape, fault_of_shape
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    HAS_CLUSTER,
    HAS_HOST,
    IDLE,
    SPECULATIVE,
    STATES,
    is_legal,
    next_states,
)

_BOUND = (CREATING, CONFIGURING, CONFIGURED, DRAINING)
"""States in which a machine is counted for a need."""


class Machine(msgspec.Struct, frozen=True):
    """One machine, or one place in a quota. Its id never changes."""

    id: str
    shape: MachineShape
    state: int = SPECULATIVE
    host: str = ""
    """The provider's name for the host; empty while there is none."""
    cluster: str = ""
    holder: NeedKey | None = None
    """The need that it is counted for."""
    promised: NeedKey | None = None
    """The need of higher priority that it is being drained for."""
    planned: int = NOTHING
    """The action that is decided but has not begun."""
    since_s: float = 0.0
    """When it entered its state."""
    error: str = ""


class IllegalTransition(InputError):
    """A change of state that no machine can make."""


def fault_of(machine: Machine) -> str:
    """The fault in a record, as a sentence; empty: none."""
    if not machine.id:
        return "a machine has no id"
    if not isinstance(machine.state, int) or not SPECULATIVE <= machine.state <= FAILED:
        return f"state {machine.state} does not exist; allowed: {SPECULATIVE} to {FAILED}"
    state, name = machine.state, STATES[machine.state]
    if HAS_HOST[state] and not machine.host:
        return f"it is {name} but has no host"
    if HAS_CLUSTER[state] and not machine.cluster:
        return f"it is {name} but belongs to no cluster"
    if state in (SPECULATIVE, CREATING) and (machine.host or machine.cluster):
        return f"it is {name} but has a host or a cluster"
    if state == IDLE and machine.cluster:
        return f"it is {name} but belongs to cluster {machine.cluster!r}"
    if state == FAILED and not machine.error:
        return "it is failed but does not say why"
    return _fault_of_notes(machine) or fault_of_shape(machine.shape)


def _fault_of_notes(machine: Machine) -> str:
    """The fault in the fields about holder, plan and time; empty: none."""
    if not math.isfinite(machine.since_s):
        return f"it has been in its state since {machine.since_s}; allowed: a time in seconds"
    if not NOTHING <= machine.planned < len(ACTIONS):
        return f"action {machine.planned} does not exist; allowed: 0 to {len(ACTIONS) - 1}"
    for key in (machine.holder, machine.promised):
        fault = "" if key is None else key.fault()
        if fault:
            return fault
    holder = machine.holder
    if holder is not None and machine.cluster and holder.cluster != machine.cluster:
        return f"it belongs to cluster {machine.cluster!r} and to a need of {holder.cluster!r}"
    return ""


def transition(
    machine: Machine,
    state: int,
    now_s: float,
    *,
    host: str | None = None,
    cluster: str | None = None,
    holder: NeedKey | None = None,
    error: str = "",
) -> Machine:
    """Returns the machine in its new state; the only way to change the state of a record.

    Fields that no longer apply in the new state are cleared here (such as the cluster of a machine
    that is idle again), so that no caller can forget it. The holder stays while the machine is
    bound.
    """
    if not is_legal(machine.state, state):
        raise IllegalTransition(
            f"it cannot go from {STATES[machine.state]} to {STATES[state]}",
            where=f"machine {machine.id!r}",
            allowed=next_states(machine.state),
        )
    bound = state in _BOUND
    new_host = machine.host if host is None else host
    new_cluster = machine.cluster if cluster is None else cluster
    if state in (SPECULATIVE, CREATING):
        new_host = ""
    if state not in (CONFIGURING, CONFIGURED, DRAINING):
        new_cluster = ""
    changed = msgspec.structs.replace(
        machine,
        state=state,
        host=new_host,
        cluster=new_cluster,
        holder=(holder or machine.holder) if bound else None,
        promised=machine.promised if state == DRAINING else None,
        planned=NOTHING,
        since_s=now_s,
        error=error,
    )
    fault = fault_of(changed)
    if fault:
        raise IllegalTransition(fault, where=f"machine {machine.id!r}")
    return changed
