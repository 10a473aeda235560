"""What broken connections leave behind does not add up."""

import asyncio
import gc
import socket

import pytest

from windtunnel.live.kubernetes import client as clients
from windtunnel.live.kubernetes.client import MOST_BROKEN, open_client
from windtunnel.live.kubernetes.config import ClusterConfig, Credentials
from windtunnel.live.kubernetes.errors import NoAnswer


@pytest.mark.parametrize(("pause_s", "looks"), [(0.0, 3), (60.0, 0)])
def test_after_many_broken_connections_memory_is_looked_through(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, looks: int
) -> None:
    """Python's collector does not come by itself: few objects hold much memory. It takes time, and
    an API server that is away breaks many connections."""
    monkeypatch.setattr(clients, "COLLECT_S", pause_s)
    found: list[int] = []

    async def main() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # and does not listen
            server = f"http://127.0.0.1:{closed.getsockname()[1]}"
            config = ClusterConfig(server, None, Credentials(lambda: ("", 60.0)), "default")
            async with open_client(config) as client:
                monkeypatch.setattr(gc, "collect", lambda: found.append(1))
                for _ in range(3 * MOST_BROKEN):
                    with pytest.raises(NoAnswer):
                        async with client._exchange("GET", "/", {}, None, 5.0, None):
                            pass
                monkeypatch.undo()

    asyncio.run(main())
    assert len(found) == looks
