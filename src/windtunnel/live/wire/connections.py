"""Pooled HTTP/1.1 connections to servers, each with one request at a time."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

import httptools

from windtunnel.core.clock import lap_s
from windtunnel.live.wire.chunks import LAST_CHUNK, ChunkDecoder
from windtunnel.live.wire.timing import Progress

MOST_IDLE: Final = 256
IDLE_S: Final = 4.0
"""vLLM closes idle connections after 5 s, so ours are dropped before that."""
LARGEST_HEAD: Final = 256 << 10
HEAD_END: Final = b"\r\n\r\n"
COPIED: Final = 16 << 10
"""Request bodies up to this size are copied after their heads: one write is cheaper."""
BODILESS: Final = (204, 304)
"""Statuses of responses without a body, and so without framing."""
NOT_HTTP: Final = "the server's answer is not valid HTTP"
BAD_STATUS: Final = "the status of the server's answer is not between 100 and 599"


class AnswerReceiver(Progress):
    """Receives a server's response, or is notified that there is none."""

    __slots__ = ("attempt", "connection", "over")

    def __init__(self) -> None:
        super().__init__()
        self.connection: ServerConnection | None = None
        self.attempt = 0
        self.over = False

    def waits_for(self, attempt: int) -> bool:
        """Whether the connection requested in this attempt is still needed."""
        return not self.over and self.attempt == attempt

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The server has begun to respond."""
        raise NotImplementedError

    def data(self, data: bytes, chunks: bytes) -> None:
        """A piece of the response body; `chunks` is the same data as received, or empty."""
        raise NotImplementedError

    def complete(self, data: bytes, chunks: bytes) -> None:
        """The server has ended its response with this piece; `chunks` includes the last chunk."""
        raise NotImplementedError

    def broken(self, what: str) -> None:
        """The connection to the server broke or could not be opened."""
        raise NotImplementedError

    def unreachable(self, error: Exception) -> None:
        """No connection could be opened."""
        what = "it took too long" if isinstance(error, TimeoutError) else str(error)
        self.broken(f"no connection: {what}")

    def late(self) -> None:
        """The response did not begin in time, or the stream stalled."""
        raise NotImplementedError

    def client_left(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        if self.connection is not None:
            self.connection.resume()

    def drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.leave()


class ServerConnection:
    """A connection to a server, which passes what it reads to its current exchange.

    Like `ClientConnection`, it derives from none of asyncio's classes so that it can be compiled.
    """

    def __init__(self, pool: "ServerPool") -> None:
        self.transport: asyncio.Transport | None = None
        self.uses = 0
        self.idle_since_s = 0.0
        self.answering = False  # the first byte of the response has arrived
        self._pool: Final = pool
        self._exchange: AnswerReceiver | None = None
        self._parser: Final = httptools.HttpResponseParser(self)
        self._chunks: ChunkDecoder | None = None  # decodes the body instead of the parser
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: Final[list[bytes]] = []
        self._head_done = False
        self._complete = False
        self._unrequested = False  # data followed the end of the response
        self._invalid = ""  # what is wrong with its head
        self._keeps_alive = False
        self._ends_by_closing = False  # the response has no length
        self._head_is_whole = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._pool.lost(self)
        exchange = self._exchange
        if exchange is None:
            return
        self._exchange = None
        if self._ends_by_closing and error is None:
            exchange.complete(b"", b"")
        else:
            exchange.broken(str(error) if error is not None else "the server closed the connection")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Does nothing: request bodies are bounded and written at once."""

    def resume_writing(self) -> None:
        pass

    def start(self, exchange: AnswerReceiver, head: bytes, body: bytes) -> None:
        self._exchange = exchange
        self.uses += 1
        self.answering = False
        self._head_done = self._complete = self._ends_by_closing = self._unrequested = False
        self._keeps_alive = False  # until the parser reports it for this response
        self._invalid = ""
        self._head_bytes = 0
        self._chunks = None
        transport = self.transport
        assert transport is not None
        if len(body) <= COPIED:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def leave(self) -> None:
        """Detaches from the exchange and closes, which also ends a response under way."""
        self._exchange = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self._pool.unrequested()
            self.leave()
            return
        if self._chunks is not None:
            self._decode(exchange, self._chunks, data)
        else:
            self._parse(exchange, data)

    def _parse(self, exchange: AnswerReceiver, data: bytes) -> None:
        """Parses a piece of the head, or of a body with a known length."""
        self.answering = True
        try:
            if self._head_done:
                self._parser.feed_data(data)
            else:
                data = self._feed_head(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._complete:
                self._unrequested = True
            else:
                self._invalid = self._invalid or NOT_HTTP
        if self._exchange is not exchange:
            return  # the exchange left because of the head
        if self._invalid:
            self.leave()
            exchange.broken(self._invalid)
            return
        if not self._head_done:
            if self._head_bytes > LARGEST_HEAD:
                self.leave()
                exchange.broken("the head of the server's answer is too large")
            return
        if self._chunks is not None:
            if data:
                self._decode(exchange, self._chunks, data)
            return
        self._pass_on(exchange)

    def _pass_on(self, exchange: AnswerReceiver) -> None:
        """Passes on the parsed part of a body."""
        pieces = self._pieces
        if pieces:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        else:
            body = b""
        if self._complete:
            self._finish(exchange, body, b"")
        elif body:
            exchange.data(body, b"")

    def _feed_head(self, data: bytes) -> bytes:
        """Parses the head of a response; returns the data after it if it is for the chunk decoder.

        The end of a head is known only if it arrived in one piece.
        """
        self._head_is_whole = self._head_bytes == 0
        self._head_bytes += len(data)
        place, size = 0, len(data)
        while place < size and self._chunks is None:
            until = data.find(HEAD_END, place) + 4
            if until < 4:
                until = size
            self._parser.feed_data(data[place:until])
            place = until
        return data[place:]

    def _decode(self, exchange: AnswerReceiver, decoder: ChunkDecoder, data: bytes) -> None:
        try:
            body = decoder.feed(data)
        except ValueError:
            self.leave()
            exchange.broken(NOT_HTTP)
            return
        chunks = data if decoder.as_came else b""
        if decoder.done:
            self._chunks = None
            self._parser.feed_data(LAST_CHUNK)  # the parser saw an empty body
            self._unrequested = decoder.more
            self._finish(exchange, body, chunks)
        elif body:
            exchange.data(body, chunks)

    def on_message_begin(self) -> None:
        if self._complete:
            self._unrequested = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if self._unrequested or 100 <= status < 200:
            return
        if not 200 <= status <= 599:
            self._invalid = BAD_STATUS
            return
        self._head_done = True
        self._ends_by_closing = True
        for name, value in headers:
            if name == b"transfer-encoding":
                self._ends_by_closing = False
                if value == b"chunked" and self._head_is_whole and status not in BODILESS:
                    self._chunks = ChunkDecoder()
            elif name == b"content-length":
                self._ends_by_closing = False
        exchange = self._exchange
        if exchange is not None:
            exchange.head(status, headers)

    def on_body(self, data: bytes) -> None:
        if self._head_done and not self._unrequested:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._head_done and not self._complete:
            self._complete = True
            self._keeps_alive = self._parser.should_keep_alive()

    def _finish(self, exchange: AnswerReceiver, body: bytes, chunks: bytes) -> None:
        self._exchange = None
        transport = self.transport
        if transport is not None:
            if self._unrequested:
                self._pool.unrequested()
                transport.abort()
            elif self._keeps_alive:
                self._pool.release(self)
            else:
                transport.close()
        exchange.complete(body, chunks)


class ServerAddress:
    """The address of a server, and the headers of every request to it."""

    def __init__(
        self, url: str, host: str, port: int, key: str, tls: ssl.SSLContext | None
    ) -> None:
        self.url: Final = url
        self.host: Final = host
        self.port: Final = port
        self.tls: Final = tls
        self.key: Final = key
        shown = f"[{host}]" if ":" in host else host
        self.host_header: Final = f"{shown}:{port}".encode()
        self.auth: Final = f"authorization: Bearer {key}\r\n".encode() if key else b""


class ServerPool:
    """The connections to one server."""

    def __init__(
        self, address: ServerAddress, connect_s: float, unrequested: Callable[[], None]
    ) -> None:
        """`unrequested` is called when a server sends data beyond its response; the connection is
        no longer usable then."""
        self.address: Final = address
        self.open = 0
        self._connect_s: Final = connect_s
        self.unrequested: Final = unrequested
        self._idle: Final[list[ServerConnection]] = []
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def send(
        self, exchange: AnswerReceiver, head: bytes, body: bytes, *, fresh: bool = False
    ) -> None:
        """Sends a request on an idle connection or a new one; `fresh`: only on a new one."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                exchange.connection = connection
                connection.start(exchange, head, body)
                return
        task = asyncio.get_running_loop().create_task(
            self._connect(exchange, exchange.attempt, head, body)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def release(self, connection: ServerConnection) -> None:
        if len(self._idle) < MOST_IDLE and connection.transport is not None:
            connection.idle_since_s = lap_s()  # getting the loop would be a system call
            self._idle.append(connection)
        elif connection.transport is not None:
            connection.transport.close()

    def lost(self, connection: ServerConnection) -> None:
        self.open -= 1
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self, now_s: float) -> None:
        """Closes idle connections that the server is about to close."""
        old = [one for one in self._idle if now_s - one.idle_since_s > IDLE_S]
        for connection in old:
            if connection.transport is not None:
                connection.transport.close()

    def close(self) -> None:
        for connection in list(self._idle):
            if connection.transport is not None:
                connection.transport.close()

    def _new(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ServerConnection(self))

    async def _connect(
        self, exchange: AnswerReceiver, attempt: int, head: bytes, body: bytes
    ) -> None:
        address = self.address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                _, made = await loop.create_connection(
                    self._new, address.host, address.port, ssl=address.tls
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            if exchange.waits_for(attempt):
                exchange.unreachable(error)
            return
        connection = cast("ServerConnection", made)
        self.open += 1
        if not exchange.waits_for(attempt):
            self.release(connection)
            return
        exchange.connection = connection
        connection.start(exchange, head, body)
