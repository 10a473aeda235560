"""Stored responses of `/v1/responses`, kept and retrieved at the server that made them."""

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from windtunnel.live.gateway.data_path.client_side import ClientConnection
from windtunnel.live.gateway.data_path.errors import (
    KEPT_BODY,
    LEFT_STATUS,
    ClientError,
    error_body,
    server_error,
)
from windtunnel.live.gateway.data_path.http import RequestHead, content_length, upstream_head
from windtunnel.live.wire.connections import AnswerReceiver

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

MOST_KEPT: Final = 100_000
MOST_RETRIEVALS: Final = 1000
"""Concurrent requests for stored responses: they bypass admission."""
START: Final = b"/v1/responses/"
ASKED: Final = re.compile(rb"/v1/responses/([A-Za-z0-9_-]{1,128})(/cancel|/input_items)?")
MADE: Final = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,120})"')
METHODS: Final = {b"GET": (b"", b"/input_items"), b"POST": (b"/cancel",), b"DELETE": (b"",)}
"""The operations on a stored response: path suffixes by method."""


class StoredResponse(NamedTuple):
    """The server and the tenant of a stored response."""

    server: int
    tenant: int


class ResponseOwners:
    """The server that made each response; the least recently used is forgotten."""

    def __init__(self) -> None:
        self._owners: Final[dict[bytes, StoredResponse]] = {}

    def made(self, data: bytes, server: int, tenant: int) -> bool:
        """Registers the id in the start of a response; returns whether there was one."""
        found = MADE.search(data)
        if found is None:
            return False
        if len(self._owners) >= MOST_KEPT:
            del self._owners[next(iter(self._owners))]
        self._owners[found.group(1)] = StoredResponse(server, tenant)
        return True

    def find(self, name: bytes, tenant: int) -> StoredResponse | None:
        """The owner of a response; one of another tenant is treated as unknown."""
        owner = self._owners.get(name)
        if owner is None or owner.tenant != tenant:
            return None
        self._owners[name] = self._owners.pop(name)
        return owner


class Retrieval(AnswerReceiver):
    """A request for a stored response: it goes to one server, bypassing admission and routing."""

    __slots__ = (
        "_asked",
        "_began_s",
        "_client",
        "_head_in",
        "_head_line",
        "_kept",
        "_own",
        "_proxy",
        "_server",
        "_tenant",
        "id",
        "status",
    )

    def __init__(
        self,
        proxy: "Proxy",
        client: ClientConnection,
        head: RequestHead,
        given: bytes,
        server: int,
        tenant: int,
    ) -> None:
        super().__init__()
        self.id: Final = given
        self.status = 0  # sent to the client
        self._proxy: Final = proxy
        self._client: ClientConnection | None = client
        self._head_in: Final = head
        self._server: Final = server
        self._tenant: Final = tenant
        self._own: Final = b"x-request-id: %b\r\n" % given
        self._asked = b""
        self._began_s: Final = proxy.now_s()
        self._head_line = b""
        self._kept: bytearray | None = None  # the body of an error

    def send(self) -> None:
        """Sends the request to the server; only GET requests may reuse a connection."""
        proxy, head = self._proxy, self._head_in
        if len(proxy.retrievals) >= MOST_RETRIEVALS:
            raise ClientError(429, "Too many stored responses are being asked for.")
        pool = proxy.pools[self._server]
        own = self._own + pool.address.auth
        self._asked = upstream_head(head.method, head.path, pool.address.host_header, own, head, 0)
        self.attempt = 1
        proxy.retrievals[self] = None
        proxy.first_bytes.add(self, self._began_s)
        pool.send(self, self._asked, b"", fresh=head.method != b"GET")

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
        if status >= 400:
            self._kept = bytearray()
        else:
            self._head_line = client.begin(status, headers, self._own, content_length(headers))

    def data(self, data: bytes, chunks: bytes) -> None:
        self.last_s = self._proxy.swept_s
        if self._kept is not None:
            self._kept += data[: KEPT_BODY - len(self._kept)]
        elif self._client is not None:
            self._client.write(self._head_line, data, chunks)
            self._head_line = b""

    def complete(self, data: bytes, chunks: bytes) -> None:
        self.connection = None
        if self.over:
            return
        kept = self._kept
        if kept is None:
            client = self._end("completed")
            if client is not None:
                client.end(self._head_line, data, chunks)
            return
        kept += data[: KEPT_BODY - len(kept)]
        client = self._end("failed", f"status {self.status}")
        if client is not None:
            body = server_error(self.status, bytes(kept), self._proxy.redact)
            client.reply(self.status, body, self._own)

    def broken(self, what: str) -> None:
        connection, self.connection = self.connection, None
        if self.over:
            return
        reused = connection is not None and connection.uses > 1 and not connection.answering
        if reused and self.attempt == 1:  # the server closed an idle connection just as it was used
            self.attempt = 2
            self._proxy.pools[self._server].send(self, self._asked, b"", fresh=True)
            return
        self._refuse(502, "The server that has this response did not answer.", what)

    def late(self) -> None:
        self.drop_connection()
        self._refuse(504, "No answer in time.")

    def stop(self) -> None:
        """Ends the request because the gateway is stopping."""
        self.drop_connection()
        self._refuse(503, "The gateway is stopping.")

    def client_left(self) -> None:
        self.drop_connection()
        if not self.over:
            self.status = self.status or LEFT_STATUS
            self._end("client_left")

    def _refuse(self, status: int, message: str, reason: str = "") -> None:
        begun = self.status != 0 and self._kept is None
        if not begun:
            self.status = status
        client = self._end("cut_off" if begun else "failed", reason or message)
        if client is None:
            return
        if begun:
            client.cut(b"")
        else:
            client.reply(status, error_body(status, message), self._own)

    def _end(self, outcome: str, reason: str = "") -> ClientConnection | None:
        """The only way a retrieval ends; returns the client if it is still connected."""
        client, self._client = self._client, None
        self.over = True
        proxy = self._proxy
        del proxy.retrievals[self]
        proxy.first_bytes.remove(self)
        proxy.streams.remove(self)
        if proxy.access_log is not None:
            proxy.access_log.add(
                {
                    "id": self.id.decode("latin-1"),
                    "path": self._head_in.path.partition(b"?")[0].decode("latin-1"),
                    "method": self._head_in.method.decode("latin-1"),
                    "status": self.status,
                    "outcome": outcome,
                    "reason": reason,
                    "tenant": proxy.core.policies.tenants[self._tenant],
                    "duration_s": round(proxy.now_s() - self._began_s, 6),
                    "server": proxy.server_name(self._server),
                }
            )
        return client
