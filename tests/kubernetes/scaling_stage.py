"""For tests: pods with a metrics page, a Prometheus server that can fail, and an autoscaler."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web

from tests.kubernetes.cluster import UNTIL_S, Cluster, container
from tests.scaling.kubernetes.pods import page
from windtunnel.core.clock import unix_s
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import NotLeader
from windtunnel.live.kubernetes.events import EventRecorder
from windtunnel.live.kubernetes.resources import EVENTS, PODS, Plain, Resource, Unstructured
from windtunnel.live.operate.audit import audit
from windtunnel.live.operate.scaling.caches import AUTOSCALERS, ScalingCaches
from windtunnel.live.operate.scaling.canary import CanaryOptions
from windtunnel.live.operate.scaling.operator import ScalingOperator, ScalingOptions
from windtunnel.live.operate.scaling.scaled import ScaledEntry
from windtunnel.live.operate.scaling.sources import PrometheusServer, open_sources
from windtunnel.live.rehearse.control_plane import free_port

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
OK, GARBAGE, SLOW, FAILS, STALE = "ok", "garbage", "slow", "fails", "stale"


class Served:
    """One metrics page for all pods, and Prometheus' API over it."""

    def __init__(self) -> None:
        self.port: Final = free_port()
        self.url: Final = f"http://127.0.0.1:{self.port}"
        self.page = page(20, 3)
        self.mood = OK
        self.value = "7"
        self.asked: list[str] = []

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self.page)

    async def query(self, request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        self.asked.append(query)
        if self.mood == SLOW:
            await asyncio.Event().wait()
        if self.mood == GARBAGE:
            return web.Response(body=b"\x00<html>" * 1000)
        if self.mood == FAILS:
            body = {"status": "error", "errorType": "internal", "error": "out of order"}
            return web.json_response(body, status=500)
        at_s = unix_s() - (400.0 if self.mood == STALE else 0.0)
        pods = re.search(r'pod=~"([^"]*)"', query)
        if pods is None:
            result: Any = [{"metric": {}, "value": [at_s, self.value]}]
            return web.json_response(_success("vector", result))
        result = [
            {"metric": {"__name__": name, "pod": pod}, "values": [[at_s, value]]}
            for pod in pods[1].split("|")
            for name, value in (("vllm:num_requests_waiting", "20"),
                                ("vllm:num_requests_running", "3"))
        ]  # fmt: skip
        return web.json_response(_success("matrix", result))


def _success(kind: str, result: Any) -> Any:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    made = Served()
    app = web.Application()
    app.router.add_get("/metrics", made.metrics)
    app.router.add_post("/api/v1/query", made.query)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", made.port).start()
        yield made
    finally:
        await runner.cleanup()


class Autoscaling:
    """An autoscaler of one namespace, in this process."""

    def __init__(self, cluster: Cluster, client: Client, operator: ScalingOperator) -> None:
        self.cluster = cluster
        self.client = client
        self.operator = operator
        self.task: asyncio.Task[None] | None = None

    async def ended(self) -> None:
        """Waits until it ends by itself."""
        assert self.task is not None
        async with asyncio.timeout(UNTIL_S):
            await self.task

    def of(self, name: str = "chat") -> ScaledEntry:
        return next(one for one in self.operator.scaled.values() if one.named.name == name)

    async def ticks(self, count: int, name: str = "chat") -> None:
        """Waits for this many more ticks."""

        def done() -> int:
            found = [one for one in self.operator.scaled.values() if one.named.name == name]
            return found[0].control.ticks if found and found[0].control else 0

        until = done() + count
        async with asyncio.timeout(UNTIL_S):
            while done() < until:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def autoscaling(
    cluster: Cluster,
    client: Client | None = None,
    *,
    installation: str = "first/windtunnel-operator",
    prometheus: str = "",
    acts: bool = True,
    canary: CanaryOptions | None = None,
) -> AsyncIterator[Autoscaling]:
    """Runs until the end of the block and is then killed; its decisions must match its log."""
    with TemporaryDirectory() as folder:
        log = EventLogFile(Path(folder) / "operator.jsonl", {}, "operator")
        log.open()
        options = ScalingOptions(installation, canary, log.record)
        async with _running(cluster, client or cluster.client, options, prometheus, acts) as made:
            yield made
        log.close()
        report = audit(Path(folder) / "operator.jsonl")
        assert not report.difference
        assert report.decisions or not made.operator.decided


@asynccontextmanager
async def _running(
    cluster: Cluster, client: Client, options: ScalingOptions, prometheus: str, acts: bool
) -> AsyncIterator[Autoscaling]:
    caches = ScalingCaches(client, cluster.namespace)
    await caches.add_served()
    recorder = EventRecorder(client, "windtunnel-operator", options.installation)
    server = PrometheusServer(prometheus) if prometheus else None
    async with open_sources(server) as sources:
        operator = ScalingOperator(
            caches, client, client if acts else None, recorder, sources, unix_s, options
        )
        tasks = [asyncio.create_task(one.run()) for one in caches.reflectors.values()]
        try:
            for one in caches.reflectors.values():
                await one.synced.wait()
            made = Autoscaling(cluster, client, operator)
            made.task = asyncio.create_task(operator.run())
            tasks += [made.task, asyncio.create_task(recorder.run())]
            yield made
            assert not operator.bugs
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            failed = [one for one in done if isinstance(one, Exception)
                      and not isinstance(one, NotLeader)]  # fmt: skip
            assert not failed, failed


async def ready_pods(cluster: Cluster, count: int = 2, **labels: str) -> None:
    """Pods that run on no node and answer on loopback."""
    for number in range(count):
        name = f"pod-{number}"
        meta = {"namespace": cluster.namespace, "name": name, "labels": labels or {"app": "chat"}}
        spec = {"containers": [container()], "schedulerName": "none", "nodeName": "nowhere"}
        await cluster.client.create(PODS, {"metadata": meta, "spec": spec}, Plain)
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await cluster.client.patch(
            PODS, cluster.namespace, name, {"status": status}, Plain, subresource="status"
        )


async def deployment(cluster: Cluster, replicas: int = 2, name: str = "chat") -> None:
    labels = {"app": "chat"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
    }
    meta = {"namespace": cluster.namespace, "name": name}
    await cluster.client.create(DEPLOYMENTS, {"metadata": meta, "spec": spec}, Plain)


def hpa(most: int, **more: Any) -> dict[str, Any]:
    return {
        "policy": "hpa",
        "interval": "500ms",
        "metrics": [{"name": "vllm:num_requests_waiting", "target": 5}],
        "pools": {"main": {"min": 1, "max": most}},
        **more,
    }


async def autoscaler(cluster: Cluster, port: int, name: str = "chat", **spec: Any) -> None:
    """An HPA with five queued requests per replica and an interval of half a second."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    reference = {"targetRef": spec.pop("target", target), "port": port, "name": "main"}
    whole = {"targets": [reference], "scaling": hpa(8), **spec}
    meta = {"namespace": cluster.namespace, "name": name}
    body = {"metadata": meta, "spec": whole}
    await cluster.client.apply(AUTOSCALERS, body, Plain, manager="people", force=True)


async def size(cluster: Cluster, resource: Resource = DEPLOYMENTS, name: str = "chat") -> int:
    scale = await cluster.client.get_scale(resource, cluster.namespace, name)
    return int(scale["spec"].get("replicas", 0))


async def until_size(
    cluster: Cluster, wanted: int, resource: Resource = DEPLOYMENTS, name: str = "chat"
) -> None:
    async def holds() -> bool:
        return await size(cluster, resource, name) == wanted

    with suppress(TimeoutError):
        await cluster.until(holds)
    assert await size(cluster, resource, name) == wanted


async def condition(cluster: Cluster, kind: str, name: str = "chat") -> tuple[str, str, str]:
    """Its status, reason and message."""
    found = await cluster.client.get(AUTOSCALERS, cluster.namespace, name, Unstructured)
    for one in found.status.get("conditions") or []:
        if one["type"] == kind:
            return one["status"], one["reason"], one.get("message", "")
    return "", "", ""


async def until_condition(
    cluster: Cluster, kind: str, status: str, reason: str, patience_s: float = UNTIL_S
) -> str:
    """Waits for a condition, and returns its message."""
    told = ("", "", "")

    async def holds() -> bool:
        nonlocal told
        told = await condition(cluster, kind)
        return told[:2] == (status, reason)

    with suppress(TimeoutError):
        await cluster.until(holds, patience_s)
    assert told[:2] == (status, reason), told
    return told[2]


async def events(cluster: Cluster) -> dict[str, str]:
    """The notes of events, by reason."""
    listed = await cluster.client.list_all(EVENTS, ObjectSelection(cluster.namespace))
    found = [json.loads(bytes(one)) for one in listed.items]
    return {one["reason"]: one.get("note", "") for one in found}


async def until_event(cluster: Cluster, reason: str) -> str:
    async def holds() -> bool:
        return reason in await events(cluster)

    with suppress(TimeoutError):
        await cluster.until(holds)
    return (await events(cluster))[reason]
