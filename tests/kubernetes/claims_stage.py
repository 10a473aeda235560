"""What makes volumes and devices on a cluster, played by tests through the API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from tests.kubernetes.gang_stage import Stage
from windtunnel.gangs.placement.claims import (
    CLAIM_OF_POD,
    DEVICE_CLAIM,
    SELECTED_NODE,
    STORAGE_CLASS,
    VOLUME,
    VOLUME_CLAIM,
)
from windtunnel.live.kubernetes.errors import AlreadyExists, NotFound
from windtunnel.live.kubernetes.resources import PODS, Plain, Unstructured, owner_reference
from windtunnel.live.operate.mirror import CLAIMS

LOOK_S: Final = 0.2


class ClaimPlayer:
    """A provisioner of volumes that are made for their first pod, the controller that makes device
    claims from templates, and a scheduler that allocates them."""

    def __init__(self, on: Stage) -> None:
        self.on: Final = on
        self.volumes: Final[list[str]] = []

    async def run(self) -> None:
        while True:
            with contextlib.suppress(NotFound, AlreadyExists):
                await self._provision()
                await self._allocate()
            await asyncio.sleep(LOOK_S)

    async def _patch(self, kind: str, one: Unstructured, change: Plain, below: str = "") -> None:
        name, client = one.metadata.name, self.on.client
        await client.patch(CLAIMS[kind], self.on.space, name, change, Plain, subresource=below)

    async def _provision(self) -> None:
        for one in await self.on.listed(CLAIMS[VOLUME_CLAIM]):
            if SELECTED_NODE not in one.metadata.annotations or one.spec.get("volumeName"):
                continue
            name = f"{self.on.space}-{one.metadata.name}"
            self.volumes.append(name)
            spec = {"capacity": {"storage": "1Gi"}, "accessModes": one.spec["accessModes"]}
            body = {"metadata": {"name": name}, "spec": {**spec, "hostPath": {"path": "/x"}}}
            await self.on.client.create(CLAIMS[VOLUME], body, Plain)
            await self._patch(VOLUME_CLAIM, one, {"spec": {"volumeName": name}})
            await self._patch(VOLUME_CLAIM, one, {"status": {"phase": "Bound"}}, "status")

    async def _allocate(self) -> None:
        there = await self.on.listed(CLAIMS[DEVICE_CLAIM])
        for one in there:
            if not one.status.get("allocation"):
                status: Plain = {"status": {"allocation": {"devices": {}}}}
                await self._patch(DEVICE_CLAIM, one, status, "status")
        owned = {one.metadata.controller.uid for one in there if one.metadata.controller}
        request = {"name": "g", "exactly": {"deviceClassName": "g"}}
        for pod in self.on.kubelets.alive():
            for claim in pod.spec.get("resourceClaims") or []:
                if "resourceClaimTemplateName" not in claim or pod.metadata.uid in owned:
                    continue
                meta = {
                    "name": f"{pod.metadata.name}-{claim['name']}",
                    "namespace": self.on.space,
                    "annotations": {CLAIM_OF_POD: claim["name"]},
                    "ownerReferences": [owner_reference(PODS, pod.metadata)],
                }
                body = {"metadata": meta, "spec": {"devices": {"requests": [request]}}}
                await self.on.client.create(CLAIMS[DEVICE_CLAIM], body, Plain)


@contextlib.asynccontextmanager
async def claims_played(on: Stage) -> AsyncIterator[str]:
    """Gives the name of the storage class."""
    late = {"provisioner": "tests", "volumeBindingMode": "WaitForFirstConsumer"}
    await on.client.create(CLAIMS[STORAGE_CLASS], {"metadata": {"name": on.space}, **late}, Plain)
    player = ClaimPlayer(on)
    playing = asyncio.create_task(player.run())
    try:
        yield on.space
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        for name in player.volumes:
            await on.client.delete(CLAIMS[VOLUME], "", name)
        await on.client.delete(CLAIMS[STORAGE_CLASS], "", on.space)
