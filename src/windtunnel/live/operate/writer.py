"""Makes the calls of gang controllers, and reports whether each achieved its purpose."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from windtunnel.gangs.kubernetes.calls import (
    CREATE,
    DELETE,
    PATCH,
    STATUS,
    ApiCall,
    api_names,
)
from windtunnel.gangs.objects import POD
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    KubernetesError,
    NoAnswer,
    NoCredentials,
    NotFound,
    NotLeader,
    ServerError,
)
from windtunnel.live.operate.mirror import MANAGED_BY, RESOURCES, Mirror
from windtunnel.live.operate.received import Bare, Received, form_of


class CallOutcome(Enum):
    """The outcome of a call."""

    DONE = "done"
    STALE = "stale"
    """It was based on an old cache: the current state must be read first."""
    FAILED = "failed"
    """The API server refused it: it is retried later."""
    NO_ANSWER = "no answer"
    """The API server did not answer, and may or may not have executed it."""


class CallAnswer:
    """The outcome of a call, and the message of a failure.

    `broken`: the API server failed (5xx), which passes sooner than a refusal.
    """

    def __init__(self, outcome: CallOutcome, says: str = "", *, broken: bool = False) -> None:
        self.outcome: Final = outcome
        self.says: Final = says
        self.pace: Final = "broken" if broken else outcome.value


ENDED: Final = ("Succeeded", "Failed")
DONE: Final = CallAnswer(CallOutcome.DONE)
MOST_CONFLICTS: Final = 10_000
Versions = dict[tuple[str, str, str], str]
"""By kind, name and version: the version that our own write has produced from it."""


class Writer:
    """Writes for one operator, through a client that stops when its lease does."""

    def __init__(self, client: Client, mirror: Mirror) -> None:
        self.client: Final = client
        self._mirror: Final = mirror
        self._conflicts: Final[dict[tuple[str, str], str]] = {}
        """By kind and name: the version for which a call was last refused as stale."""
        self.counts: Final[dict[tuple[str, str, str], int]] = {}
        """Calls by verb, kind and outcome."""

    async def carry_out(self, call: ApiCall, versions: Versions) -> CallAnswer:
        """Makes one call of a batch, which shares `versions`. Raises `NotLeader`."""
        try:
            answer = await self._call(call, versions)
        except NotLeader:
            raise
        except NotFound as error:
            gone = call.verb == DELETE
            answer = DONE if gone else CallAnswer(CallOutcome.STALE, str(error))
        except Conflict as error:
            answer = CallAnswer(CallOutcome.STALE, str(error))
            await self._read_again(call)
        except ApiError as error:
            broken = isinstance(error, ServerError)
            answer = CallAnswer(CallOutcome.FAILED, error.message, broken=broken)
        except (NoAnswer, NoCredentials) as error:
            answer = CallAnswer(CallOutcome.NO_ANSWER, str(error))
        except KubernetesError as error:
            answer = CallAnswer(CallOutcome.FAILED, str(error))
        key = (call.verb, call.kind, answer.outcome.value)
        self.counts[key] = self.counts.get(key, 0) + 1
        return answer

    async def _read_again(self, call: ApiCall) -> None:
        """Reads an object whose version was refused twice: the watch may hang."""
        key = (call.kind, call.name)
        if self._conflicts.get(key) != call.version:
            if len(self._conflicts) >= MOST_CONFLICTS:
                self._conflicts.clear()
            self._conflicts[key] = call.version
            return
        del self._conflicts[key]
        try:
            found = await self.client.find(RESOURCES[call.kind], *api_names(call.name), Received)
        except KubernetesError:
            return  # the call is retried in any case
        if found is not None:
            self._mirror.objects[call.kind].cache.written(found)

    async def _call(self, call: ApiCall, versions: Versions) -> CallAnswer:
        resource = RESOURCES[call.kind]
        namespace, name = api_names(call.name)
        if call.verb == DELETE:
            await self.client.delete(resource, namespace, name, uid=call.uid)
            return DONE
        assert call.body is not None
        if call.verb == CREATE:
            return await self._create(call, namespace, name)
        assert call.verb in (PATCH, STATUS), call.verb
        body = {key: value for key, value in call.body.items() if value}
        if not body:
            return DONE  # nothing to change
        version = versions.get((call.kind, call.name, call.version), call.version)
        guards = {"uid": call.uid, "resourceVersion": version}
        body["metadata"] = {**(body.get("metadata") or {}), **guards}
        below = "status" if call.verb == STATUS else ""
        form = form_of(call.kind)
        made = await self.client.patch(resource, namespace, name, body, form, subresource=below)
        versions[call.kind, call.name, call.version] = made.metadata.resource_version
        self._mirror.objects[call.kind].cache.written(made)
        return DONE

    async def _create(self, call: ApiCall, namespace: str, name: str) -> CallAnswer:
        resource = RESOURCES[call.kind]
        assert call.body is not None
        body = {key: value for key, value in call.body.items() if key not in ("apiVersion", "kind")}
        known = self._mirror.objects.get(call.kind)
        if call.replaces[0] and await self._is_still_there(call, body["metadata"]["labels"]):
            return CallAnswer(
                CallOutcome.STALE, f"{call.kind} {call.replaces[0]} had lost its labels"
            )
        try:
            if known is None:
                bare = await self.client.create(resource, body, Bare)
                self._shown(call.kind, bare)
            else:
                known.cache.written(await self.client.create(resource, body, form_of(call.kind)))
        except AlreadyExists:
            # Perhaps ours: a response was lost, or the cache is behind.
            found = await self.client.find(resource, namespace, name, Received)
            if found is None:
                return CallAnswer(
                    CallOutcome.STALE, f"the previous {call.kind} {name} has just been deleted"
                )
            if not self._is_ours(found, body):
                says = f"{call.kind} {name} exists and belongs to something else"
                return CallAnswer(CallOutcome.FAILED, says)
            if found.metadata.deletion_timestamp is not None:
                return CallAnswer(
                    CallOutcome.STALE, f"the previous {call.kind} {name} is still being deleted"
                )
            if known is None:
                self._shown(call.kind, Bare(metadata=found.metadata))
            else:
                if call.kind == POD:
                    found = await self._label(call.kind, found, body["metadata"]["labels"])
                known.cache.written(found)
        return DONE

    async def _is_still_there(self, call: ApiCall, labels: dict[str, str]) -> bool:
        """Whether the pod to be replaced still exists: without the label by which pods are watched
        it looks deleted. Its labels are restored, and it is not replaced."""
        name, uid = call.replaces
        found = await self.client.find(RESOURCES[call.kind], *api_names(name), Received)
        if found is None or found.metadata.uid != uid or found.metadata.controller is None:
            return False
        if found.metadata.deletion_timestamp is not None or found.status.get("phase") in ENDED:
            return False
        await self._label(call.kind, found, labels)
        return True

    async def _label(self, kind: str, found: Received, labels: dict[str, str]) -> Received:
        """Restores lost labels."""
        meta = found.metadata
        lost = {
            key: word
            for key, word in labels.items()
            if key not in meta.labels or (key == MANAGED_BY and meta.labels[key] != word)
        }
        if not lost:
            return found
        change = {"metadata": {"uid": meta.uid, "labels": lost}}
        made = await self.client.patch(RESOURCES[kind], meta.namespace, meta.name, change, Received)
        self._mirror.objects[kind].cache.written(made)
        return made

    def _shown(self, kind: str, made: Bare) -> None:
        attached = self._mirror.attached.get(kind)
        if attached is not None:
            attached.cache.written(made)

    def _is_ours(self, found: Received, body: dict[str, Any]) -> bool:
        (wanted,) = body["metadata"]["ownerReferences"]
        owner = found.metadata.controller
        return owner is not None and owner.uid == wanted["uid"]
