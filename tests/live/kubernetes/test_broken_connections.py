"""What broken TLS connections leave behind does not add up."""

import asyncio
import contextlib
import gc
import ssl

import pytest

from windtunnel.live.kubernetes import client as clients
from windtunnel.live.kubernetes.client import open_client
from windtunnel.live.kubernetes.config import ClusterConfig, Credentials
from windtunnel.live.kubernetes.resources import NODES
from windtunnel.live.system import new_loop

GIVEN_UP = 3 * clients.MOST_BROKEN
AT_ONCE = 8


def test_connections_of_requests_that_were_given_up_are_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's collector does not come by itself: few objects hold much memory."""
    monkeypatch.setattr(clients, "COLLECT_S", 0.0)
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No handshake."""
        nonlocal asked
        with contextlib.suppress(OSError):
            await reader.read(1)
            asked += 1
            await reader.read()  # until the client leaves
        writer.close()

    async def main() -> int:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = ClusterConfig(
            f"https://127.0.0.1:{port}",
            ssl.create_default_context(),
            Credentials(lambda: ("", 60.0)),
            "default",
        )
        async with open_client(config) as client:
            for _ in range(GIVEN_UP // AT_ONCE):
                tasks = [asyncio.create_task(client.list_all(NODES)) for _ in range(AT_ONCE)]
                before = asked
                while asked < before + AT_ONCE:
                    await asyncio.sleep(0.001)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.01)
            left = sum(isinstance(one, ssl.SSLObject) for one in gc.get_objects())
        server.close()
        return left

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            left = runner.run(main())
    finally:
        gc.enable()
    assert asked == GIVEN_UP
    assert left <= clients.MOST_BROKEN + AT_ONCE
