"""What broken connections leave behind does not add up."""

import asyncio
import gc
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.live.gateway.test_clients import certificate
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


def test_a_watch_that_is_left_leaves_no_connection_open(tmp_path: Path) -> None:
    """The server does not answer the shutdown of TLS, so the connection would wait for it."""
    pytest.importorskip("cryptography")
    certificate_file, key_file = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate_file, key_file)
    trusting = ssl.create_default_context(cafile=str(certificate_file))
    trusting.check_hostname = False
    event = b'{"type":"BOOKMARK","object":{}}\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    held: list[socket.socket] = []

    def serve(listening: socket.socket) -> None:
        connection = serving.wrap_socket(listening.accept()[0], server_side=True)
        held.append(connection)  # open until the test ends
        connection.recv(65_536)
        connection.sendall(head + b"%x\r\n%s\r\n" % (len(event), event))

    async def main(port: int) -> None:
        credentials = Credentials(lambda: ("", 60.0))
        config = ClusterConfig(f"https://127.0.0.1:{port}", trusting, credentials, "default")
        async with (
            open_client(config) as client,
            client._exchange("GET", "/", {}, None, None, 30.0) as response,
        ):
            assert await response.content.readany() == event
            assert response.connection is not None
            assert response.connection.transport is not None
            used = response.connection.transport.get_extra_info("socket")
        assert used.fileno() == -1

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30.0)
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        asyncio.run(main(listening.getsockname()[1]))
        server.join()
        held[0].close()
