"""Turns commands of gang controllers into calls to a Kubernetes API server.

Every call is idempotent, or guarded by the uid and the version of its object: repeated after its
answer was lost, or made from a stale read cache, it changes nothing. All commands that change the
status of one object become one call.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from windtunnel.core.kubernetes import Received, stamp
from windtunnel.gangs import names
from windtunnel.gangs.commands import (
    Command,
    Create,
    CreatePod,
    Delete,
    Emit,
    PatchClique,
    PatchGang,
    PatchGangPhase,
    PatchGangPlacement,
    PatchStatus,
    SetCondition,
    Ungate,
)
from windtunnel.gangs.kubernetes.published import published
from windtunnel.gangs.objects import (
    GATE,
    POD,
    SET,
    Attachment,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.pod_manifest import (
    WAITER,
    attachment_manifest,
    clique_manifest,
    gang_manifest,
    group_manifest,
    pod_manifest,
)
from windtunnel.gangs.statuses import Condition, Status
from windtunnel.gangs.view import View

CREATE: Final = "create"
PATCH: Final = "patch"
STATUS: Final = "status"
DELETE: Final = "delete"
EVENT: Final = "event"
ACCEPTED: Final = "Accepted"
LATE: Final = ("Secret", "RoleBinding")
"""Kinds that are created after the others of the same pass."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters that Kubernetes uses for generated name suffixes."""

Json = dict[str, Any]
RawOf = Callable[[str, str], Received | None]
"""Looks up an object as last received, by kind and name."""


class ApiCall(NamedTuple):
    """One API call: a verb, the kind and name of the object, and the commands behind it."""

    verb: str
    kind: str
    name: str
    commands: tuple[Command, ...]
    """Empty for a call that only accompanies another."""
    body: Json | None = None
    """The object to create, or a JSON merge patch."""
    uid: str = ""
    """The uid of the intended object; one with the same name but another uid is not touched."""
    version: str = ""
    """The call is refused if the object has changed since this version; empty: any version."""
    replaces: tuple[str, str] = ("", "")
    """Name and uid of the pod that a new one replaces, if the cache no longer shows it."""


def pod_suffix(clique_uid: str, index: int, replaces: str) -> str:
    """The end of a pod's name: deterministic for one index while it replaces the same pod."""
    text = f"{clique_uid}/{index}/{replaces}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    word = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        word += _LETTERS[digit]
    return word


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Returns the JSON merge patch that turns `old` into `new`; empty if they are equal."""
    found: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            below = merge_patch(before, value)
            if below:
                found[key] = below
        elif key not in old or before != value:
            found[key] = value
    return found


class _StatusWrite:
    """The pending status changes of one object."""

    def __init__(self, thing: Thing) -> None:
        self.thing: Final = thing
        self.commands: Final[list[Command]] = []
        self.status: Status | None = None
        self.conditions: Final = dict(thing.conditions)
        self.gang: Final[dict[str, Any]] = {}

    def add(self, command: Command) -> None:
        self.commands.append(command)
        if isinstance(command, PatchStatus):
            self.status = command.status
        elif isinstance(command, SetCondition):
            self._condition(command.condition)
        elif isinstance(command, PatchGangPhase):
            self.gang["phase"] = command.phase
        else:
            assert isinstance(command, PatchGangPlacement)
            self.gang["why_pending"] = command.why_pending
            self.gang["placement_score"] = command.score

    def _condition(self, condition: Condition) -> None:
        if condition.status:
            self.conditions[condition.type] = condition
        else:
            self.conditions.pop(condition.type, None)


class Translator:
    """Translates commands into calls, using the cache that the commands were made from."""

    def __init__(self, view: View, raw_of: RawOf, init_image: str) -> None:
        self._view: Final = view
        self._raw_of: Final = raw_of
        self._init_image: Final = init_image
        """Image of the init container that waits for the cliques that start first."""

    def calls(self, commands: Iterable[Command]) -> tuple[list[ApiCall], list[Command]]:
        """Returns the calls, in the order of the commands, and the commands that cannot be
        executed."""
        writes: dict[tuple[str, str], _StatusWrite] = {}
        order: list[ApiCall | _StatusWrite] = []
        refused: list[Command] = []
        for command in commands:
            if isinstance(
                command, PatchStatus | SetCondition | PatchGangPhase | PatchGangPlacement
            ):
                write = self._write(command, writes, order)
                if write is None:
                    refused.append(command)
                else:
                    write.add(command)
                continue
            if isinstance(command, Delete):
                found = self._found(command)
                made = [] if found is None else deletes(found, (command,))
            else:
                call = self._call(command)
                made = [] if call is None else [call]
            order += made
            if not made:
                refused.append(command)
        calls = [one if isinstance(one, ApiCall) else self._status(one) for one in order]
        return calls, refused

    def _write(
        self,
        command: Command,
        writes: dict[tuple[str, str], _StatusWrite],
        order: list[ApiCall | _StatusWrite],
    ) -> _StatusWrite | None:
        key = (command.kind, command.name)
        if key not in writes:
            thing = self._found(command)
            if thing is None:
                return None
            writes[key] = _StatusWrite(thing)
            order.append(writes[key])
        return writes[key]

    def _found(self, command: Command) -> Thing | None:
        """Returns the object that a command is for, matched by uid, if the cache has it."""
        thing = self._view.find(command.kind, command.name)
        if thing is None or (command.uid and thing.uid != command.uid):
            return None
        return thing

    def _status(self, write: _StatusWrite) -> ApiCall:
        thing = write.thing
        raw = self._raw_of(thing.kind, thing.name)
        old = {} if raw is None else raw.status
        generation = 0 if raw is None else raw.metadata.generation
        new = published(self._view, thing, write.status, write.conditions, write.gang, generation)
        kept = {key: value for key, value in old.items() if key not in new and key in FOREIGN}
        body = {"status": merge_patch(old, {**kept, **new})}
        commands = tuple(write.commands)
        return ApiCall(STATUS, thing.kind, thing.name, commands, body, thing.uid, thing.version)

    def _call(self, command: Command) -> ApiCall | None:
        if isinstance(command, Emit):
            return ApiCall(EVENT, command.kind, command.name, (command,))
        if isinstance(command, CreatePod):
            return self._create_pod(command)
        if isinstance(command, Create):
            body = manifest_of(self._view, command.thing)
            if body is None:
                return None
            return ApiCall(CREATE, command.kind, command.name, (command,), body)
        thing = self._found(command)
        if thing is None:
            return None
        if isinstance(command, Ungate):
            assert isinstance(thing, Pod)
            gates = [{"name": gate} for gate in thing.gates if gate != GATE]
            body = {"spec": {"schedulingGates": gates or None}}
        elif isinstance(command, PatchGang):
            body = self._gang_patch(command, thing)
        else:
            assert isinstance(command, PatchClique), command
            body = self._clique_patch(command, thing)
        return ApiCall(PATCH, thing.kind, thing.name, (command,), body, thing.uid, thing.version)

    def _create_pod(self, command: CreatePod) -> ApiCall | None:
        clique = self._view.cliques.get(command.clique.name)
        owner = self._view.keeper_of(clique)
        if clique is None or owner is None or clique.uid != command.clique.uid:
            return None
        before = clique.places.get(command.index)
        suffix = pod_suffix(clique.uid, command.index, "" if before is None else before.uid)
        pod = Pod(f"{clique.name}-{suffix}", clique, command.index)
        body = _created(pod_manifest(owner, clique, pod))
        for container in body["spec"].get("initContainers") or ():
            if container["name"] == WAITER:
                container["image"] = self._init_image
        gone = before is not None and before.name not in self._view.pods
        replaces = (before.name, before.uid) if before is not None and gone else ("", "")
        return ApiCall(CREATE, POD, pod.name, (command,), body, replaces=replaces)

    def _gang_patch(self, command: PatchGang, thing: Thing) -> Json:
        assert isinstance(thing, PodGang)
        changed = thing.snapshot()
        assert isinstance(changed, PodGang)
        changed.groups = command.groups
        owner = self._view.sets[thing.set_name]
        return {"spec": {"podgroups": gang_manifest(owner, changed)["spec"]["podgroups"]}}

    def _clique_patch(self, command: PatchClique, thing: Thing) -> Json:
        """Patches a clique's template but not its replicas, which belong to an autoscaler."""
        assert isinstance(thing, PodClique)
        above = self._view.owner_of(thing)
        owner = self._view.sets[thing.set_name]
        assert above is not None
        changed = thing.snapshot()
        assert isinstance(changed, PodClique)
        before = clique_manifest(owner, above, thing)
        changed.template = command.template
        after = clique_manifest(owner, above, changed)
        spec = merge_patch(before["spec"]["podSpec"], after["spec"]["podSpec"])
        metadata = {key: after["metadata"][key] for key in ("labels", "annotations")}
        return {"metadata": metadata, "spec": {"podSpec": spec}}


def deletes(thing: Thing, commands: tuple[Command, ...] = ()) -> list[ApiCall]:
    """Deletes everything that an object owns, then the object, without relying on a garbage
    collector."""
    below = [call for one in thing.owned() if not one.terminating for call in deletes(one)]
    return [*below, ApiCall(DELETE, thing.kind, thing.name, commands, None, thing.uid)]


FOREIGN: Final = ("podGangStatuses", "lastErrors", "schedulerTopologyStatuses")
"""Status fields that other programs may write."""


def manifest_of(view: View, thing: Thing) -> Json | None:
    """Returns the manifest with which an object is created; None if an owner is gone or
    terminating."""
    above = view.owner_of(thing)
    owner = above if isinstance(above, PodCliqueSet) else None
    if isinstance(above, ScalingGroup):
        found = view.owner_of(above)
        owner = found if isinstance(found, PodCliqueSet) else None
    if above is None or owner is None or above.terminating or owner.terminating:
        return None
    if isinstance(thing, PodClique):
        made = clique_manifest(owner, above, thing)
    elif isinstance(thing, ScalingGroup):
        made = group_manifest(owner, thing)
    elif isinstance(thing, PodGang):
        made = gang_manifest(owner, thing)
    else:
        assert isinstance(thing, Attachment)
        made = attachment_manifest(owner, thing)
    return _created(made)


def _created(manifest: Json) -> Json:
    """Removes what the API server assigns."""
    manifest["metadata"].pop("uid", None)
    return manifest


def api_names(full: str) -> tuple[str, str]:
    """Returns the namespace and the name of an object from its internal name."""
    return names.namespace(full), names.short(full)


def batches_of(calls: Sequence[ApiCall]) -> Iterator[list[ApiCall]]:
    """Groups calls into runs of one verb, with pod creations joined to the status writes before
    them: no status announces a pod, so a replacement pod need not wait for any.

    Tokens follow their service accounts, or Kubernetes deletes them again; bindings follow their
    roles, or it refuses them.
    """
    written: list[ApiCall] = []
    for verb, run in groupby(calls, key=lambda call: call.verb):
        batch = list(run)
        if verb == STATUS:
            written = batch
            continue
        if written and verb == CREATE and all(call.kind == POD for call in batch):
            yield [*written, *batch]
            written = []
            continue
        if written:
            yield written
            written = []
        late: list[ApiCall] = []
        early: list[ApiCall] = []
        for call in batch:
            (late if call.verb == CREATE and call.kind in LATE else early).append(call)
        yield from [part for part in (early, late) if part]
    if written:
        yield written


def invalid_call(name: str, found: Received, fault: str, now_s: float) -> ApiCall:
    """The call that says in the status of a set why it is invalid."""
    meta, status = found.metadata, found.status
    says = {
        "type": ACCEPTED,
        "status": "False",
        "reason": "Invalid",
        "message": fault,
        "lastTransitionTime": stamp(now_s),
        "observedGeneration": meta.generation,
    }
    others = [one for one in status.get("conditions") or [] if one.get("type") != ACCEPTED]
    body = {"status": {"conditions": [*others, says]}}
    return ApiCall(STATUS, SET, name, (), body, meta.uid, meta.resource_version)
