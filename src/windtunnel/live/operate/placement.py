"""Gang placement on a cluster: binds pods of `schedulerName: windtunnel`, a whole gang at a time.

Bindings are made one by one. If one is refused twice, or the process ends in between, the next pass
binds the rest of the gang or, if there is no room for it, evicts the pods already bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.gangs.api.pod_spec import requests_of
from windtunnel.gangs.commands import Command, Delete, PatchGangPlacement
from windtunnel.gangs.kubernetes.reading import name_of
from windtunnel.gangs.objects import POD
from windtunnel.gangs.placement.claims import SELECTED_NODE, VOLUME_CLAIM
from windtunnel.gangs.placement.following import FollowingScheduler
from windtunnel.gangs.placement.placer import Binding
from windtunnel.gangs.placement.scheduler import Planned
from windtunnel.gangs.placement.why import Waiting
from windtunnel.live.kubernetes.client import STRATEGIC_PATCH, Client
from windtunnel.live.kubernetes.errors import KubernetesError, NotLeader
from windtunnel.live.kubernetes.resources import PODS, Meta, Object
from windtunnel.live.operate.evictions import Evictions
from windtunnel.live.operate.mirror import CLAIMS, Mirror
from windtunnel.live.operate.received import Received

SCHEDULER: Final = "windtunnel"
BIND_S: Final = 5.0
RETRY_S: Final = 5.0
"""Delay after a refused binding or eviction."""


class Placement:
    """Decides with the gang scheduler of the simulation, and binds."""

    def __init__(self, mirror: Mirror, client: Client | None, now_s: Callable[[], float]) -> None:
        self._mirror: Final = mirror
        self._client: Final = client
        """None in a dry run."""
        self._now_s: Final = now_s
        self._scheduler: Final = FollowingScheduler(mirror.view, SCHEDULER, mirror.claims)
        self._evictions: Final = Evictions(mirror)
        self._retry_s = float("inf")
        self.bound = 0
        self.refused = 0
        mirror.pod_watchers.append(self._other_pod)
        for pod in mirror.objects[POD].cache:
            self._other_pod(None, pod)

    def close(self) -> None:
        self._mirror.pod_watchers.remove(self._other_pod)

    def next_s(self) -> float:
        return min(self._scheduler.again_s, self._retry_s)

    def _other_pod(self, before: Received | None, after: Received | None) -> None:
        """Counts the resources of pods that are not in the view: those of no clique, and those that
        cannot be read, whose requests are unknown."""
        raw = after if after is not None else before
        assert raw is not None
        ended = after is None or after.status.get("phase") in ("Succeeded", "Failed")
        node = "" if ended else str(raw.spec.get("nodeName") or "")
        if self._is_in_view(raw.metadata, node):
            node = ""
        requests: dict[str, float] | None
        try:
            requests = requests_of(raw.spec) if node else {}
        except (InputError, *MALFORMED):
            requests = None
        self._scheduler.other_pod(raw.metadata.uid, node, requests, raw.spec)

    def _is_in_view(self, pod: Meta, node: str) -> bool:
        found = self._mirror.view.pods.get(name_of(pod))
        return found is not None and (found.uid, found.node) == (pod.uid, node)

    async def step(self) -> list[Command]:
        """Runs one pass, if one is due; returns the commands to write for gangs."""
        now_s = self._now_s()
        if self._retry_s <= now_s:
            self._retry_s = float("inf")
            self._scheduler.look_again()
        self._scheduler.follow()
        if self._client is None or not self._scheduler.is_due(now_s):
            return []
        planned = self._scheduler.plan(now_s)
        claims = self._scheduler.wait_for_volumes(planned)
        await asyncio.gather(*(self._select(self._client, *one) for one in claims.items()))
        bindings = list(planned.bindings)
        done = await asyncio.gather(*(self._bind_twice(self._client, one) for one in bindings))
        for binding, is_bound in zip(bindings, done, strict=True):
            if is_bound:
                self.bound += 1
                self._scheduler.bound(binding, self._now_s())
            else:
                self.refused += 1
                self._scheduler.not_bound(planned, binding)
                self._retry_s = self._now_s() + RETRY_S
        await self._check_evictions(self._client, planned)
        for_whom = {one.pod: one.in_favour_of for one in planned.done.evictions}
        commands = self._scheduler.report(planned, self._now_s())
        evictions = [one for one in commands if isinstance(one, Delete)]
        refused = await self._evictions.carry_out(self._client, evictions, for_whom)
        if refused:
            self.refused += refused
            self._retry_s = self._now_s() + RETRY_S
        says = [one for one in commands if isinstance(one, PatchGangPlacement) and one.why_pending]
        for one in says:
            await self._explain_to_pods(self._client, one)
        return [one for one in commands if not isinstance(one, Delete)]

    async def _select(self, client: Client, claim: str, node: str) -> None:
        """Requests a claim's volume for a node."""
        cache = self._mirror.objects[VOLUME_CLAIM].cache
        raw = self._mirror.raw(VOLUME_CLAIM, claim)
        if raw is None:
            return
        meta = raw.metadata
        guards = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        change = {"metadata": {**guards, "annotations": {SELECTED_NODE: node}}}
        try:
            resource = CLAIMS[VOLUME_CLAIM]
            made = await client.patch(resource, meta.namespace, meta.name, change, Received)
        except NotLeader:
            raise
        except KubernetesError:
            self.refused += 1
            self._retry_s = self._now_s() + RETRY_S
        else:
            cache.written(made)

    def _meta(self, name: str) -> Meta | None:
        raw = self._mirror.raw(POD, name)
        return None if raw is None else raw.metadata

    async def _bind_twice(self, client: Client, binding: Binding) -> bool:
        """Binds a pod, with one retry: a refusal may be temporary, and others are already bound.

        A call that takes too long is abandoned, since other gangs wait. If it succeeds after all,
        the cache shows it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BIND_S):
                return await self._bind(client, binding) or await self._bind(client, binding)
        return False

    async def _bind(self, client: Client, binding: Binding) -> bool:
        """Binds by uid, so not another pod of the name; if the response is lost, reads the pod."""
        meta = self._meta(binding.pod)
        if meta is None:
            return False
        try:
            await client.bind(meta, binding.node)
        except NotLeader:
            raise
        except KubernetesError:
            try:
                found = await client.find(PODS, meta.namespace, meta.name, Received)
            except KubernetesError:
                return False
            if found is None:
                return False
            same = found.metadata.uid == meta.uid
            return same and found.spec.get("nodeName") == binding.node
        return True

    async def _check_evictions(self, client: Client, planned: Planned) -> None:
        """Drops a gang's evictions unless all are allowed: a part of them would help no gang."""
        for one in await self._evictions.check(client, planned.done.evictions):
            now_s = self._now_s()
            self.refused += 1
            until_s = now_s + RETRY_S
            self._scheduler.not_evicted(planned, one.in_favour_of, one.kept, until_s, one.why)
            self._retry_s = now_s  # others may take its room, or make way for it

    async def _explain_to_pods(self, client: Client, command: PatchGangPlacement) -> None:
        """Sets a condition with the reason on each waiting pod, for `kubectl describe pod`."""
        gang = self._mirror.view.gangs.get(command.name)
        names = [] if gang is None else [pod for one in gang.groups for pod in one.pods]
        pods = [self._mirror.view.pods.get(name) for name in names]
        waiting = [pod.name for pod in pods if pod is not None and not pod.node and not pod.gates]
        # No machine helps a pod that waits for a claim: who adds machines goes by the reason.
        claims = self._scheduler.waiting_for_claims(command.name)
        reasons = [Waiting.CLAIMS.value if pod in claims else "Unschedulable" for pod in waiting]
        unplaced = zip(waiting, reasons, strict=True)
        await asyncio.gather(
            *(self._set_condition(client, *one, command.why_pending) for one in unplaced)
        )

    async def _set_condition(self, client: Client, name: str, reason: str, says: str) -> None:
        meta = self._meta(name)
        if meta is None:
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        change = {
            "metadata": {"uid": meta.uid},
            "status": {"conditions": [{**condition, "message": says}]},
        }
        try:
            await client.patch(
                PODS,
                meta.namespace,
                meta.name,
                change,
                Object,
                subresource="status",
                content=STRATEGIC_PATCH,
            )
        except NotLeader:
            raise
        except KubernetesError:
            return  # it is bound or gone
