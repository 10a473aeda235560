"""The client side of the data path: HTTP/1.1 connections, without a task for each."""

import asyncio
from typing import TYPE_CHECKING, Final, cast

import httptools

from windtunnel.live.gateway.data_path.errors import ClientError, error_body
from windtunnel.live.gateway.data_path.http import (
    MOST_HEADERS,
    RequestHead,
    check_head,
    origin_form,
    response_head,
)
from windtunnel.live.wire.chunks import LAST_CHUNK
from windtunnel.live.wire.connections import BODILESS

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy
    from windtunnel.live.wire.connections import AnswerReceiver

MOST_PIPELINED: Final = 16
HEAD_END: Final = b"\r\n\r\n"
LARGE_BODY: Final = 32 << 10
HEADER_BYTES: Final = 4
"""Bytes of a header besides its name and value: a colon, a space and the line end."""
HEAD_TOO_LARGE: Final = "The head of the request is too large."
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON: Final = b"content-type: application/json\r\n"
CLOSE: Final = b"connection: close\r\n"

# What a connection waits for.
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
ANSWER: Final = 3


class ClientConnection:
    """A connection from a client, on which at most one request is answered at a time.

    It has the methods that asyncio and httptools call, but derives from none of their classes so
    that it can be compiled.
    """

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy: Final = proxy
        self.exchange: AnswerReceiver | None = None
        self.transport: asyncio.Transport | None = None
        self.state = IDLE
        self.paused = False  # the socket's write buffer is full
        self._parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0  # of the URL and headers of the request being read
        self._unread_bytes = 0  # since the last complete head, request or piece of a body
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._declared = 0
        self._between = True  # no byte of the next request has been parsed
        self._left = 0  # bytes of a large body still to come
        self._began_s = 0.0
        self._head: RequestHead | None = None  # of the request being read
        self._answered: RequestHead | None = None  # of the request being answered
        self._next: Final[list[tuple[RequestHead, bytes, float]]] = []  # pipelined requests
        self._next_bytes = 0  # of their bodies
        self._chunked = False
        self._closes = False  # after the response being written
        self._refused = False

    # asyncio's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if not self.proxy.opened(self):
            self._answer_and_close(503, "There are too many connections.", b"retry-after: 1\r\n")

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.transport = None
        self.proxy.closed(self)
        exchange = self.exchange
        if exchange is not None:
            self.exchange = None
            exchange.client_left()

    def eof_received(self) -> bool:
        """Treats a client that closes its side as gone, as vLLM does."""
        return False

    def pause_writing(self) -> None:
        self.paused = True
        self.proxy.stalled.add(self, self.proxy.now_s())
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self.paused = False
        self.proxy.stalled.remove(self)
        if self.exchange is not None:
            self.exchange.resume()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        try:
            if self._left:
                data = self._take_body(data)
                if not data:
                    return
            self._unread_bytes += len(data)
            if self._between and (len(data) > LARGE_BODY or data.endswith(HEAD_END)):
                data = self._feed_large(data)
            if data:
                self._feed(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, ClientError):
                self._refuse(cause)
            else:
                self.proxy.bug(error)
                self._refuse(ClientError(500, "The gateway failed."))
        except httptools.HttpParserError:
            self._refuse(ClientError(400, "The request is not valid HTTP/1.1."))
        else:
            if self._unread_bytes > self.proxy.head_bytes:
                self._refuse(ClientError(431, HEAD_TOO_LARGE))

    def _take_body(self, data: bytes) -> bytes:
        """Takes a piece of a body that bypasses the parser; returns the data after the body."""
        left = self._left
        self._left = max(0, left - len(data))
        self._body.append(data if len(data) <= left else data[:left])
        if self._left:
            return b""
        self._parser = httptools.HttpRequestParser(self)
        self._complete()
        return data[left:]

    def _feed_large(self, data: bytes) -> bytes:
        """Parses the head of a request whose end is in the data; a large body bypasses the parser,
        which would copy it. Returns the data left to parse."""
        end = data.find(HEAD_END) + 4
        if end < 4:
            return data
        self._declared = 0
        self._feed(data[:end])
        if self._declared <= LARGE_BODY or self.state != BODY or self._refused:
            return data[end:]
        self._left = self._declared
        return self._take_body(data[end:]) if end < len(data) else b""

    def _feed(self, data: bytes) -> None:
        """Parses data. A request to upgrade is parsed again without the upgrade, as HTTP allows."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            else:
                return
            head = self._head
            assert head is not None
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(head.without_upgrade())

    # httptools' callbacks.

    def on_message_begin(self) -> None:
        self._between = False
        self._head_bytes = 0
        self._url = b""
        self._headers = []
        self._body = []
        self._body_bytes = 0
        self._head = None
        if self.state == IDLE:
            self.state = HEAD
            self._began_s = self.proxy.now_s()
            self.proxy.idle.remove(self)
            self.proxy.heads.add(self, self._began_s)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        headers.append((name.lower(), value))
        if len(headers) > MOST_HEADERS:
            raise ClientError(431, f"The request has more than {MOST_HEADERS} headers.")
        self._count_head(len(name) + len(value) + HEADER_BYTES)

    def _count_head(self, size: int) -> None:
        """Counts bytes of headers and trailers; pipelined requests have the same limit."""
        self._head_bytes += size
        if self._head_bytes > self.proxy.head_bytes:
            raise ClientError(431, HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._unread_bytes = 0
        parser = self._parser
        head = RequestHead(
            parser.get_method(),
            origin_form(self._url),
            self._headers,
            http_10=parser.get_http_version() == "1.0",
        )
        head.keep_alive = parser.should_keep_alive()
        self._head = head
        if parser.should_upgrade():
            if head.method == b"CONNECT":
                raise ClientError(400, "The gateway does not support tunnels.")
            return
        check_head(head)
        if self.state == HEAD:
            self.state = BODY
        most = self.proxy.body_bytes
        declared = head.get(b"content-length")
        if declared is not None:
            self._declared = int(declared)
            if self._declared > most:
                raise ClientError(413, f"The body is larger than {most} bytes.")
        expected = head.get(b"expect")
        if expected is not None and self.state == BODY and self.transport is not None:
            if expected.lower() != b"100-continue":
                raise ClientError(400, "The only supported expectation is 100-continue.")
            self.transport.write(CONTINUE)

    def on_body(self, data: bytes) -> None:
        self._unread_bytes = 0
        self._body_bytes += len(data)
        most = self.proxy.body_bytes
        if self._body_bytes > most:
            raise ClientError(413, f"The body is larger than {most} bytes.")
        self._body.append(data)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._complete()

    def _complete(self) -> None:
        """Handles a complete request."""
        head, parts = self._head, self._body
        assert head is not None
        self._between = True
        self._body = []
        self._unread_bytes = 0
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if self.state == ANSWER:
            self._next_bytes += len(body)
            if len(self._next) >= MOST_PIPELINED or self._next_bytes > self.proxy.body_bytes:
                raise ClientError(400, "Too much was pipelined on this connection.")
            self._next.append((head, body, self.proxy.now_s()))
            return
        self._take(head, body, self._began_s)

    # Answers.

    def reply(self, status: int, body: bytes, own: bytes, headers: bytes = JSON) -> None:
        """Writes a complete response at once."""
        if self.transport is not None:
            closes = CLOSE if self._closes else b""
            framing = b"content-length: %d\r\n" % len(body)
            head = response_head(status, [], own + headers + closes, framing)
            self.transport.write(head if _has_no_body(self._answered) else head + body)
        self.done()

    def begin(
        self, status: int, headers: list[tuple[bytes, bytes]], own: bytes, size: int
    ) -> bytes:
        """The head of a response that follows in pieces; a size below 0 means unknown."""
        if status in BODILESS:
            self._chunked = False
            framing = b""
        elif size >= 0:
            self._chunked = False
            framing = b"content-length: %d\r\n" % size
        elif self._closes_to_end():
            self._chunked = False
            self._closes = True
            framing = b""
        else:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        return response_head(status, headers, own + (CLOSE if self._closes else b""), framing)

    def _closes_to_end(self) -> bool:
        return self._answered is not None and self._answered.http_10

    def write(self, first: bytes, data: bytes, chunks: bytes) -> None:
        """Writes `first` as it is and `data` as a piece of the response body; `chunks` is the same
        data as the server sent it, or empty."""
        transport = self.transport
        if transport is None:
            return
        if chunks and self._chunked:
            transport.write(first + chunks if first else chunks)
        elif data and self._chunked:
            transport.write(b"%b%x\r\n%b\r\n" % (first, len(data), data))
        elif first or data:
            transport.write(first + data)

    def end(self, first: bytes, data: bytes, chunks: bytes) -> None:
        """Writes the last piece of a response, as `write` does, and ends the response."""
        transport = self.transport
        if transport is not None:
            if chunks or not self._chunked:
                self.write(first, data, chunks)
            elif data:
                transport.write(b"%b%x\r\n%b\r\n0\r\n\r\n" % (first, len(data), data))
            else:
                transport.write(first + LAST_CHUNK)
        self.done()

    def cut(self, event: bytes) -> None:
        """Ends the response incomplete; the client notices by the missing last chunk."""
        transport = self.transport
        self.exchange = None
        if transport is not None:
            if event:
                self.write(b"", event, b"")
            transport.close()

    def done(self) -> None:
        """Continues after a response: with the connection's next request, if there is one."""
        self.exchange = None
        transport = self.transport
        if transport is None:
            return
        if self._closes:
            transport.close()
            return
        if self._next:
            head, body, began_s = self._next.pop(0)
            self._next_bytes -= len(body)
            asyncio.get_running_loop().call_soon(self._take, head, body, began_s)
            return
        if self._between:
            self.state = IDLE
            self.proxy.idle.add(self, self.proxy.now_s())
        else:
            self.state = HEAD if self._head is None else BODY
            self._began_s = self.proxy.now_s()
            self.proxy.heads.add(self, self._began_s)

    def close_when_idle(self) -> None:
        """Closes the connection: now if it is idle, otherwise after the current response."""
        self._closes = True
        if self.state == IDLE and self.transport is not None:
            self.transport.close()

    def late(self) -> None:
        """Refuses a request whose headers or body did not arrive in time."""
        if self.transport is not None:
            self._refuse(ClientError(408, "The request did not arrive in time."))

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _take(self, head: RequestHead, body: bytes, began_s: float) -> None:
        if self.transport is None or self._refused:
            return
        self.state = ANSWER
        self._answered = head
        self.proxy.heads.remove(self)
        if not head.keep_alive:
            self._closes = True
        self.proxy.handle(self, head, body, began_s)

    def _refuse(self, error: ClientError) -> None:
        """Refuses a message that cannot be processed, and closes the connection; an error is sent
        unless another response is under way."""
        self._refused = True
        if self.exchange is not None:
            self.exchange.client_left()
            self.exchange = None
            self.abort()
            return
        self.proxy.refused_early(error)
        if self.transport is not None:
            head = response_head(
                error.status, [], JSON + CLOSE, b"content-length: %d\r\n" % len(error.body)
            )
            self.transport.write(head if _has_no_body(self._head) else head + error.body)
            self._linger()

    def _linger(self) -> None:
        """Closes once the client has read the response: unread input would reset the connection."""
        transport = self.transport
        assert transport is not None
        if transport.can_write_eof():
            transport.write_eof()
            self.proxy.lingering.add(self, self.proxy.now_s())
        else:
            transport.close()

    def _answer_and_close(self, status: int, message: str, own: bytes) -> None:
        self._refused = True
        body = error_body(status, message)
        assert self.transport is not None
        head = response_head(status, [], own + JSON + CLOSE, b"content-length: %d\r\n" % len(body))
        self.transport.write(head + body)
        self._linger()


def _has_no_body(head: RequestHead | None) -> bool:
    """Whether the response to this request has headers only."""
    return head is not None and head.method == b"HEAD"
