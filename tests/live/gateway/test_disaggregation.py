"""Prefill on one server, decode on another, with vLLM's `kv_transfer_params`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.gateway.bed import (
    DONE,
    STREAM_HEAD,
    USAGE,
    Bed,
    FakeServer,
    Received,
    Script,
    bed,
    chat,
    chunk,
    event,
    friendly,
    run,
    whole,
)
from windtunnel.live.gateway.audit import audit

TRANSFER = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2, 3]],
    "remote_engine_id": "e",
    "remote_host": "10.0.0.9",
    "remote_port": 5600,
    "a_field_of_tomorrow": {"x": [1.5, None]},
}


async def prefills(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    choice = {"index": 0, "message": {"content": "x"}}
    body = {"choices": [choice], "usage": USAGE, "kv_transfer_params": TRANSFER}
    writer.write(whole(json.dumps(body).encode()))


async def lacks(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    writer.write(whole(json.dumps({"choices": [], "kv_transfer_params": None}).encode()))


async def refuses(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    writer.write(whole(b'{"error": "no"}', "500 Oops"))


async def breaks(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    writer.transport.abort()


async def hangs(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
    await asyncio.sleep(100)


async def talkative(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
    """Names hosts in its answers, as vLLM does where KV goes both ways."""
    if received.json.get("stream"):
        last = event("end", kv_transfer_params=TRANSFER)
        writer.write(STREAM_HEAD + chunk(event("one") + last + DONE) + b"0\r\n\r\n")
    else:
        body = {"choices": [], "usage": USAGE, "kv_transfer_params": TRANSFER}
        writer.write(whole(json.dumps(body).encode()))


def config(tmp_path: Path, prefill: FakeServer, decode: FakeServer, more: str = "") -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"serving:\n  disaggregation: {{{more}}}\n"
        f"live:\n  log: {tmp_path / 'log'}\n  servers:\n"
        f"    - {{url: '{prefill.url}', role: prefill}}\n"
        f"    - {{url: '{decode.url}', role: decode}}\n"
    )
    return path


class Pair:
    """A gateway with a server for prompts and one for answers."""

    def __init__(self, prefill: Script, decode: Script, tmp_path: Path, more: str = "") -> None:
        self.prefill = FakeServer(prefill)
        self.decode = FakeServer(decode)
        self._tmp_path = tmp_path
        self._more = more

    async def run(self, test: Any, *sets: str) -> None:
        await self.prefill.start()
        await self.decode.start()
        file = config(self._tmp_path, self.prefill, self.decode, self._more)
        async with bed(friendly, config=file, sets=sets, ready=False) as it:
            await it.servers[0].stop()
            await it.until(
                lambda: (
                    len(it.core.servers) == 3
                    and it.core.servers[0].availability.healthy
                    and it.core.servers[1].availability.healthy
                    and not it.core.servers[2].availability.healthy
                )
            )
            await test(it)
            await it.until(lambda: not it.core.requests)
            it.settled()
        await self.prefill.stop()
        await self.decode.stop()
        report = audit(self._tmp_path / "log")
        assert (report.difference, report.cut) == ("", False)


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_is_computed_apart_and_its_kv_named_unchanged(
    tmp_path: Path, *, stream: bool
) -> None:
    pair = Pair(prefills, friendly, tmp_path)

    async def test(it: Bed) -> None:
        body = chat(stream=stream, max_tokens=9, min_tokens=2, max_completion_tokens=9)
        got = await it.ask(body, headers={"x-request-id": "r1"})
        assert (got.status, got.whole) == (200, True)
        (first,), (second,) = pair.prefill.requests, pair.decode.requests
        assert first.json["stream"] is False
        assert first.json["max_tokens"] == 1
        assert not {"min_tokens", "stream_options", "max_completion_tokens"} & set(first.json)
        assert first.json["kv_transfer_params"]["do_remote_decode"] is True
        assert second.json["kv_transfer_params"] == TRANSFER
        assert {key: second.json[key] for key in body} == body
        assert first.headers["x-request-id"] == second.headers["x-request-id"] == "r1"

    run(pair.run(test))


@pytest.mark.parametrize("broken", [lacks, refuses, breaks])
def test_a_prefill_that_fails_is_not_seen_by_the_client(tmp_path: Path, broken: Script) -> None:
    pair = Pair(broken, friendly, tmp_path)

    async def test(it: Bed) -> None:
        got = await it.ask(chat(stream=True))
        assert (got.status, got.whole) == (200, True)
        assert len(pair.prefill.requests) == 1
        assert "kv_transfer_params" not in pair.decode.requests[0].json

    run(pair.run(test))


def test_the_prompt_of_a_response_is_computed_with_one_token_at_most(tmp_path: Path) -> None:
    pair = Pair(prefills, friendly, tmp_path, "decider: always")

    async def test(it: Bed) -> None:
        asked = {"model": "m", "input": "hi", "max_output_tokens": 50}
        assert (await it.ask(asked, path="/v1/responses")).status == 200
        sent = pair.prefill.requests[0].json
        assert sent["max_output_tokens"] == 1
        assert "max_tokens" not in sent
        assert pair.decode.requests[0].json["max_output_tokens"] == 50
        assert (await it.ask(chat(max_tokens=9, max_completion_tokens=9))).status == 200
        sent = pair.prefill.requests[1].json
        assert (sent["max_tokens"], "max_completion_tokens" in sent) == (1, False)

    run(pair.run(test))


def test_a_prefill_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    pair = Pair(hangs, friendly, tmp_path)

    async def test(it: Bed) -> None:
        got = await it.ask(chat(stream=True))
        assert (got.status, got.whole) == (200, True)
        assert pair.prefill.left == 1

    run(pair.run(test, "live.limits.first_byte=300ms"))


def test_a_client_that_leaves_during_prefill_costs_the_decode_server_nothing(
    tmp_path: Path,
) -> None:
    pair = Pair(hangs, friendly, tmp_path)

    async def test(it: Bed) -> None:
        _, writer = await it.open(chat(stream=True))
        await it.until(lambda: len(pair.prefill.requests) == 1)
        assert [one.in_flight for one in it.core.servers] == [1, 1, 0]
        writer.close()
        await it.until(lambda: pair.prefill.left == 1)
        await asyncio.sleep(0.05)
        assert not pair.decode.requests

    run(pair.run(test))


@pytest.mark.parametrize("stream", [True, False])
def test_hosts_in_answers_do_not_reach_clients(tmp_path: Path, *, stream: bool) -> None:
    pair = Pair(prefills, talkative, tmp_path)

    async def test(it: Bed) -> None:
        got = await it.ask(chat(stream=stream))
        assert (got.status, got.whole) == (200, True)
        assert b"10.0.0.9" not in got.body
        assert (b"end" in got.body) == stream

    run(pair.run(test))


def test_a_prompt_that_the_decode_server_has_is_not_split(tmp_path: Path) -> None:
    pair = Pair(prefills, friendly, tmp_path, "decider: prefix-threshold, threshold: 200")

    async def test(it: Bed) -> None:
        text = [{"role": "user", "content": "again and " * 400}]
        for _ in range(3):
            assert (await it.ask(chat() | {"messages": text})).status == 200
        assert len(pair.prefill.requests) == 1
        assert len(pair.decode.requests) == 3

    run(pair.run(test))


@pytest.mark.parametrize("leaves", [True, False])
def test_kv_that_no_server_fetches_is_counted(tmp_path: Path, *, leaves: bool) -> None:
    pair = Pair(prefills, hangs if leaves else breaks, tmp_path)

    async def test(it: Bed) -> None:
        reader, writer = await it.open(chat(stream=True))
        await it.until(lambda: len(pair.decode.requests) == 1)
        assert it.program.proxy.metrics.stranded == 0 or not leaves
        if not leaves:
            assert b" 503 " in await reader.readline()
        writer.close()
        await it.until(lambda: not it.core.requests)
        assert it.program.proxy.metrics.stranded == 1

    run(pair.run(test, "live.retries.attempts=1"))
