"""A gateway that finds its servers by a Service or an InferencePool, with exactly its rights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster, container
from tests.kubernetes.test_rights import RBAC, asked_of, kubeconfig_of_account, stand_ins
from tests.live.gateway.bed import DONE, STREAM_HEAD, Bed, FakeServer, Received, bed, chat, chunk
from tests.live.gateway.bed import event as piece
from windtunnel.live.gateway import endpoint_slices, inference_pools
from windtunnel.live.kubernetes.resources import ENDPOINT_SLICES, INFERENCE_POOLS, PODS, Plain
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.operate.rights import OF_GATEWAY, POOLS, SERVICES, gateway_rules
from windtunnel.live.rehearse.control_plane import API_SERVER

SERVICE = "vllm"
ACCOUNT = "windtunnel-gateway"


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves pods to loopback, since an API server refuses slices with loopback addresses."""
    for module in (endpoint_slices, inference_pools):
        monkeypatch.setattr(module, "pod_url", lambda _, port: f"http://127.0.0.1:{port}")


async def slow(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    """Takes long enough for a drain to find requests in progress."""
    writer.write(STREAM_HEAD + chunk(piece("one")))
    await asyncio.sleep(0.05)
    writer.write(chunk(DONE) + b"0\r\n\r\n")


@asynccontextmanager
async def serving() -> AsyncIterator[FakeServer]:
    server = await FakeServer(slow).start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def gateway(
    cluster: Cluster, kubeconfig: Path, entry: str = "service: {}/vllm, port: http"
) -> AsyncIterator[Bed]:
    """A gateway with one entry only: the server that it was started with is stopped."""
    written = f"{{{entry.format(cluster.namespace)}, slots: 8}}"
    sets = (f"live.servers_kubernetes=[{written}]",)
    environment = {"KUBECONFIG": str(kubeconfig)}
    async with bed(slow, sets=sets, environment=environment, ready=False) as it:
        await it.servers[0].stop()
        await it.until(lambda: not any(one.availability.healthy for one in it.core.servers))
        yield it


async def show(cluster: Cluster, server: FakeServer, name: str, **conditions: bool) -> None:
    """Publishes a slice for a server: servers differ in their ports on this machine."""
    space = cluster.namespace
    labels = {endpoint_slices.SERVICE_LABEL: SERVICE}
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": space, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": conditions}],
        "ports": [{"name": "http", "port": server.port}, {"name": "metrics", "port": 1}],
    }
    await cluster.client.apply(ENDPOINT_SLICES, body, Plain, manager="tests", force=True)


async def hide(cluster: Cluster, name: str) -> None:
    await cluster.client.delete(ENDPOINT_SLICES, cluster.namespace, name)


async def account(cluster: Cluster) -> Path:
    """A kubeconfig of a service account with no rights yet."""
    home = {"name": ACCOUNT, "namespace": cluster.namespace}
    await cluster.client.create(RESOURCES["ServiceAccount"], {"metadata": home}, Plain)
    return await kubeconfig_of_account(cluster, ACCOUNT)


async def grant(cluster: Cluster, feature: str) -> None:
    """Grants exactly the declared rights."""
    home = {"name": ACCOUNT, "namespace": cluster.namespace}
    role = {"metadata": home, "rules": gateway_rules(feature)}
    await cluster.client.create(RESOURCES["Role"], role, Plain)
    ref = {"apiGroup": RBAC, "kind": "Role", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", **home}
    bound = {"metadata": home, "roleRef": ref, "subjects": [subject]}
    await cluster.client.create(RESOURCES["RoleBinding"], bound, Plain)


def state(it: Bed, server: FakeServer) -> Any:
    return next((one for one in it.core.servers if one.name == server.url), None)


def healthy(it: Bed, server: FakeServer) -> bool:
    one = state(it, server)
    return one is not None and bool(one.availability.healthy)


class Clients:
    """Clients that send one request after another."""

    def __init__(self, it: Bed) -> None:
        self.answers: list[bool] = []
        self._it = it
        self._flowing = True
        self._running = [asyncio.ensure_future(self._ask()) for _ in range(4)]

    async def _ask(self) -> None:
        while self._flowing:
            answer = await self._it.ask(chat(stream=True))
            self.answers.append(answer.status == 200 and answer.whole)

    async def until_answered(self, more: int) -> None:
        wanted = len(self.answers) + more
        await self._it.until(lambda: len(self.answers) >= wanted)

    async def stop(self) -> None:
        self._flowing = False
        await asyncio.gather(*self._running)


async def test_servers_join_drain_and_leave_while_requests_flow(cluster: Cluster) -> None:
    file = cluster.plane.kubeconfig
    async with serving() as first, serving() as second, gateway(cluster, file) as it:
        await show(cluster, first, "a", ready=True)
        await it.until(lambda: healthy(it, first))
        assert state(it, first).availability.slots == 8
        clients = Clients(it)
        await show(cluster, second, "b", ready=True)
        await it.until(lambda: len(second.requests) > 4)
        # It terminates: what it has ends, and nothing new comes.
        await show(cluster, first, "a", ready=False, serving=True, terminating=True)
        await it.until(lambda: bool(state(it, first).availability.draining))
        await it.until(lambda: state(it, first).in_flight == 0)
        had = len(first.requests)
        await clients.until_answered(8)
        await hide(cluster, "a")
        await first.stop()
        await it.until(lambda: state(it, first).gone)
        assert len(first.requests) == had
        assert first.url not in [one["server"] for one in it.program.servers()]
        # None is left: requests wait for the next.
        await hide(cluster, "b")
        await it.until(lambda: bool(state(it, second).availability.draining))
        await show(cluster, second, "b", ready=True)
        await clients.until_answered(8)
        await clients.stop()
        it.settled()
    assert len(clients.answers) > 20
    assert all(clients.answers)


async def test_known_servers_stay_while_the_api_server_is_away_or_refuses(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "windtunnel.gateway")
    async with serving() as server, gateway(cluster, await account(cluster)) as it:
        await show(cluster, server, "a", ready=True)
        await it.until(lambda: "is forbidden" in caplog.text)
        assert (
            f"endpointslices.discovery.k8s.io in the namespace {cluster.namespace}" in caplog.text
        )
        await grant(cluster, SERVICES)
        await it.until(lambda: healthy(it, server), 30)
        clients = Clients(it)
        caplog.clear()
        cluster.plane.kill(API_SERVER)
        await it.until(lambda: "cannot be read, known servers stay (1)" in caplog.text, 30)
        await clients.until_answered(20)
        cluster.plane.launch(API_SERVER)
        await asyncio.to_thread(cluster.plane.await_ready, API_SERVER)
        await it.until(lambda: "are read again" in caplog.text, 60)
        # An API server that starts may refuse for a moment what it will allow.
        assert caplog.text.count("cannot be read") <= 2
        await clients.stop()
        it.settled()
    assert all(clients.answers)
    assert asked_by_gateway(cluster) == declared(SERVICES)


async def test_pods_of_a_pool_join_and_leave_and_its_changes_count(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "windtunnel.gateway")
    account_file = await account(cluster)
    async with (
        stand_ins(cluster.client, INFERENCE_POOLS),
        serving() as first,
        serving() as second,
        gateway(cluster, account_file, "pool: {}/vllm") as it,
    ):
        await it.until(lambda: "is forbidden" in caplog.text)
        await grant(cluster, POOLS)
        await it.until(lambda: "it does not exist" in caplog.text, 60)
        await show_pod(cluster, "a", ready=False)
        await show_pool(cluster, {"app": "a"}, first.port)
        await it.until(lambda: "has no ready endpoint" in caplog.text)
        await show_pod(cluster, "a", ready=True)
        await it.until(lambda: healthy(it, first))
        clients = Clients(it)
        await clients.until_answered(8)
        await show_pool(cluster, {"app": "a"}, first.port, second.port)
        await it.until(lambda: len(second.requests) > 4)
        await show_pool(cluster, {"app": "a"}, second.port)
        await it.until(lambda: bool(state(it, first).availability.draining))
        await cluster.client.delete(INFERENCE_POOLS, cluster.namespace, SERVICE)
        await it.until(lambda: "its last selector and ports stay" in caplog.text)
        await clients.until_answered(8)
        await show_pool(cluster, {"app": "b"}, first.port)
        await it.until(lambda: bool(state(it, second).availability.draining))
        await show_pod(cluster, "b", ready=True)
        await it.until(lambda: not state(it, first).availability.draining)
        await clients.until_answered(8)
        await clients.stop()
        it.settled()
    assert all(clients.answers)
    assert asked_by_gateway(cluster) == declared(POOLS)


def asked_by_gateway(cluster: Cluster) -> set[Any]:
    asked = cluster.plane.requests_of(f"{cluster.namespace}:{ACCOUNT}")
    return {asked_of(one) for one in asked if "objectRef" in one}


def declared(feature: str) -> set[tuple[str, str, str]]:
    return {
        (one.resource.group, one.plural, verb)
        for one in OF_GATEWAY
        if one.feature == feature
        for verb in one.verbs.split()
    }


async def show_pool(cluster: Cluster, labels: dict[str, str], *ports: int) -> None:
    spec = {"selector": {"matchLabels": labels}, "targetPorts": [{"number": one} for one in ports]}
    meta = {"name": SERVICE, "namespace": cluster.namespace}
    body: Plain = {"metadata": meta, "spec": spec}
    await cluster.client.apply(INFERENCE_POOLS, body, Plain, manager="tests", force=True)


async def show_pod(cluster: Cluster, name: str, *, ready: bool) -> None:
    """Publishes a pod as a kubelet would, although nothing runs."""
    meta = {"name": name, "namespace": cluster.namespace, "labels": {"app": name}}
    spec = {"containers": [container()], "schedulerName": "none"}
    body: Plain = {"metadata": meta, "spec": spec}
    await cluster.client.apply(PODS, body, Plain, manager="tests", force=True)
    condition = {"type": "Ready", "status": str(ready)}
    status = {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "conditions": [condition]}
    await cluster.client.patch(
        PODS, cluster.namespace, name, {"status": status}, Plain, subresource="status"
    )
