"""A Karpenter that works through the API alone: NodeClaims become nodes, and go with them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from tests.kubernetes.cluster import Cluster
from windtunnel.fleet.demand.requests import GPU
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import Conflict, NotFound
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import (
    CRDS,
    NODE_CLAIMS,
    NODES,
    PODS,
    Plain,
    Unstructured,
)
from windtunnel.live.rehearse.kubelets import add_node

FINALIZER: Final = "karpenter.sh/termination"


async def install_node_claims(cluster: Cluster) -> None:
    """Installs a CRD with Karpenter's name, whose spec is immutable, as in Karpenter."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fixed = {**anything, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = {"type": "object", "properties": {"spec": fixed, "status": anything}}
    version: Plain = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"plural": NODE_CLAIMS.plural, "kind": NODE_CLAIMS.kind}
    spec: Plain = {"group": NODE_CLAIMS.group, "names": names, "scope": "Cluster"}
    meta = {"name": f"{NODE_CLAIMS.plural}.{NODE_CLAIMS.group}"}
    body = {"metadata": meta, "spec": {**spec, "versions": [version]}}
    await cluster.client.apply(CRDS, body, Plain, manager="windtunnel-tests", force=True)

    async def served() -> bool:
        try:
            await cluster.client.list_all(NODE_CLAIMS)
        except NotFound:
            return False
        return True

    await cluster.until(served)


class Karpenter:
    """Launches, registers and terminates the claims of one fleet."""

    def __init__(self, client: Client, fleet: str) -> None:
        self._client: Final = client
        self._claims: Final = Reflector(
            client,
            NODE_CLAIMS,
            Unstructured,
            ObjectSelection(labels=f"windtunnel.dev/fleet={fleet}"),
        )
        self._look: Final = asyncio.Event()
        self._claims.cache.subscribe(self._changed)
        self.paused = False
        """While set, it launches nothing."""
        self.launched: Final[list[str]] = []
        """Uids of claims, in the order in which they became nodes."""

    def _changed(self, before: Any, after: Any) -> None:
        self._look.set()

    def resume(self) -> None:
        self.paused = False
        self._look.set()

    @property
    def claims(self) -> list[Unstructured]:
        return sorted(self._claims.cache, key=lambda one: one.metadata.name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            await self._claims.synced.wait()
            while True:
                self._look.clear()
                for claim in self.claims:
                    try:
                        await self._move(claim)
                    except (NotFound, Conflict):
                        continue
                await self._look.wait()

    async def _move(self, claim: Unstructured) -> None:
        name, node = claim.metadata.name, f"ip-{claim.metadata.name}"
        if claim.metadata.deletion_timestamp is not None:
            if FINALIZER in claim.metadata.finalizers:
                for pod in await self._pods_on(node):
                    meta = pod.metadata
                    await self._client.delete(PODS, meta.namespace, meta.name, grace_s=0)
                with contextlib.suppress(NotFound):
                    await self._client.delete(NODES, "", node)
                await self._finalizers(name, [])
        elif FINALIZER not in claim.metadata.finalizers:
            await self._finalizers(name, [FINALIZER])
        elif not self.paused and claim.metadata.uid not in self.launched:
            requests = claim.spec["resources"]["requests"]
            labels = dict(claim.metadata.labels)
            for one in claim.spec["requirements"]:
                labels[one["key"]] = one["values"][0]
            amounts = {"cpu": "64", GPU: requests[GPU]}
            await add_node(self._client, node, labels, amounts)
            await self._client.patch(
                NODES, "", node, {"spec": {"taints": claim.spec["taints"]}}, Plain
            )
            done = [{"type": kind, "status": "True"}
                    for kind in ("Launched", "Registered", "Initialized")]  # fmt: skip
            status = {"nodeName": node, "conditions": done}
            await self._client.patch(
                NODE_CLAIMS, "", name, {"status": status}, Plain, subresource="status"
            )
            self.launched.append(claim.metadata.uid)

    async def _pods_on(self, node: str) -> list[Unstructured]:
        listed = await self._client.list_all(PODS, ObjectSelection(fields=f"spec.nodeName={node}"))
        return [msgspec.json.decode(one, type=Unstructured) for one in listed.items]

    async def _finalizers(self, name: str, wanted: list[str]) -> None:
        change = {"metadata": {"finalizers": wanted or None}}
        made = await self._client.patch(NODE_CLAIMS, "", name, change, Unstructured)
        if wanted:
            self._claims.cache.written(made)
