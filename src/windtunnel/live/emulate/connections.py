"""Limits on what a connection may cost an emulated server before its request is read.

uvicorn reads headers of any size and waits for them without limit. Here the headers, and all other
bytes of a message outside its body, are limited in size and time, and the number of connections is
limited.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
"""Limit of a request line with headers; for a chunked body also chunk sizes and trailers."""
FRAMING = 8
"""Additional framing bytes allowed for each byte of the body, since chunks may be small."""
LONGEST_HEAD_S = 30.0
"""Time limit from a new connection, or a further request's first byte, to the headers' end."""

_REASONS = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


PIECES = "windtunnel.pieces"
"""The key in an ASGI scope for the `PieceWriter` of the connection."""


class PieceWriter:
    """Writes chunks of a streamed answer at once; ASGI's `send` takes a loop iteration each."""

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow

    def write(self, chunk: bytes) -> bool:
        """Writes a whole HTTP chunk; False, and nothing is written, if the client is gone or reads
        too slowly."""
        if self._flow.write_paused or self._transport.is_closing():
            return False
        self._transport.write(chunk)
        return True


class BoundedConnection(HttpToolsProtocol):
    """One connection; `most` is the limit of simultaneous connections."""

    most = 65_536

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._received = 0  # bytes since the last message began
        self._of_body = 0  # those of them in the body
        self._upgrades = False  # the request being parsed asks for another protocol
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503)
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._received += len(data)
        self._feed(data)
        framing = self._received - self._of_body
        if framing > MOST_HEAD_BYTES + FRAMING * self._of_body and not self.transport.is_closing():
            self._refuse(431)

    def _feed(self, data: bytes) -> None:
        """Parses data; an upgrade request is parsed again without the upgrade, as HTTP allows."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrades = False
            method = self.parser.get_method()
            if method == b"CONNECT":
                self.send_400_response("Tunnels are not supported.")
                return
            head = [method, b" ", self.url, b" HTTP/1.1\r\n"]
            for name, value in self.headers:
                if name != b"upgrade":
                    head += [name, b": ", value, b"\r\n"]
            self.parser = httptools.HttpRequestParser(self)
            self._feed(b"".join([*head, b"\r\n"]))
            rest = data[upgrade.args[0] :]
            if rest:
                self._feed(rest)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        self._received = self._of_body = 0
        self._arm()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._disarm()
        self._upgrades = self.parser.should_upgrade()
        if not self._upgrades:
            self.scope[PIECES] = PieceWriter(self.transport, self.flow)  # type: ignore[literal-required]
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._upgrades:
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._of_body += len(body)
        super().on_body(body)

    def hang_up(self) -> None:
        """Closes the connection at once; data that the client has not read is lost."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # uvloop wakes writers before it reports this
        self.transport.abort()

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(LONGEST_HEAD_S, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # we paused reading: an earlier response is being sent
            self._arm()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        """Sends an error, unless another response is under way, and closes the connection."""
        self._disarm()
        if self.cycle is None or self.cycle.response_complete:
            head = f"HTTP/1.1 {status} {_REASONS[status]}"
            self.transport.write(
                f"{head}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode()
            )
        self.transport.close()


def bounded(most: int) -> type[BoundedConnection]:
    """The connection class of a server with this limit of connections."""
    return type("Connection", (BoundedConnection,), {"most": most})
