"""Answers that a server stores are asked for where they were made."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.gateway.bed import STREAM_HEAD, FakeServer, Received, bed, chunk, run, whole
from windtunnel.live.gateway.data_path.errors import KEPT_BODY, redacted, server_error
from windtunnel.live.gateway.data_path.responses import MOST_RETRIEVALS

KEYS = """\
live:
  clients:
    - {key_env: KEY_A, tenant: a}
    - {key_env: KEY_B, tenant: b}
"""
SECRETS = {"KEY_A": "sk-secret-of-a-123", "KEY_B": "sk-secret-of-b-456"}
TURN = ("serving.router.policy=round-robin",)


def stores(name: str) -> object:
    """A server that stores what it answers, and streams it when that is asked for."""

    async def script(received: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        method, path = received.line.split()[:2]
        made = f"resp_{name}{len(server.requests)}"
        if method != "POST" or path.endswith("/cancel"):
            body = {"id": path.split("/")[3].partition("?")[0], "object": "response", "by": name}
            writer.write(whole(json.dumps(body).encode()))
        elif received.json.get("stream"):
            data = {"type": "response.created", "response": {"id": made}}
            first = b"event: response.created\ndata: " + json.dumps(data).encode() + b"\n\n"
            last = b'event: response.completed\ndata: {"type":"response.completed"}\n\n'
            writer.write(STREAM_HEAD + chunk(first) + chunk(last) + b"0\r\n\r\n")
        else:
            writer.write(whole(json.dumps({"id": made, "object": "response"}).encode()))

    return script


@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_response_is_asked_of_the_server_that_made_it(*, stream: bool) -> None:
    async def test() -> None:
        async with bed(stores("a"), stores("b"), sets=TURN) as it:  # type: ignore[arg-type]
            for _ in range(2):
                asked = {"model": "m", "input": "hi", "stream": stream}
                assert (await it.ask(asked, path="/v1/responses")).status == 200
            for name in ("a", "b"):
                path = f"/v1/responses/resp_{name}1"
                for method, end in (("GET", ""), ("GET", "?include=x"), ("POST", "/cancel")):
                    got = await it.ask(b"", path=path + end, method=method)
                    assert (got.status, got.json["by"]) == (200, name)
                    assert "x-request-id" in got.headers
                got = await it.ask(b"", path=path, method="DELETE")
                assert got.json["by"] == name
            assert [len(one.requests) for one in it.servers] == [5, 5]
            it.settled()

    run(test())


def test_a_conversation_goes_on_where_it_was_begun() -> None:
    async def test() -> None:
        async with bed(stores("a"), stores("b"), sets=TURN) as it:  # type: ignore[arg-type]
            assert (await it.ask({"model": "m", "input": "x"}, path="/v1/responses")).status == 200
            for _ in range(4):
                more = {"model": "m", "input": "y", "previous_response_id": "resp_a1"}
                got = await it.ask(more, path="/v1/responses", headers={"x-windtunnel-explain": ""})
                assert got.headers["x-windtunnel-reason"] == "the server has the conversation"
            assert [len(one.requests) for one in it.servers] == [5, 0]
            it.servers[0].healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            assert (await it.ask(more, path="/v1/responses")).status == 200
            assert len(it.servers[1].requests) == 1
            it.settled()

    run(test())


def test_unknown_responses_and_those_of_another_tenant_do_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(KEYS)

    async def test() -> None:
        async with bed(stores("a"), config=file, environment=SECRETS) as it:  # type: ignore[arg-type]
            mine = {"Authorization": f"Bearer {SECRETS['KEY_A']}"}
            other = {"Authorization": f"Bearer {SECRETS['KEY_B']}"}
            asked = {"model": "m", "input": "hi"}
            assert (await it.ask(asked, path="/v1/responses", headers=mine)).status == 200
            path = "/v1/responses/resp_a1"
            assert (await it.ask(path=path, method="GET", headers=mine)).status == 200
            assert (await it.ask(path=path, method="GET", headers=other)).status == 404
            assert (await it.ask(path=path, method="GET")).status == 401
            never = await it.ask(path="/v1/responses/resp_x", method="GET", headers=mine)
            assert (never.status, never.json["error"]["param"]) == (404, "response_id")
            wrong = await it.ask(b"", path=path, method="POST", headers=mine)
            assert (wrong.status, wrong.json["error"]["message"]) == (
                405,
                "Use GET or DELETE for this path.",
            )
            assert len(it.servers[0].requests) == 2

    run(test())


def test_a_stored_response_whose_server_is_gone_is_502_and_a_client_that_leaves_is_noticed() -> (
    None
):
    async def test() -> None:
        async with bed(stores("a")) as it:  # type: ignore[arg-type]
            assert (await it.ask({"model": "m", "input": "x"}, path="/v1/responses")).status == 200

            async def hangs(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
                await asyncio.sleep(100)

            it.servers[0].script = hangs
            _, writer = await it.open(path="/v1/responses/resp_a1", method="GET")
            await it.until(lambda: len(it.servers[0].requests) == 2)
            writer.close()
            await it.until(lambda: it.servers[0].left == 1)
            await it.servers[0].stop()
            got = await it.ask(path="/v1/responses/resp_a1", method="GET")
            assert got.status == 502
            it.settled()

    run(test())


SERVER_KEY = "sk-key-of-the-server-789"


async def repeats(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
    """Refuses what is asked of stored responses, and says with which key it was asked."""
    if received.line.startswith("POST"):
        writer.write(whole(b'{"id": "resp_a1"}'))
        return
    said = f"no right for {received.headers['authorization']}"
    body = json.dumps({"error": {"message": said}}).encode()
    writer.write(b"HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in (body[:30], body[30:]):
        writer.write(chunk(piece))
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(b"0\r\n\r\n")


def test_errors_about_stored_responses_are_without_the_servers_key(tmp_path: Path) -> None:
    async def test() -> None:
        server = await FakeServer(repeats).start()
        file = tmp_path / "gateway.yaml"
        file.write_text(f"live: {{servers: [{{url: '{server.url}', key_env: SERVER}}]}}")
        async with bed(config=file, environment={"SERVER": SERVER_KEY}, ready=False) as it:
            await it.until(
                lambda: any(
                    one.availability.healthy and one.name == server.url for one in it.core.servers
                )
            )
            await it.servers[0].stop()
            await it.until(lambda: not it.core.servers[-1].availability.healthy)
            made = await it.ask({"model": "m", "input": "x"}, path="/v1/responses")
            assert made.status == 200
            got = await it.ask(path="/v1/responses/resp_a1", method="GET")
            assert got.status == 403
            assert got.json["error"]["message"] == "no right for Bearer [key]"
            it.settled()
        await server.stop()

    run(test())


def test_requests_about_stored_responses_are_logged_bounded_and_share_connections(
    tmp_path: Path,
) -> None:
    log = tmp_path / "access.jsonl"

    async def test() -> None:
        async with bed(stores("a"), sets=(f"live.access_log={log}",)) as it:  # type: ignore[arg-type]
            server, path = it.servers[0], "/v1/responses/resp_a1"
            assert (await it.ask({"model": "m", "input": "x"}, path="/v1/responses")).status == 200
            before = it.program.proxy.pools[0].open
            for _ in range(3):
                assert (await it.ask(path=path, method="GET")).status == 200
            assert it.program.proxy.pools[0].open == before

            async def closes(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
                server.script = stores("a")  # type: ignore[assignment]
                writer.transport.abort()

            server.script = closes  # as if the connection had been closed while it was idle
            assert (await it.ask(path=path, method="GET")).status == 200
            under_way: dict[Any, None] = it.program.proxy.retrievals
            under_way.update(dict.fromkeys(range(MOST_RETRIEVALS)))
            got = await it.ask(path=path, method="GET")
            under_way.clear()
            assert (got.status, got.json["error"]["type"]) == (429, "rate_limit_error")
            it.settled()

    run(test())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["path"], line["status"], line["outcome"]) for line in lines] == [
        ("/v1/responses", 200, "completed"),
        *[("/v1/responses/resp_a1", 200, "completed")] * 4,
        ("/v1/responses/resp_a1", 429, "invalid"),
    ]
    assert {"id", "method", "tenant", "server", "duration_s"} <= set(lines[1])


def test_an_error_too_large_to_be_kept_whole_ends_in_no_part_of_a_key() -> None:
    cut = (b'{"error": {' + b"x" * KEPT_BODY)[: KEPT_BODY - 6] + b"sk-key"
    assert redacted(cut, lambda text: text) == b""
    said = json.loads(server_error(403, cut, lambda text: text))["error"]["message"]
    assert said == "The server answered 403."
