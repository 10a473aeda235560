"""Stored answers of `/v1/responses`: kept by the server that made them, and asked for there."""

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from windtunnel.live.gateway.data_path.client_side import ClientConnection
from windtunnel.live.gateway.data_path.errors import error_body
from windtunnel.live.gateway.data_path.http import RequestHead, content_length, upstream_head
from windtunnel.live.gateway.data_path.server_side import AnswerReceiver

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

MOST_KEPT: Final = 100_000
START: Final = b"/v1/responses/"
ASKED: Final = re.compile(rb"/v1/responses/([A-Za-z0-9_-]{1,128})(/cancel|/input_items)?")
MADE: Final = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,120})"')
METHODS: Final = {b"GET": (b"", b"/input_items"), b"POST": (b"/cancel",), b"DELETE": (b"",)}
"""What may be asked of a stored answer: the ends of paths, by method."""


class StoredResponse(NamedTuple):
    """Where a stored answer is, and whose it is."""

    server: int
    tenant: int


class ResponseOwners:
    """Which server made which answer; the one that was used longest ago is forgotten."""

    def __init__(self) -> None:
        self._owners: Final[dict[bytes, StoredResponse]] = {}

    def made(self, data: bytes, server: int, tenant: int) -> bool:
        """Reads the id in the start of an answer; whether there was one."""
        found = MADE.search(data)
        if found is None:
            return False
        if len(self._owners) >= MOST_KEPT:
            del self._owners[next(iter(self._owners))]
        self._owners[found.group(1)] = StoredResponse(server, tenant)
        return True

    def find(self, name: bytes, tenant: int) -> StoredResponse | None:
        """The owner of an answer; that of another tenant is as unknown as one that never was."""
        owner = self._owners.get(name)
        if owner is None or owner.tenant != tenant:
            return None
        self._owners[name] = self._owners.pop(name)
        return owner


class Retrieval(AnswerReceiver):
    """A request about a stored answer: it goes to one server, past admission and routing."""

    __slots__ = ("_client", "_head_line", "_own", "_proxy", "_server", "status")

    def __init__(self, proxy: "Proxy", client: ClientConnection, server: int, own: bytes) -> None:
        super().__init__()
        self.status = 0
        self._proxy: Final = proxy
        self._client: ClientConnection | None = client
        self._server: Final = server
        self._own: Final = own
        self._head_line = b""

    def send(self, head: RequestHead, own: bytes) -> None:
        proxy = self._proxy
        pool = proxy.pools[self._server]
        own += pool.address.auth
        asked = upstream_head(head.method, head.path, pool.address.host_header, own, head, 0)
        self.attempt = 1
        proxy.first_bytes.add(self, proxy.now_s())
        pool.send(self, asked, fresh=True)

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        proxy, client = self._proxy, self._client
        proxy.first_bytes.remove(self)
        proxy.streams.add(self, proxy.now_s())
        assert client is not None
        if status == 401:
            self.drop_connection()
            self._refuse(502, "The server did not accept the gateway.")
            return
        self.status = status
        self._head_line = client.begin(status, headers, self._own, content_length(headers))

    def data(self, data: bytes) -> None:
        self.last_s = self._proxy.swept_s
        if self._client is not None:
            self._client.write(self._head_line, data)
            self._head_line = b""

    def complete(self, data: bytes) -> None:
        self.connection = None
        client = self._end()
        if client is not None:
            client.end(self._head_line, data)

    def broken(self, what: str) -> None:  # noqa: ARG002
        self.connection = None
        if not self.over:
            self._refuse(502, "The server that has this response did not answer.")

    def late(self) -> None:
        self.drop_connection()
        self._refuse(504, "No answer in time.")

    def client_left(self) -> None:
        self.drop_connection()
        self._end()

    def _refuse(self, status: int, message: str) -> None:
        begun = self.status != 0
        client = self._end()
        if client is None:
            return
        if begun:
            client.cut(b"")
        else:
            self.status = status
            client.reply(status, error_body(status, message), self._own)

    def _end(self) -> ClientConnection | None:
        """The one end; the client, if it is still there."""
        client, self._client = self._client, None
        self.over = True
        self._proxy.first_bytes.remove(self)
        self._proxy.streams.remove(self)
        return client
