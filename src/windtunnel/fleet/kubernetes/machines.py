"""Pools of a fleet on a cluster, and the observed state of each machine."""

from collections.abc import Iterable
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.core.kubernetes import Received
from windtunnel.core.loop import INFINITY
from windtunnel.core.taints import taint_of
from windtunnel.fleet.demand.requests import ACCELERATOR, GPU, TAINTS, MachineKind, taints_text
from windtunnel.fleet.kubernetes.objects import Note
from windtunnel.fleet.kubernetes.settings import LivePool
from windtunnel.fleet.orders import MachineOrder
from windtunnel.fleet.settings import FleetPool
from windtunnel.fleet.shape import BARE_METAL, ZONE, MachineShape, shape
from windtunnel.settings.manifests import quantity


class SourcedPool:
    """A pool and the source of its machines."""

    def __init__(self, settings: FleetPool, live: LivePool, price: float) -> None:
        self.settings: Final = settings
        self.live: Final = live
        self._price: Final = price
        self.labels: Final = {**settings.labels, ACCELERATOR: settings.accelerator}
        if settings.written("zone") or live.nodes:
            self.labels[ZONE] = settings.zone
        taints = taints_text(map(taint_of, settings.taints))
        if taints:
            self.labels[TAINTS] = taints

    def kind(self) -> MachineKind:
        return MachineKind(self.settings.capacity_for_pods(), self.labels)

    def selects(self, node: Received) -> bool:
        """Whether a node has the labels that select the pool's existing nodes."""
        labels = node.metadata.labels
        return all(labels.get(key) == value for key, value in self.live.nodes.items())

    def has(self, node: Received) -> bool:
        """Whether a node is a machine of the pool: by its labels, and large enough."""
        if not self.selects(node):
            return False
        try:
            amount = quantity((node.status.get("allocatable") or {}).get(GPU, 0))
        except InputError:
            return False
        return amount >= self.settings.accelerators

    def place(self, number: int) -> MachineShape:
        return self.settings.shape(number, self.labels, self._price)

    def shape_of(self, node: Received, keys: Iterable[str]) -> MachineShape:
        """The shape of an existing node: bare metal, with its own zone and racks."""
        own = node.metadata.labels
        labels = {**self.labels, **{key: own[key] for key in keys if key in own}}
        plain = self.settings.shape(0, labels, self._price)
        return shape(
            plain.instance_type,
            own.get(ZONE, plain.zone),
            dict(plain.resources),
            capacity_type=BARE_METAL,
            labels=labels,
            price_per_hour=self._price,
        )


class TrackedMachine:
    """One machine: its observed state, and the order under way."""

    __slots__ = (
        "busy", "claim", "failures", "id", "is_beyond", "is_node", "known", "node", "note", "order",
        "pool", "retry_s", "sent", "shape",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        pool: SourcedPool,
        shape: MachineShape,
        node: str = "",
        *,
        is_beyond: bool = False,
    ) -> None:
        self.id: Final = name
        self.pool: Final = pool
        self.shape: Final = shape
        self.is_node: Final = bool(node)
        self.is_beyond: Final = is_beyond  # its number is beyond the present `machines.max`
        self.node = node
        self.claim: Received | None = None
        self.note: Note | None = None
        self.order: MachineOrder | None = None
        self.sent = False  # whether the call that begins the order has been answered
        self.busy = 0  # unanswered calls
        self.failures = 0  # consecutive failures of calls
        self.retry_s = -INFINITY
        self.known = -1  # the state known to the shard; -1: none yet
