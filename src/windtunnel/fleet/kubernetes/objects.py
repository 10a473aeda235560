"""API objects as the fleet reads and writes them: names, labels, notes, calls."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.core.kubernetes import Metadata, Received
from windtunnel.core.taints import NO_SCHEDULE, toleration_of
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.orders import Token

CLAIM: Final = "NodeClaim"
NODE: Final = "Node"
POD: Final = "Pod"
CONFIG_MAP: Final = "ConfigMap"

FLEET: Final = "windtunnel.dev/fleet"
POOL: Final = "windtunnel.dev/pool"
MACHINE: Final = "windtunnel.dev/machine"
"""Labels of a NodeClaim: its fleet, pool and machine."""
NEED: Final = "windtunnel.dev/need"
"""Label of a node: the row of the demand that it is counted for."""
NOTE: Final = "windtunnel.dev/fleet-state"
"""Annotation with the goal of the fleet for a machine, and the order behind it."""
CORDONED: Final = "windtunnel.dev/cordoned"
"""Annotation of a node that the fleet has cordoned: the reason."""
IDLE_TAINT: Final = "windtunnel.dev/idle"
"""Taint that keeps pods off a machine without a need."""
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
MIRROR: Final = "kubernetes.io/config.mirror"
NOTICES: Final = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
)
"""Taints by which a cloud announces that it will take a machine away."""

# Goals for a machine.
WANTED: Final = "create"
IDLE: Final = "idle"
CONFIGURE: Final = "configure"
DRAIN: Final = "drain"

# The verbs of calls.
CREATE: Final = "create"
PATCH: Final = "patch"
DELETE: Final = "delete"
EVICT: Final = "evict"
APPLY: Final = "apply"


class FleetCall(msgspec.Struct, frozen=True):
    """One API call. Every call is guarded: by a unique name, a uid, or a resource version."""

    verb: str
    kind: str
    name: str
    machine: str = ""
    namespace: str = ""
    body: dict[str, Any] = {}
    uid: str = ""
    version: str = ""
    why: str = ""
    begins: str = ""
    """The operation that it begins."""


class ProviderOutcome(Enum):
    """The outcome of a call."""

    DONE = "done"
    STALE = "stale"
    """It was based on an outdated cache."""
    REFUSED = "refused"
    """A disruption budget does not allow the eviction now."""
    TAKEN = "taken"
    """Another object has the name."""
    FAILED = "failed"
    """It was refused, or no answer came and it may have taken effect."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state stored with a machine, by the one call that begins an order."""

    goal: str
    shard: str = ""
    epoch: int = 0
    sequence: int = 0
    need: NeedKey | None = None
    promised: NeedKey | None = None
    since_s: float = 0.0
    fleet: str = ""
    """The fleet of the machine; only this fleet releases an existing node that leaves it."""

    @property
    def token(self) -> Token:
        return Token(self.epoch, self.sequence)

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def note_of(meta: Metadata) -> Note | None:
    """The note of an object; None if there is none, or it is garbled."""
    text = meta.annotations.get(NOTE)
    if text is None:
        return None
    try:
        note = msgspec.json.decode(text, type=Note)
    except (msgspec.DecodeError, ValueError):
        return None
    if note.goal not in (WANTED, IDLE, CONFIGURE, DRAIN):
        return None
    if any(key is not None and key.fault() for key in (note.need, note.promised)):
        return None
    return note


def next_epoch(least: int, objects: Iterable[Received]) -> int:
    """An epoch above any noted one: a Lease that was deleted counts from 0 again."""
    notes = [note_of(one.metadata) for one in objects]
    return max([least, *(note.epoch + 1 for note in notes if note is not None)])


def condition(raw: Received, kind: str) -> Mapping[str, Any]:
    """The condition of a type; empty if there is none."""
    found = raw.status.get("conditions")
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and one.get("type") == kind:
            return one
    return {}


def is_true(raw: Received, kind: str) -> bool:
    return condition(raw, kind).get("status") == "True"


class NodeState:
    """The part of a node's state that concerns the fleet."""

    def __init__(self, raw: Received) -> None:
        self.meta: Final = raw.metadata
        taints = raw.spec.get("taints")
        self.taints: Final[list[dict[str, Any]]] = [
            one for one in (taints if isinstance(taints, list) else []) if isinstance(one, dict)
        ]
        keys = [str(one.get("key")) for one in self.taints]
        self.is_idle: Final = IDLE_TAINT in keys
        self.cordoned: Final = bool(raw.spec.get("unschedulable"))
        self.cordoned_by_us: Final = CORDONED in raw.metadata.annotations
        self.ready: Final = is_true(raw, "Ready")
        self.notice: Final = next((key for key in keys if key in NOTICES), "")
        """The taint that announces its removal; empty: none."""
        self.need: Final = raw.metadata.labels.get(NEED, "")

    def patch(
        self,
        machine: str,
        why: str,
        *,
        idle: bool | None = None,
        cordon: bool | None = None,
        need: str | None = None,
    ) -> FleetCall:
        """Changes taint, cordon and label in one call, so that all or none take effect."""
        meta: dict[str, Any] = {}
        spec: dict[str, Any] = {}
        if idle is not None:
            spec["taints"] = list(self._taints(idle=idle, cordon=cordon))
        if cordon is not None:
            spec["unschedulable"] = cordon
            meta["annotations"] = {CORDONED: why if cordon else None}
        if need is not None:
            meta["labels"] = {NEED: _label(need) if need else None}
        body = {"metadata": meta, "spec": spec}
        return FleetCall(PATCH, NODE, self.meta.name, machine, "", body, *_guards(self.meta), why)

    def release(self, machine: str) -> FleetCall | None:
        """Removes all marks of the fleet; None: there are none."""
        annotations = {key: None for key in (NOTE, CORDONED) if key in self.meta.annotations}
        if not (self.is_idle or annotations or self.need):
            return None
        cordon = False if self.cordoned_by_us else None
        call = self.patch(
            machine, "it is no longer of the fleet", idle=False, cordon=cordon, need=""
        )
        call.body["metadata"]["annotations"] = annotations
        return call

    def _taints(self, *, idle: bool, cordon: bool | None) -> Iterator[dict[str, Any]]:
        for one in self.taints:
            is_old_cordon = cordon is False and one.get("key") == UNSCHEDULABLE
            if one.get("key") != IDLE_TAINT and not is_old_cordon:
                yield one
        if idle:
            yield {"key": IDLE_TAINT, "effect": "NoSchedule"}


def note_call(kind: str, raw: Received, machine: str, note: Note, why: str) -> FleetCall:
    """Writes the note of a machine, if its object is still at the version that was read."""
    body = {"metadata": {"annotations": {NOTE: note.text()}}}
    return FleetCall(PATCH, kind, raw.metadata.name, machine, "", body, *_guards(raw.metadata), why)


def _guards(meta: Metadata) -> tuple[str, str]:
    return meta.uid, meta.resource_version


def _label(text: str) -> str:
    """Converts a text to a valid label value."""
    kept = "".join(
        one if one.isascii() and (one.isalnum() or one in "-_.") else "-" for one in text
    )
    return kept[:63].strip("-_.")


class PodOnNode(msgspec.Struct, frozen=True):
    """A pod that must leave before a machine is empty."""

    namespace: str
    name: str
    uid: str
    leaving: bool
    parks: bool
    """It tolerates machines that are not in use."""
    stays: bool
    """It is marked do-not-disrupt, which is ignored if its machine is taken away."""


def pod_on_node(raw: Received) -> PodOnNode | None:
    """A pod for a drain; None if it does not count: of a DaemonSet, static, or ended."""
    meta = raw.metadata
    if (
        raw.status.get("phase") in ("Succeeded", "Failed")
        or MIRROR in meta.annotations
        or (meta.controller is not None and meta.controller.kind == "DaemonSet")
    ):
        return None
    stays = meta.annotations.get(DO_NOT_DISRUPT) == "true"
    leaving = meta.deletion_timestamp is not None
    return PodOnNode(meta.namespace, meta.name, meta.uid, leaving, _parks(raw.spec), stays)


def _parks(pod_spec: Mapping[str, Any]) -> bool:
    try:
        found = [toleration_of(one) for one in pod_spec.get("tolerations") or []]
    except (InputError, *MALFORMED):
        return True  # it is left where it is
    return any(one.covers((IDLE_TAINT, "", NO_SCHEDULE)) for one in found)


def evict_call(pod: PodOnNode, machine: str, why: str) -> FleetCall:
    return FleetCall(EVICT, POD, pod.name, machine, pod.namespace, uid=pod.uid, why=why)
