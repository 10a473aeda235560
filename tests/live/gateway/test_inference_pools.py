"""InferencePools of Kubernetes as lists of servers, watched without an API server."""

import asyncio
import logging
from typing import Any, cast

import msgspec
import pytest

from tests.live.gateway.fake_api import FakeApi
from tests.live.virtual import run
from windtunnel.live.gateway.inference_pools import servers_of, watch_pool
from windtunnel.live.gateway.kubernetes_source import KubernetesSource
from windtunnel.live.gateway.settings import KubernetesEntry, ServerEntry, server_fault
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import NoAnswer, error_of
from windtunnel.live.kubernetes.resources import INFERENCE_POOLS, PODS, ServingPod

SPACE = "prod"
NAME = "vllm"
REFUSED = error_of("GET /pods", 403, b'{"message": "pods is forbidden"}')
UNKNOWN = error_of("GET /inferencepools", 404, b'{"message": "404 page not found"}')


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"namespace": SPACE, "name": name, "uid": name, **more}


def pool(labels: dict[str, str] | None, *ports: int) -> dict[str, Any]:
    selector = {} if labels is None else {"matchLabels": labels}
    spec = {"selector": selector, "targetPorts": [{"number": one} for one in ports]}
    return {"metadata": meta(NAME), "spec": {**spec, "appProtocol": "http", "newer": {"x": 1}}}


def pod(last: int, *, ready: str = "True", ends: bool = False, **labels: str) -> dict[str, Any]:
    deleted = {"deletionTimestamp": "2026-11-16T10:00:00Z"} if ends else {}
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": meta(f"p{last}", labels={"app": "vllm", **labels}, **deleted),
        "status": {"conditions": conditions, "podIP": f"10.0.0.{last}"},
    }


def urls(*places: tuple[int, int]) -> list[str]:
    return [f"http://10.0.0.{last}:{port}" for last, port in places]


def test_each_port_of_each_ready_pod_that_stays_is_a_server() -> None:
    pods = [pod(1), pod(2, ready="False"), pod(3, ends=True), pod(4)]
    pods.append({"metadata": meta("p5")})  # not scheduled yet: nothing is said of it
    pods.append({**pod(6), "status": {**pod(6)["status"], "podIP": "169.254.0.6"}})
    source = KubernetesSource(KubernetesEntry(pool=NAME), SPACE, server_fault, print)
    read = [msgspec.convert(one, ServingPod) for one in reversed(pods)]
    found = servers_of(read, [8001, 8000, 8000], source.fault_of)
    assert found.urls == urls((1, 8000), (1, 8001), (4, 8000), (4, 8001))
    assert found.faults == ["link-local addresses are not allowed"]


class Stage:
    """A pool that is watched, and what came of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "windtunnel.gateway")
        self.api = FakeApi()
        self._caplog = caplog
        self._lists: list[list[ServerEntry]] = []
        entry = KubernetesEntry(pool=f"{SPACE}/{NAME}", slots=7)
        self._source = KubernetesSource(entry, "elsewhere", server_fault, self._lists.append)

    def start(self) -> None:
        self.running = asyncio.create_task(watch_pool(self._source, cast("Client", self.api)))

    @property
    def servers(self) -> list[str]:
        assert {one.slots for some in self._lists for one in some} <= {7}
        return [one.url for one in self._lists[-1]] if self._lists else []

    async def said(self, wait_s: float = 2.0) -> list[str]:
        await asyncio.sleep(wait_s)
        lines = [one.getMessage() for one in self._caplog.records]
        self._caplog.clear()
        return lines


def test_selector_and_ports_of_a_pool_count_as_soon_as_they_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        stage = Stage(caplog)
        api = stage.api
        for one in (pod(1), pod(2, tier="fast"), pod(3, ready="False")):
            api.put(PODS, one)
        api.put(PODS, {**pod(9), "metadata": meta("p9", labels={"app": "other"})})
        api.put(INFERENCE_POOLS, pool({"app": "vllm"}, 8000))
        stage.start()
        assert await stage.said() == []
        assert stage.servers == urls((1, 8000), (2, 8000))
        api.put(PODS, pod(3))
        api.put(PODS, pod(1, ends=True))
        assert await stage.said() == []
        assert stage.servers == urls((2, 8000), (3, 8000))
        api.put(INFERENCE_POOLS, pool({"app": "vllm", "tier": "fast"}, 8000, 8001))
        assert await stage.said() == []
        assert stage.servers == urls((2, 8000), (2, 8001))
        api.delete(PODS, "p2")
        assert await stage.said() == [f"InferencePool {SPACE}/{NAME} has no ready endpoint"]
        assert stage.servers == []
        stage.running.cancel()

    run(test())


def test_a_pool_that_is_missing_or_matches_everything_is_said_and_the_last_one_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        stage = Stage(caplog)
        api = stage.api
        api.put(PODS, pod(1))
        api.put(PODS, pod(2))
        stage.start()
        assert await stage.said(60) == [f"InferencePool {SPACE}/{NAME}: it does not exist"]
        api.put(INFERENCE_POOLS, pool({"app": "vllm"}, 8000))
        assert await stage.said() == []
        assert stage.servers == urls((1, 8000), (2, 8000))
        stays = "; its last selector and ports stay in force"
        for spoilt, what in (
            (pool(None, 8000), "its selector has no matchLabels"),
            (pool({}, 8000), "its selector has no matchLabels"),
            (pool({"app": "other"}), "it has no targetPorts"),
            (pool({"app": "vllm"}, 8000) | {"spec": {"targetPorts": 7}}, "Expected `array"),
            (None, "it does not exist"),
        ):
            if spoilt is None:
                api.delete(INFERENCE_POOLS, NAME)
            else:
                api.put(INFERENCE_POOLS, pool({"app": "vllm"}, 8000))
                await stage.said()
                api.put(INFERENCE_POOLS, spoilt)
            (line,) = await stage.said(60)
            assert what in line
            assert line.endswith(stays)
            assert stage.servers == urls((1, 8000), (2, 8000))
        api.put(PODS, pod(2, ends=True))  # what is known of pods still counts
        assert await stage.said() == []
        assert stage.servers == urls((1, 8000))
        stage.running.cancel()

    run(test())


def test_servers_stay_while_anything_of_it_cannot_be_read_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        stage = Stage(caplog)
        api = stage.api
        api.errors = {INFERENCE_POOLS: UNKNOWN}
        stage.start()
        (line,) = await stage.said(60)
        assert "InferencePools cannot be read, no server is known" in line
        assert "is the kind InferencePool installed on this cluster?" in line
        api.errors = {PODS: REFUSED}
        api.put(PODS, pod(1))
        api.put(INFERENCE_POOLS, pool({"app": "vllm"}, 8000))
        lines = await stage.said(120)
        (line,) = [one for one in lines if "Pods cannot be read" in one]
        wanted = "inferencepools.inference.networking.k8s.io, pods in the namespace prod"
        assert f"needs the rights to list and watch {wanted}" in line
        api.errors = {}
        assert await stage.said(60) == [f"InferencePool {SPACE}/{NAME}: Pods are read again"]
        assert stage.servers == urls((1, 8000))
        api.fail(NoAnswer("no answer came"))
        (line,) = await stage.said(600)
        assert "known servers stay (1): no answer came" in line
        assert stage.servers == urls((1, 8000))
        stage.running.cancel()

    run(test())
