"""The demand of pods for machines: packs the pods of a cluster into rows of machines for its fleet.

A row asks for a number of machines. It is kept while a machine counted for it has a pod, so that
the fleet never removes a machine in use instead of an empty one. Pending pods are packed onto
machines with room, then onto machines on their way, and only then is another machine requested.
Room that a pod has not been given within a minute does not count, whatever the reason: racks,
spreads, neighbours. Pods with host anti-affinity get machines of their own at once.

The driver reports nodes, pods and the row of each machine as they change; `look` costs in
proportion to what changed and what is pending, not to what exists.
`tests/fleet/reference_demand.py` computes the same from scratch, and a property test compares the
two.
"""

import heapq
import math
from collections.abc import Mapping
from typing import Final

from windtunnel.core.taints import ALL_TAINTS, tolerates
from windtunnel.fleet.demand.requests import (
    ACCELERATOR,
    APART,
    GPU,
    TAINTS,
    DemandRow,
    MachineKind,
    NodeTerm,
    PodOrder,
    PodRequest,
    taints_in,
)
from windtunnel.fleet.requirements import NOT_IN, accepts_all, requirement

PATIENCE_S: Final = 60.0
"""How long room on a machine counts for a pod that is not placed there."""
MOST_SPARE: Final = 256
"""So many shapes are kept beyond two for each pending pod: those of deleted sets do not return."""

Place = tuple[int, int, int]
"""The order of rows: the `look` that made a row, whether it is new, and a number."""
ShapeKey = tuple[object, ...]
Rank = tuple[int, int, int, int, int]
"""The order in which room is filled: machines in the cluster, then those on their way."""


class _Node:
    """A node as the driver last reported it, and the pods on it."""

    __slots__ = ("capacity", "cordoned", "known", "labels", "pods", "ready")

    def __init__(self) -> None:
        self.known = False
        self.capacity: Mapping[str, float] = {}
        self.labels: Mapping[str, str] = {}
        self.ready = False
        self.cordoned = False
        self.pods: Final[dict[str, PodRequest]] = {}


class _Room:
    """Room on a machine in the cluster, or on one on its way."""

    __slots__ = ("base", "free", "gone", "labels", "number", "pinned", "rank", "row", "since_s")

    def __init__(self, number: int, rank: Rank, row: str, since_s: float) -> None:
        self.number: Final = number
        self.rank: Final = rank
        self.row = row
        self.since_s: Final = since_s
        """When the machine was first seen in the cluster; infinity: it is on its way."""
        self.labels: Mapping[str, str] = {}
        self.base: dict[str, float] = {}
        """The room left by the pods on the machine."""
        self.free: dict[str, float] = {}
        """`base`, minus the room expected for pending pods."""
        self.gone = True  # or closed, because cordoned or not ready
        self.pinned = False  # whether its row must be kept

    def fits(self, takes: Mapping[str, float]) -> bool:
        return _fits(self.free, takes)

    def take(self, takes: Mapping[str, float]) -> None:
        _take(self.free, takes)


class _Index:
    """Rooms that may fit pods of one shape, by rank.

    A room that no longer fits is dropped when it is encountered, and offered again when it has more
    room.
    """

    __slots__ = ("_heap", "_listed", "_pod", "_takes")

    def __init__(self, pod: PodRequest) -> None:
        self._pod: Final = pod
        self._takes: Final = pod.takes
        self._heap: Final[list[tuple[Rank, int, _Room]]] = []
        self._listed: Final[dict[int, None]] = {}

    def offer(self, room: _Room) -> None:
        if (
            room.number not in self._listed
            and self._pod.may_use(room.labels)
            and room.fits(self._takes)
        ):
            self._listed[room.number] = None
            heapq.heappush(self._heap, (room.rank, room.number, room))

    def first(self, now_s: float) -> _Room | None:
        """The first room that fits, on a machine in the cluster for less than `PATIENCE_S`."""
        heap = self._heap
        while heap:
            room = heap[0][2]
            if not room.gone and now_s - room.since_s < PATIENCE_S and room.fits(self._takes):
                return room
            heapq.heappop(heap)
            del self._listed[room.number]
        return None


class _Shape:
    """Pods with the same requirements, the room for them, and the kind of machine to request."""

    def __init__(self, key: ShapeKey, pod: PodRequest, kind: MachineKind | None) -> None:
        self.key: Final = key
        self.kind: Final = kind
        self.every: Final = _Index(pod)
        self.young: Final = _Index(pod)
        """As `every`, without machines in the cluster for longer than `PATIENCE_S`."""


class _Pending:
    """A pod without a machine."""

    __slots__ = ("gated", "order", "pod", "shape")

    def __init__(self, pod: PodRequest, shape: _Shape) -> None:
        self.pod: Final = pod
        self.shape: Final = shape
        self.order: Final = pod.order()
        self.gated = False


class _Row:
    """A row with its place among the others, and the machines still to come for it."""

    __slots__ = ("coming", "kind", "place", "row", "taken")

    def __init__(self, row: DemandRow, place: Place, kind: MachineKind | None):
        self.row: Final = row
        self.place: Final = place
        self.kind: Final = kind
        self.coming: Final[list[_Room]] = []
        self.taken = 0  # the last look in which a pending pod was put there


class Demand:
    """The rows of machines that one cluster requests from its fleet."""

    def __init__(self, cluster: str, kinds: list[MachineKind]) -> None:
        self._cluster: Final = cluster
        self._kinds: Final = kinds
        self._nodes: Final[dict[str, _Node]] = {}
        self._node_of: Final[dict[str, str]] = {}  # by pod
        self._pending: Final[dict[str, _Pending]] = {}
        self._together: Final[dict[str, str]] = {}  # by gang: the label its machines must share
        self._priorities: Final[dict[str, int]] = {}  # by owner
        self._touched: Final[dict[str, None]] = {}  # nodes that changed since the last look
        self._held: Final[dict[str, tuple[str, int] | None]] = {}  # as above: rows of machines
        self._rooms: Final[dict[str, _Room]] = {}  # by machine
        self._of_row: Final[dict[str, dict[str, _Room]]] = {}  # by row and machine
        self._pins: Final[dict[str, int]] = {}  # by row: machines for which it must be kept
        self._rows: Final[dict[str, _Row]] = {}
        self._loose: Final[dict[str, None]] = {}  # rows without a pin
        self._shapes: Final[dict[ShapeKey, _Shape]] = {}
        self._ages: Final[list[tuple[float, int, _Room]]] = []
        self._expected: Final[dict[int, _Room]] = {}  # rooms that pending pods were put in
        self._extra: Final[dict[str, str]] = {}  # by pod: the extra row that was requested for it
        self._number = 0
        self._issued = 0
        self._looks = 0
        self.unplaceable: Final[dict[str, bool]] = {}
        """Pods that fit no kind of machine; True: only because of missing tolerations."""
        self.added: Final[dict[str, DemandRow]] = {}
        self.dropped: Final[dict[str, None]] = {}
        """Rows dropped since the reader last emptied this and `added`; drops are applied first."""

    # What the driver reports.

    def node(
        self,
        name: str,
        capacity: Mapping[str, float],
        labels: Mapping[str, str],
        *,
        ready: bool,
        cordoned: bool,
    ) -> None:
        """Reports a new or changed node."""
        node = self._nodes.setdefault(name, _Node())
        node.known, node.capacity, node.labels = True, capacity, labels
        node.ready, node.cordoned = ready, cordoned
        self._touched[name] = None

    def node_gone(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            node.known = node.ready = node.cordoned = False
            if not node.pods:
                del self._nodes[name]
            self._touched[name] = None

    def pod(self, pod: PodRequest, node: str, *, pending: bool, gated: bool) -> None:
        """Reports a new or changed pod; `node` is empty while it has none."""
        before = self._node_of.get(pod.name)
        if before is not None and before != node:
            self._leave(pod.name, before)
        if node:
            self._node_of[pod.name] = node
            self._nodes.setdefault(node, _Node()).pods[pod.name] = pod
            self._touched[node] = None
        if not pending:
            self._pending.pop(pod.name, None)
            return
        known = self._pending.get(pod.name)
        if known is None or known.pod is not pod:
            known = self._pending[pod.name] = _Pending(pod, self._shape(pod))
        known.gated = gated

    def pod_gone(self, name: str) -> None:
        self._pending.pop(name, None)
        self._extra.pop(name, None)
        before = self._node_of.get(name)
        if before is not None:
            self._leave(name, before)

    def _leave(self, pod: str, node: str) -> None:
        del self._node_of[pod]
        left = self._nodes[node]
        del left.pods[pod]
        if not left.pods and not left.known:
            del self._nodes[node]
        self._touched[node] = None

    def gang(self, name: str, together: str) -> None:
        """Sets the label whose value the machines of a gang must share; empty: none."""
        if together:
            self._together[name] = together
        else:
            self._together.pop(name, None)

    def prioritize(self, owner: str, priority: int) -> None:
        """Sets the priority of an owner's pods; the default is 0."""
        self._priorities[owner] = priority

    def hold(self, machine: str, row: str, rank: int) -> None:
        """Counts a machine in the cluster for a row; machines of lower rank are filled first."""
        self._held[machine] = (row, rank)

    def release(self, machine: str) -> None:
        """Reports that a machine has left the cluster, or is leaving."""
        self._held[machine] = None

    # State kept across restarts.

    @property
    def issued(self) -> int:
        """The number of rows ever requested, which is part of their names."""
        return self._issued

    def restore(self, rows: list[DemandRow], issued: int) -> None:
        """Restores the rows of an earlier process, in order; those that no pod needs any more are
        dropped in the next `look`."""
        self._issued = max(self._issued, issued)
        for number, row in enumerate(rows):
            wanted = PodRequest(
                "", "", {}, row.selector, affinity=(row.affinity,), tolerations=(ALL_TAINTS,)
            )
            made = self._add(row, (0, 0, number), self._smallest(wanted, row.accelerators))
            self._await(made, row.since_s)

    # What it asks for.

    @property
    def rows(self) -> list[DemandRow]:
        """All rows, oldest first."""
        return [one.row for one in sorted(self._rows.values(), key=_place)]

    def row(self, name: str) -> DemandRow | None:
        found = self._rows.get(name)
        return None if found is None else found.row

    def look(self, now_s: float) -> None:
        """Packs pods again, if anything changed or is pending."""
        if not (self._touched or self._held or self._pending or self._loose):
            return
        self._looks += 1
        for room in self._expected.values():
            if not room.gone:
                room.free = dict(room.base)
                self._offer(room, now_s)
        self._expected.clear()
        self._follow(now_s)
        self._settle(now_s)
        for name in [one for one in self._loose if self._rows[one].taken != self._looks]:
            self._drop(name)

    def _follow(self, now_s: float) -> None:
        """Updates rooms for the nodes and holders that changed."""
        rows: dict[str, None] = {}  # those whose machines changed
        for machine, held in self._held.items():
            before = self._rooms.get(machine)
            if before is not None:
                rows[before.row] = None
                self._pin(before, pinned=False)
                before.gone = True
                del self._rooms[machine]
                del self._of_row[before.row][machine]
            if held is not None:
                row, rank = held
                since_s = now_s if before is None else before.since_s
                made = self._new_room((0, rank, 0, 0, 0), row, since_s)
                self._rooms[machine] = self._of_row.setdefault(row, {})[machine] = made
                self._touched[machine] = None
                rows[row] = None
        self._held.clear()
        for name in self._touched:
            room = self._rooms.get(name)
            if room is not None:
                self._refresh(name, room, now_s)
                if room.pinned:
                    self._recall(room.row, now_s)
        self._touched.clear()
        for name in rows:
            if not self._of_row.get(name, True):
                del self._of_row[name]
            if name in self._rows:
                self._await(self._rows[name], now_s)

    def _new_room(self, rank: Rank, row: str, since_s: float) -> _Room:
        self._number += 1
        return _Room(self._number, rank, row, since_s)

    def _refresh(self, name: str, room: _Room, now_s: float) -> None:
        """Updates a machine's free room, whether it takes pods, and whether to keep its row."""
        node = self._nodes.setdefault(name, _Node())
        free = dict(node.capacity)
        for pod in sorted(node.pods.values(), key=PodRequest.order):
            _take(free, pod.takes)
        room.labels, room.base, room.free = node.labels, free, dict(free)
        was_open, room.gone = not room.gone, not node.ready or node.cordoned
        # A cordoned machine is leaving; without its row it would be assigned to the next one.
        self._pin(room, pinned=bool(node.pods) or node.cordoned)
        if not room.gone:
            if not was_open:
                heapq.heappush(self._ages, (room.since_s, room.number, room))
            self._offer(room, now_s)

    def _pin(self, room: _Room, *, pinned: bool) -> None:
        """Counts the machines for which a row must be kept."""
        if room.pinned == pinned:
            return
        room.pinned = pinned
        left = self._pins[room.row] = self._pins.get(room.row, 0) + (1 if pinned else -1)
        if left:
            self._loose.pop(room.row, None)
        else:
            del self._pins[room.row]
            if room.row in self._rows:
                self._loose[room.row] = None

    def _offer(self, room: _Room, now_s: float) -> None:
        young = not now_s - room.since_s >= PATIENCE_S
        for shape in self._shapes.values():
            shape.every.offer(room)
            if young:
                shape.young.offer(room)

    def _shape(self, pod: PodRequest) -> _Shape:
        requests, selector = (
            tuple(sorted(pod.takes.items())),
            tuple(sorted(pod.selector.items())),
        )
        key = (requests, selector, pod.affinity, pod.tolerations)
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) > 2 * len(self._pending) + MOST_SPARE:
                used = {one.shape.key for one in self._pending.values()}
                for unused in [one for one in self._shapes if one not in used]:
                    del self._shapes[unused]
            kind = self._smallest(pod, int(pod.requests.get(GPU, 0.0)))
            found = self._shapes[key] = _Shape(key, pod, kind)
            rooms = [*self._rooms.values(), *(r for one in self._rows.values() for r in one.coming)]
            for room in rooms:
                if not room.gone:
                    found.every.offer(room)
                    found.young.offer(room)
        return found

    # Pending pods.

    def _settle(self, now_s: float) -> None:
        """Finds room for every pending pod; requests machines for the rest."""
        pending = sorted(self._pending.values(), key=_order)
        asked: dict[str, dict[str, float]] = {}  # by gang: what its pending pods take
        for one in pending:
            pod = one.pod
            if pod.gang in self._together:
                sums = asked.setdefault(pod.gang, {})
                for name, amount in pod.takes.items():
                    sums[name] = sums.get(name, 0.0) + amount
        for one in pending:
            pod = one.pod
            extra = self._extra.get(pod.name)
            if extra is not None and self._use(extra, now_s):
                room = self._room_of(extra, pod)
                if room is not None:
                    self._put(pod, room)
                continue
            # Whether the pod has long had room on some machine without being placed there.
            in_vain = not one.gated and now_s - pod.created_s >= PATIENCE_S and self._has_old(now_s)
            index = one.shape.young if in_vain else one.shape.every
            room = index.first(now_s if in_vain else -math.inf)
            if room is None:
                room = self._ask(one, asked.get(pod.gang, {}), now_s)
                if room is not None and in_vain:
                    self._extra[pod.name] = room.row
            if room is not None:
                self._put(pod, room)
                self._use(room.row, now_s)

    def _put(self, pod: PodRequest, room: _Room) -> None:
        room.take(pod.takes)
        self._expected[room.number] = room

    def _use(self, name: str, now_s: float) -> bool:
        """Keeps a row for a pending pod; False if neither the books nor a machine has it."""
        if name not in self._rows:
            if name not in self._of_row:
                return False
            self._recall(name, now_s)
        self._rows[name].taken = self._looks
        return True

    def _room_of(self, row: str, pod: PodRequest) -> _Room | None:
        """The first room of a row that takes a pod."""
        held = sorted(self._of_row.get(row, {}).values(), key=_rank)
        rooms = (one for one in [*held, *self._rows[row].coming] if not one.gone)
        return next(
            (one for one in rooms if pod.may_use(one.labels) and one.fits(pod.takes)),
            None,
        )

    def _has_old(self, now_s: float) -> bool:
        """Whether any machine that takes pods has been in the cluster for `PATIENCE_S`."""
        ages = self._ages
        while ages and ages[0][2].gone:
            heapq.heappop(ages)
        return bool(ages) and now_s - ages[0][0] >= PATIENCE_S

    def _ask(self, one: _Pending, asked: Mapping[str, float], now_s: float) -> _Room | None:
        """Requests another machine, of the smallest kind that can hold the pod.

        The machines of a gang that must share a label value are requested as one row.
        """
        pod, kind = one.pod, one.shape.kind
        if kind is None:
            tolerant = PodRequest(
                "", "", pod.requests, pod.selector, affinity=pod.affinity, tolerations=(ALL_TAINTS,)
            )
            asks = int(pod.requests.get(GPU, 0.0))
            self.unplaceable[pod.name] = self._smallest(tolerant, asks) is not None
            return None
        size = kind.capacity.get(GPU, 0.0)
        together, machines = self._together.get(pod.gang, ""), 1
        if together:
            machines = max(1, -int(-asked.get(GPU, 0.0) // max(1.0, size)))
            machines = max([machines, *[int(asked[f"{APART}{name}"]) for name in pod.apart]])
        row = DemandRow(
            self._new_name(),
            {key: value for key, value in pod.selector.items() if key in kind.labels},
            int(size) if int(pod.requests.get(GPU, 0.0)) else 0,
            machines,
            together if machines > 1 else "",
            self._priorities.get(pod.owner, 0),
            now_s,
            pod,
            next((term for term in pod.affinity if accepts_all(term, kind.labels)), ())
            + self._refused(pod),
        )
        made = self._add(row, (self._looks, 1, self._issued), kind)
        self._await(made, now_s)
        return made.coming[0]

    def _new_name(self) -> str:
        """An unused row name; machines may still carry names of rows whose books were lost."""
        while True:
            self._issued += 1
            name = f"{self._cluster}.{self._issued}"
            if name not in self._rows:
                return name

    def _refused(self, pod: PodRequest) -> NodeTerm:
        """Requirements that exclude machines with taints that a pod does not tolerate."""
        texts = [kind.labels[TAINTS] for kind in self._kinds if TAINTS in kind.labels]
        refused = [text for text in texts if not tolerates(pod.tolerations, taints_in(text))]
        return (requirement(TAINTS, NOT_IN, refused),) if refused else ()

    # Rows.

    def _recall(self, name: str, now_s: float) -> None:
        """Rebuilds a row missing from the books from the first machine held for it."""
        if name in self._rows:
            return
        machine, room = min(self._of_row[name].items(), key=lambda one: one[1].rank)
        node = self._nodes[machine]
        accelerator = node.labels.get(ACCELERATOR)
        selector = {} if accelerator is None else {ACCELERATOR: accelerator}
        if TAINTS in node.labels:
            selector[TAINTS] = node.labels[TAINTS]
        size = int(node.capacity.get(GPU, 0.0))
        row = DemandRow(name, selector, size, 1, since_s=now_s)
        kind = self._smallest(PodRequest("", "", {}, selector, tolerations=(ALL_TAINTS,)), size)
        self._await(self._add(row, (self._looks, 0, room.rank[1]), kind), now_s)

    def _add(self, row: DemandRow, place: Place, kind: MachineKind | None) -> _Row:
        made = self._rows[row.name] = _Row(row, place, kind)
        if row.name not in self._pins:
            self._loose[row.name] = None
        self.added[row.name] = row
        return made

    def _drop(self, name: str) -> None:
        one = self._rows.pop(name)
        del self._loose[name]
        for room in one.coming:
            room.gone = True
        if self.added.pop(name, None) is None:
            self.dropped[name] = None

    def _await(self, one: _Row, now_s: float) -> None:
        """Keeps a room for every machine still to come for a row."""
        kind = one.kind
        missing = one.row.machines - len(self._of_row.get(one.row.name, {}))
        while len(one.coming) > max(0, missing):
            one.coming.pop().gone = True
        if kind is None:
            return
        while len(one.coming) < missing:
            rank = (1, *one.place, len(one.coming))
            room = self._new_room(rank, one.row.name, math.inf)
            room.labels, room.base, room.gone = kind.labels, kind.capacity, False
            room.free = dict(kind.capacity)
            one.coming.append(room)
            self._offer(room, now_s)

    def _smallest(self, pod: PodRequest, accelerators: int) -> MachineKind | None:
        """The smallest matching kind of machine, so that any matching machine will do."""
        found = [
            kind
            for kind in self._kinds
            if pod.may_use(kind.labels)
            and kind.capacity.get(GPU, 0.0) >= accelerators
            and _fits(kind.capacity, pod.requests)
        ]
        return min(found, key=lambda kind: kind.capacity.get(GPU, 0.0), default=None)


def _fits(free: Mapping[str, float], takes: Mapping[str, float]) -> bool:
    for name, amount in takes.items():
        left = free.get(name)
        if left is None:
            left = 1.0 if name.startswith(APART) else 0.0
        if left < amount:
            return False
    return True


def _take(free: dict[str, float], takes: Mapping[str, float]) -> None:
    for name, amount in takes.items():
        left = free.get(name)
        if left is None:
            left = 1.0 if name.startswith(APART) else 0.0
        free[name] = left - amount


def _place(one: _Row) -> Place:
    return one.place


def _rank(room: _Room) -> Rank:
    return room.rank


def _order(one: _Pending) -> PodOrder:
    return one.order
