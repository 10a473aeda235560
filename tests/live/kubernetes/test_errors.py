"""Answers that say what is wrong are read to their end, in however many parts they come."""

import asyncio
import json

import pytest

from windtunnel.live.kubernetes.client import open_client
from windtunnel.live.kubernetes.config import ClusterConfig, Credentials
from windtunnel.live.kubernetes.errors import AlreadyExists
from windtunnel.live.kubernetes.resources import PODS, Plain


async def _answer_in_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    status = {"kind": "Status", "reason": "AlreadyExists", "message": "x" * 500, "code": 409}
    body = json.dumps(status).encode()
    head = f"HTTP/1.1 409 Conflict\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body[:20])
    await writer.drain()
    for _ in range(20):  # the client reads what there is
        await asyncio.sleep(0.001)
    writer.write(body[20:])
    await writer.drain()
    writer.close()


async def _create() -> None:
    server = await asyncio.start_server(_answer_in_parts, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = ClusterConfig(f"http://127.0.0.1:{port}", None, Credentials(lambda: ("", 0.0)), "a")
    async with server, open_client(config) as client:
        await client.create(PODS, {"metadata": {"name": "a", "namespace": "a"}}, Plain)


def test_the_reason_of_an_answer_in_two_parts_is_known() -> None:
    with pytest.raises(AlreadyExists):
        asyncio.run(_create())
