"""A provider of machines on the Kubernetes API: Karpenter's NodeClaims, and existing nodes.

    Speculative   there is no NodeClaim             create      creates it
    Creating      it is not Initialized
    Idle          its node has our taint            configure   notes the need, removes the taint
    Configured    the taint is removed              drain       notes it, cordons, evicts
    Draining      cordoned, until it is empty                   then tainted and uncordoned
    Deleting      the NodeClaim is being deleted    delete      deletes it

An order is begun by exactly one call: it creates the NodeClaim, deletes it, or writes the note of
the machine (an annotation with goal, need and token). Everything after that follows from the note
and from what is observed, in any process: one that dies between any two calls leaves nothing undone
and nothing done twice. The call is guarded by the version of the object, so that one of two
competing processes is refused.

A machine whose node has a termination notice (spot), is gone, or has not been ready for long is
listed as failed: its need gets another one at once, while the node is drained as far as disruption
budgets allow.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from windtunnel.core.kubernetes import Received
from windtunnel.core.loop import INFINITY
from windtunnel.fleet.demand.requests import ACCELERATOR, DemandRow, MachineKind
from windtunnel.fleet.kubernetes.calls import first_call, follow_up, noted
from windtunnel.fleet.kubernetes.claims import (
    is_initialized,
    node_name,
    why_given_up,
)
from windtunnel.fleet.kubernetes.machines import SourcedPool, TrackedMachine
from windtunnel.fleet.kubernetes.objects import (
    CONFIGURE,
    DRAIN,
    EVICT,
    IDLE,
    MACHINE,
    WANTED,
    FleetCall,
    NodeState,
    Note,
    PodOnNode,
    ProviderOutcome,
    note_of,
    pod_on_node,
)
from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.orders import CREATE, DELETE, TAG, MachineOrder
from windtunnel.fleet.provider import CAPACITY, PAGE, PERMANENT, STEPS, ChangeLog, Completion, Page
from windtunnel.fleet.shape import ZONE
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    SPECULATIVE,
    STATES,
    is_legal,
)
from windtunnel.fleet.states import IDLE as IDLE_STATE

RETRIES_S: Final = {ProviderOutcome.STALE: (0.1, 5.0), ProviderOutcome.FAILED: (2.0, 60.0)}
"""Delay after a call that failed, doubled after each further one, and its maximum."""
REFUSED_S: Final = 5.0
"""Delay after an eviction that a disruption budget did not allow."""
SHOWN_S: Final = 1.0
"""Delay after which a deletion should be visible."""
NODE_SHOWN_S: Final = 30.0
"""How long a NodeClaim may be visible before its node is."""
LOST_SHARE: Final = 0.5
"""If a larger share of nodes is not ready, the cause is not the nodes themselves."""


class KubernetesProvider:
    """The machines of one fleet, for one shard."""

    def __init__(
        self,
        file: FleetFile,
        prices: Mapping[str, float],
        shard: str,
        cluster: str,
        topology_keys: Iterable[str] = (),
    ) -> None:
        self._name: Final = file.live.fleet.name
        self._lost_after_s: Final = file.live.fleet.lost_after_s
        self._shard: Final = shard
        self._cluster: Final = cluster
        self._keys: Final = sorted({*topology_keys, ZONE})
        self.pools: Final = [
            SourcedPool(file.pool(one.name), one, prices.get(one.name, 0.0))
            for one in file.live.fleet.pools
        ]
        self._machines: Final[dict[str, TrackedMachine]] = {}
        self._leaving: Final[
            dict[str, TrackedMachine]
        ] = {}  # nodes that were taken out of the fleet
        self._changes: Final = ChangeLog()
        self._nodes: Final[dict[str, NodeState]] = {}
        self._of_node: Final[dict[str, str]] = {}  # by node: its machine
        self._not_ready_s: Final[dict[str, float]] = {}  # by node: since when
        self._bad_hosts: Final[dict[str, None]] = {}  # nodes of machines that are not ready
        self._pods: Final[dict[str, dict[str, PodOnNode]]] = {}  # by node and uid
        self._dirty: Final[dict[str, None]] = {}  # machines whose record may have changed
        self._touched: Final[dict[str, None]] = {}  # machines that may need a call
        self._due: Final[dict[str, float]] = {}  # when to look at a machine again
        self._answers: list[Completion] = []
        self._epoch = 0
        self.owns: Callable[[Machine], bool] = _everything
        """Whether a machine belongs to the shard, which leaves others alone."""
        self.held_back = False
        """Whether orders are held back because the rows that they are for are not stored yet."""
        self.fenced = 0
        for pool in self.pools:
            if pool.live.node_class is not None:
                for number in range(pool.settings.machines.max):
                    name = f"{self._name}-{pool.settings.name}-{number}"
                    self._add(TrackedMachine(name, pool, pool.place(number)))

    def kinds(self) -> list[MachineKind]:
        """The kinds of machines that pods can request."""
        return [pool.kind() for pool in self.pools]

    # What is observed.

    def claim(self, name: str, raw: Received | None) -> None:
        """Reports a NodeClaim of the fleet that is new, has changed, or (None) is gone."""
        machine = self._machines.get(name)
        if machine is None and raw is not None:
            machine = self._beyond(name, raw)
        if machine is None or machine.is_node:
            return
        before = machine.claim
        machine.claim = raw
        if raw is None:
            if before is not None and _is(machine.order, CREATE):
                self._fail(machine, why_given_up(before), CAPACITY)
            machine.note = None
            self._link(machine, "")
            if machine.is_beyond:
                self._remove(name)
                return
        else:
            machine.note = note_of(raw.metadata)
            self._link(machine, node_name(raw))
        self._dirty[name] = None

    def _beyond(self, name: str, raw: Received) -> TrackedMachine | None:
        """Tracks a machine from before `machines.max` was lowered, given back once it is empty.

        None: the claim belongs to no pool of the file.
        """
        labels = raw.metadata.labels
        for pool in self.pools:
            stem, _, number = name.rpartition("-")
            is_named = stem == f"{self._name}-{pool.settings.name}" and number.isdecimal()
            if pool.live.node_class is not None and is_named and labels.get(MACHINE) == name:
                machine = TrackedMachine(name, pool, pool.place(int(number)), is_beyond=True)
                self._add(machine)
                return machine
        return None

    def _link(self, machine: TrackedMachine, node: str) -> None:
        if machine.node != node:
            before, machine.node = machine.node, node
            self._of_node.pop(before, None)
            if node:
                self._of_node[node] = machine.id
            self._count(before)
            self._count(node)

    def _count(self, node: str) -> None:
        """Records whether a node hosts a machine and is not ready."""
        if node in self._not_ready_s and node in self._of_node:
            self._bad_hosts[node] = None
        else:
            self._bad_hosts.pop(node, None)

    def node(self, name: str, raw: Received | None, now_s: float) -> None:
        """Reports a node that is new, has changed, or (None) is gone."""
        if raw is None:
            self._nodes.pop(name, None)
            self._not_ready_s.pop(name, None)
            self._remove(f"node/{name}")
            self._leaving.pop(f"node/{name}", None)
        else:
            state = self._nodes[name] = NodeState(raw)
            if state.ready:
                self._not_ready_s.pop(name, None)
            else:
                self._not_ready_s.setdefault(name, now_s)
            self._adopt(name, raw)
        self._count(name)
        found = self._of_node.get(name)
        if found is not None:
            self._dirty[found] = None

    def _adopt(self, name: str, raw: Received) -> None:
        """Tracks a node as a machine, if it belongs to a pool of existing nodes."""
        own = f"node/{name}"
        known = self._machines.get(own)
        if known is not None and not known.pool.selects(raw):
            record = self._changes.records.get(own)
            self._remove(own)  # it was taken out of the fleet
            if record is not None and self.owns(record):
                known.order = None
                self._leaving[own] = known
        if not any(one.live.nodes and one.selects(raw) for one in self.pools):
            self._release(own, name, raw)
            return
        self._leaving.pop(own, None)
        known = self._machines.get(own)
        if known is None:
            pool = next((one for one in self.pools if one.live.nodes and one.has(raw)), None)
            if pool is None:
                return
            known = TrackedMachine(own, pool, pool.shape_of(raw, self._keys), name)
            self._machines[own] = known
            self._of_node[name] = own
        known.claim = raw  # its note is on the node itself
        known.note = note_of(raw.metadata)
        self._dirty[own] = None

    def _release(self, own: str, name: str, raw: Received) -> None:
        """Removes this shard's marks from a node that no pool selects.

        Karpenter copies the note of a NodeClaim to its node, which does not count here.
        """
        note, is_claimed = note_of(raw.metadata), MACHINE in raw.metadata.labels
        ours = note is not None and (note.fleet, note.shard) == (self._name, self._shard)
        if ours and not is_claimed:
            pool = self.pools[0]  # which pool it belonged to no longer matters
            self._leaving.setdefault(own, TrackedMachine(own, pool, pool.place(0), name))
        if own in self._leaving:
            self._dirty[own] = None

    def pod(self, before: Received | None, after: Received | None) -> None:
        """Reports a pod that is new, has changed, or (None) is gone."""
        for raw, is_there in ((before, False), (after, True)):
            node = "" if raw is None else str(raw.spec.get("nodeName") or "")
            if raw is None or not node:
                continue
            found = pod_on_node(raw) if is_there else None
            pods = self._pods.setdefault(node, {})
            if found is not None:
                pods[found.uid] = found
            else:
                pods.pop(raw.metadata.uid, None)
                if not pods:
                    del self._pods[node]
            machine = self._of_node.get(node)
            if machine is not None:
                self._dirty[machine] = None

    # The interface of a provider.

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:  # noqa: ARG002 - by `advance`
        """Takes an order and returns at once."""
        machine = self._machines.get(order.machine)
        if machine is None:
            error = "there is no such machine"
            self._answers.append(Completion(order.machine, order.token, error, PERMANENT))
            return
        note = machine.note
        is_newer = note is None or note.shard != shard or note.token < order.token
        if order.token.epoch < self._epoch or not is_newer:
            self.fenced += 1
            return
        repeats = machine.order is not None and machine.order.operation == order.operation
        if order.operation != TAG:
            machine.known = STEPS[order.operation].under_way
        machine.sent = machine.sent and repeats
        machine.order = order
        self._dirty[machine.id] = None

    def get(self, machine: str) -> Machine | None:
        """The current record of a machine."""
        return self._changes.records.get(machine)

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:  # noqa: ARG002 - one shard
        """The changes after a cursor."""
        self._epoch = max(epoch, self._epoch)
        page = self._changes.since(cursor, most)
        for record in page.records:
            machine = self._machines[record.id]
            machine.known = record.state
            if record.state == FAILED:
                self._dirty[record.id] = None  # its state may have changed by now
        return page

    def changes_since(self, cursor: int) -> Page:
        """As `list_since`, for readers other than the shard."""
        return self._changes.since(cursor)

    def touch(self, machine: str) -> None:
        """Looks at a machine again after its shard has changed."""
        self._dirty[machine] = None

    def records(self) -> list[Machine]:
        return list(self._changes.records.values())

    def node_of(self, machine: str) -> str:
        """The node of a machine; empty if there is none."""
        found = self._machines.get(machine)
        return "" if found is None else found.node

    def need_of_pods(self, machine: str) -> NeedKey | None:
        """The need of the pods that must leave a machine before it goes; None: there are none."""
        found = self._machines[machine]
        is_in_use = found.node in self._nodes and self._pods.get(found.node)
        return found.note.need if is_in_use and found.note is not None else None

    # Time and calls.

    def next_s(self) -> float:
        """When an answer or a check is due; a time in the past: at once."""
        if self._dirty or self._answers:
            return -INFINITY
        return min(self._due.values(), default=INFINITY)

    def advance(self, now_s: float) -> list[Completion]:
        """Updates records; returns all answers since the last call."""
        due = [name for name, at in self._due.items() if at <= now_s]
        for name in due:
            del self._due[name]
            self._dirty[name] = None
        for name in self._dirty:
            machine = self._machines.get(name)
            if machine is not None:
                self._refresh(machine, now_s)
            self._touched[name] = None
        self._dirty.clear()
        answers, self._answers = self._answers, []
        return answers

    def calls(self, now_s: float) -> list[FleetCall]:
        """The calls to make now, each of which must be answered."""
        calls: list[FleetCall] = []
        for name in sorted(self._touched):
            machine = self._machines.get(name) or self._leaving.get(name)
            if machine is None or machine.busy:
                continue
            if now_s < machine.retry_s:
                self._look_at(machine, machine.retry_s)
                continue
            found = self._next(machine, now_s)
            machine.busy += len(found)
            calls += found
        self._touched.clear()
        return calls

    def let_go(self) -> None:
        """Lets orders that were held back begin."""
        self.held_back = False
        for machine in self._machines.values():
            if machine.order is not None and not machine.sent:
                self._dirty[machine.id] = None

    def answered(self, call: FleetCall, outcome: ProviderOutcome, says: str, now_s: float) -> None:
        """Takes the outcome of a call, whose effect on its object has already been observed."""
        machine = self._machines.get(call.machine) or self._leaving.get(call.machine)
        if machine is None:
            return
        machine.busy = max(0, machine.busy - 1)
        self._dirty[machine.id] = None
        if outcome is ProviderOutcome.DONE:
            machine.failures = 0
            machine.retry_s = now_s + SHOWN_S if call.verb == DELETE else -INFINITY
            if call.verb == EVICT:
                self._is_leaving(machine.node, call.uid)
            if call.begins and _is(machine.order, call.begins):
                machine.sent = True
        elif outcome is ProviderOutcome.TAKEN:
            self._fail(machine, says, PERMANENT)
        elif outcome is ProviderOutcome.REFUSED:
            machine.retry_s = max(machine.retry_s, now_s + REFUSED_S)
        else:
            machine.failures += 1
            first_s, most_s = RETRIES_S[outcome]
            machine.retry_s = now_s + min(first_s * 2.0 ** min(machine.failures - 1, 10), most_s)

    def _is_leaving(self, node: str, uid: str) -> None:
        """Marks an evicted pod as leaving before the cache shows it."""
        pods = self._pods.get(node, {})
        if uid in pods:
            pods[uid] = msgspec.structs.replace(pods[uid], leaving=True)

    def _add(self, machine: TrackedMachine) -> None:
        self._machines[machine.id] = machine
        self._dirty[machine.id] = None

    def _remove(self, name: str) -> None:
        machine = self._machines.pop(name, None)
        if machine is not None:
            self._of_node.pop(machine.node, None)
            self._count(machine.node)
            self._dirty.pop(name, None)
            self._due.pop(name, None)
            if name in self._changes.records:
                self._changes.remove(name)

    def _fail(self, machine: TrackedMachine, error: str, cause: str) -> None:
        if machine.order is not None:
            token = machine.order.token
            self._answers.append(Completion(machine.id, token, error, cause))
            machine.order = None
            machine.known = {CAPACITY: SPECULATIVE, PERMANENT: FAILED}.get(cause, -1)

    # Records of machines.

    def _refresh(self, machine: TrackedMachine, now_s: float) -> None:
        """Updates the record of a machine, and answers its order if that has ended."""
        before = self._changes.records.get(machine.id)
        state, error = self._state(machine, before, now_s)
        if not _follows(machine, state):
            # The shard has missed a step: it is informed of the loss first.
            was = STATES[machine.known]
            state, error = FAILED, error or f"it was {was} and is {STATES[state]}"
        note, need = machine.note, self._holder(machine, state)
        since_s = now_s
        if before is not None and before.state == state:
            since_s = before.since_s
        elif state == IDLE_STATE and note is not None and note.goal == IDLE:
            since_s = min(note.since_s, now_s)
        record = Machine(
            machine.id,
            machine.shape,
            state,
            host="" if state in (SPECULATIVE, CREATING) else machine.node or machine.id,
            cluster=need.cluster if need is not None and state != CREATING else "",
            holder=need,
            promised=note.promised if note is not None and state == DRAINING else None,
            since_s=since_s,
            error=error,
        )
        if record != before:
            self._changes.put(record)
        order = machine.order
        if order is None or order.operation == TAG:
            return
        if state == FAILED:
            machine.order = None  # the list reports it
        elif state == STEPS[order.operation].end:
            self._answers.append(Completion(machine.id, order.token, host=record.host))
            machine.order = None
            machine.known = state

    def _holder(self, machine: TrackedMachine, state: int) -> NeedKey | None:
        if state not in (CREATING, CONFIGURING, CONFIGURED, DRAINING):
            return None
        note = machine.note
        if note is not None and note.need is not None:
            return note.need
        if state == CREATING:
            return None
        # Its need was not noted: as long as it has pods, it is for them.
        pool = machine.pool
        row = DemandRow(
            f"{self._cluster}.{machine.node}",
            {ACCELERATOR: pool.settings.accelerator},
            pool.settings.accelerators,
            1,
        )
        return row.need(self._cluster).key()

    def _state(
        self, machine: TrackedMachine, before: Machine | None, now_s: float
    ) -> tuple[int, str]:
        if machine.claim is None:
            return SPECULATIVE, ""
        goal = "" if machine.note is None else machine.note.goal
        if not machine.is_node:
            if not is_initialized(machine.claim):
                return CREATING, ""
            if machine.claim.metadata.deletion_timestamp is not None:
                is_ours = goal in (WANTED, IDLE)
                why = "its NodeClaim is being deleted by others"
                return (DELETING, "") if is_ours else (FAILED, why)
        node = self._nodes.get(machine.node)
        if node is None:
            gone_s = self._not_ready_s.setdefault(machine.node, now_s)
            self._count(machine.node)
            may_come = before is None or before.state == CREATING
            if may_come and now_s < gone_s + NODE_SHOWN_S:
                self._look_at(machine, gone_s + NODE_SHOWN_S)
                return CREATING, ""
            return FAILED, f"its node {machine.node} is gone"
        why = self._why_lost(machine, node, now_s)
        return (FAILED, why) if why else (_settled(goal, node), "")

    def _why_lost(self, machine: TrackedMachine, node: NodeState, now_s: float) -> str:
        """Why a node is lost or soon will be; empty: nothing is wrong."""
        if node.notice:
            return f"a notice: its node has the taint {node.notice}"
        since_s = self._not_ready_s.get(machine.node)
        if since_s is None:
            return ""
        if now_s < since_s + self._lost_after_s:
            self._look_at(machine, since_s + self._lost_after_s)
            return ""
        if len(self._bad_hosts) > max(1.0, LOST_SHARE * len(self._of_node)):
            self._look_at(machine, now_s + REFUSED_S)
            return ""
        return f"its node has not been ready for {self._lost_after_s:g} s"

    def _look_at(self, machine: TrackedMachine, at_s: float) -> None:
        self._due[machine.id] = min(at_s, self._due.get(machine.id, INFINITY))

    # Calls for a machine.

    def _next(self, machine: TrackedMachine, now_s: float) -> list[FleetCall]:
        if machine.id in self._leaving:
            call = self._nodes[machine.node].release(machine.id)
            if call is None:
                del self._leaving[machine.id]
            return [] if call is None else [call]
        record = self._changes.records[machine.id]
        if not self.owns(record):
            return []
        if machine.order is not None and not machine.sent and not self.held_back:
            operation = machine.order.operation
            call = self._order_call(machine, machine.order, record, now_s)
            if call is not None:
                return [msgspec.structs.replace(call, begins=operation)]
        if machine.claim is None:
            return []
        node, pods = self._nodes.get(machine.node), self._pods.get(machine.node, {})
        return follow_up(machine, record, node, pods, now_s)

    def _order_call(
        self, machine: TrackedMachine, order: MachineOrder, record: Machine, now_s: float
    ) -> FleetCall | None:
        """The one call that begins an order; None if it has begun or cannot."""
        operation, state = order.operation, record.state
        note = Note(
            CONFIGURE,
            self._shard,
            order.token.epoch,
            order.token.sequence,
            order.need,
            since_s=now_s,
            fleet=self._name,
        )
        if operation == TAG:
            machine.order = None  # it gets no answer, and a lost one is sent again
            if state not in (CONFIGURING, CONFIGURED):
                return None
            return noted(machine, note, "it is counted for another need")
        step = STEPS[operation]
        if state == step.under_way:
            machine.sent = True  # its completion answers the newer order
            return None
        if state != step.start:
            error = f"it is {STATES[state]}; {operation} begins at {STATES[step.start]}"
            self._fail(machine, error, "passing")
            return None
        if operation == DELETE and machine.is_node:
            self._fail(machine, "a node that exists is not ours to delete", PERMANENT)
            return None
        return first_call(self._name, machine, order, record, note)


def _settled(goal: str, node: NodeState) -> int:
    """The state of a machine whose node is healthy."""
    if goal == DRAIN:
        return DRAINING
    if goal == CONFIGURE or (not goal and not node.is_idle):
        return CONFIGURING if node.is_idle else CONFIGURED
    return IDLE_STATE


def _follows(machine: TrackedMachine, state: int) -> bool:
    """Whether a state can follow the one that the shard knows."""
    known, order = machine.known, machine.order
    if order is not None and order.operation != TAG:
        step = STEPS[order.operation]
        if state in (step.start, step.under_way, step.end):
            return True
    return known < 0 or is_legal(known, state) or not is_legal(known, FAILED)


def _is(order: MachineOrder | None, operation: str) -> bool:
    return order is not None and order.operation == operation


def _everything(machine: Machine) -> bool:  # noqa: ARG001 - a shard that has all of them
    return True
