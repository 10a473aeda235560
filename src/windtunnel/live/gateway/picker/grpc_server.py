"""A gRPC server over HTTP/2 (RFC 9113) with what Envoy's calls need, and no task per call.

Each message of a call goes to its handler as it arrives, and what the handler writes is sent in the
same turn of the event loop. Memory is bounded: while a peer does not read responses, neither its
calls nor its connection get more flow-control window.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from windtunnel.live.gateway.picker.hpack import LONGEST_LIST, HeaderDecoder, encode
from windtunnel.live.wire.timing import Deadlines

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES: Final = 16384
"""The largest frame that either side sends; HTTP/2's default."""
WINDOW: Final = 1 << 20
"""Bytes that a call may receive before its window is extended."""
CONNECTION_WINDOW: Final = 16 << 20
DEFAULT_WINDOW: Final = 65535
LARGEST_WINDOW: Final = (1 << 31) - 1
LARGEST_MESSAGE: Final = 4 << 20
PIECE_BYTES: Final = 32
"""Overhead counted for each frame of a header block, so that even empty frames are limited."""

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_HEADER_LIST_SIZE: Final = 6

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
FRAME_SIZE_ERROR: Final = 6
COMPRESSION_ERROR: Final = 9

OK: Final = 0
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12

ANSWER_HEAD: Final = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])


class ConnectionFault(Exception):
    """The peer violated the protocol: the connection ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code: Final = code


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload) << 48 | kind << 40 | flags << 32 | stream
    return head.to_bytes(9, "big") + payload


CallHandler = tuple[Callable[[bytes], None], Callable[[], None]]
"""Two callbacks: one for each message of a call, in order; and one for the end of messages, called
once when the peer has ended the call or is gone."""


class GrpcCall:
    """A call on a connection: its incomplete incoming message, and messages not yet sent."""

    def __init__(self, connection: "GrpcConnection", number: int, window: int) -> None:
        self.handler: CallHandler | None = None
        self.number: Final = number
        self.window = window  # bytes that the peer accepts
        self.received = 0  # bytes since the window was last extended
        self.held: Final = bytearray()  # the start of an incomplete message
        self.needed = 0  # bytes that must be held before it can be read further
        self.waiting: Final[deque[bytes]] = deque()  # messages beyond the peer's window
        self.waiting_sent = 0  # bytes of the first of them already sent
        self.begun = False  # the response headers were sent
        self.peer_ended = False
        self.status = -1  # the final status, sent once no message waits
        self.over = False
        self._connection: Final = connection

    def write(self, message: bytes) -> None:
        if self.status < 0 and not self.over:
            self._connection.send(self, b"\x00" + len(message).to_bytes(4, "big") + message)

    def finish(self, status: int = OK) -> None:
        """Ends the call from this side."""
        if self.status < 0 and not self.over:
            self.status = status
            if not self.waiting:
                self._connection.end(self)


class GrpcService:
    """All connections; `handler_of` returns the handler for a call to a path, or None."""

    def __init__(
        self,
        handler_of: Callable[[bytes, GrpcCall], CallHandler | None],
        most_calls: int,
        greeting_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self.handler_of: Final = handler_of
        self.most_calls: Final = most_calls
        self.calls = 0
        self.connections: Final[dict[GrpcConnection, None]] = {}
        self.now_s: Final = now_s
        self.silent: Final = Deadlines[GrpcConnection](greeting_s)

    def sweep(self, now_s: float) -> None:
        """Closes connections on which no call has begun in time."""
        for connection in self.silent.expired(now_s):
            connection.close(NO_ERROR)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close(NO_ERROR)


class GrpcConnection:
    """One HTTP/2 connection; it derives from no class of asyncio so that it can be compiled."""

    def __init__(self, service: GrpcService) -> None:
        self._service: Final = service
        self._transport: asyncio.Transport | None = None
        self._calls: Final[dict[int, GrpcCall]] = {}
        self._decoder: Final = HeaderDecoder()
        self._data = b""
        self._greeted = False
        self._last = 0  # number of the newest call
        self._window = DEFAULT_WINDOW  # bytes that the peer accepts on all calls together
        self._call_window = DEFAULT_WINDOW  # and on each new call
        self._received = 0
        self._block: list[bytes] = []  # an incomplete header block
        self._block_bytes = 0
        self._block_call = 0
        self._block_ends = False
        self._blocked: Final[dict[GrpcCall, None]] = {}

    # asyncio's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        service = self._service
        if len(service.connections) >= service.most_calls:
            self._transport.abort()
            return
        service.connections[self] = None
        service.silent.add(self, service.now_s())
        settings = b""
        for name, value in (
            (MAX_CONCURRENT_STREAMS, service.most_calls + 1),  # one too many gets a status
            (INITIAL_WINDOW_SIZE, WINDOW),
            (MAX_HEADER_LIST_SIZE, LONGEST_LIST),
        ):
            settings += name.to_bytes(2, "big") + value.to_bytes(4, "big")
        more = (CONNECTION_WINDOW - DEFAULT_WINDOW).to_bytes(4, "big")
        self._write(frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, more))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._leave()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._data:
            data = self._data + data
        try:
            place = self._frames(data, 0 if self._greeted else self._greeting(data))
        except ConnectionFault as fault:
            self.close(fault.code)
        else:
            self._data = data[place:] if place < len(data) else b""

    def _greeting(self, data: bytes) -> int:
        """The position of the first frame, once the preface has arrived."""
        if not data.startswith(PREFACE[: len(data)]):
            raise ConnectionFault(PROTOCOL_ERROR)
        if len(data) < len(PREFACE):
            return 0
        self._greeted = True
        return len(PREFACE)

    def _frames(self, data: bytes, place: int) -> int:
        """Processes whole frames; returns the position of the first incomplete one."""
        size = len(data)
        while self._greeted and size - place >= 9 and self._transport is not None:
            length = data[place] << 16 | data[place + 1] << 8 | data[place + 2]
            if length > FRAME_BYTES:
                raise ConnectionFault(FRAME_SIZE_ERROR)
            until = place + 9 + length
            if until > size:
                break
            number = int.from_bytes(data[place + 5 : place + 9], "big") & LARGEST_WINDOW
            self._frame(data[place + 3], data[place + 4], number, data[place + 9 : until])
            place = until
        return place

    def close(self, code: int) -> None:
        """Sends the peer the reason, and closes the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            payload = self._last.to_bytes(4, "big") + code.to_bytes(4, "big")
            transport.write(frame(GOAWAY, 0, 0, payload))
            transport.close()
            self._leave()

    def _leave(self) -> None:
        self._service.connections.pop(self, None)
        self._service.silent.remove(self)
        for call in list(self._calls.values()):
            self._drop(call)

    # Frames.

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block_call and (kind != CONTINUATION or number != self._block_call):
            raise ConnectionFault(PROTOCOL_ERROR)
        if kind == DATA:
            self._on_data(flags, number, payload)
        elif kind == WINDOW_UPDATE:
            self._on_window(number, payload)
        elif kind == HEADERS:
            self._on_headers(flags, number, payload)
        elif kind == CONTINUATION:
            if not self._block_call:
                raise ConnectionFault(PROTOCOL_ERROR)
            self._on_block(flags, payload)
        elif kind == SETTINGS:
            self._on_settings(flags, number, payload)
        else:
            self._on_control(kind, flags, number, payload)

    def _on_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == RST_STREAM:
            if number == 0 or number > self._last or len(payload) != 4:
                raise ConnectionFault(PROTOCOL_ERROR)
            call = self._calls.get(number)
            if call is not None:
                self._drop(call)
        elif kind == PING:
            if len(payload) != 8:
                raise ConnectionFault(FRAME_SIZE_ERROR)
            if not flags & ACK:
                self._write(frame(PING, ACK, 0, payload))
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        if number == 0 or number > self._last:
            raise ConnectionFault(PROTOCOL_ERROR)
        self._received += size
        if self._received > CONNECTION_WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR)
        if self._received >= CONNECTION_WINDOW // 2:
            self._write(frame(WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
            self._received = 0
        call = self._calls.get(number)
        if call is None:
            return  # it has ended, and the peer did not know yet
        call.received += size
        if call.received > WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR)
        if flags & PADDED:
            payload = _unpadded(payload)
        self._messages(call, payload)
        if flags & END_STREAM:
            self._half_closed(call)
        elif not call.over:
            self._give_room(call)

    def _messages(self, call: GrpcCall, data: bytes) -> None:
        """Passes whole messages to the handler."""
        if call.status >= 0:
            return  # only its responses remain to be sent
        held = call.held
        if held:
            held += data
            if len(held) < call.needed:
                return
            data = bytes(held)
            held.clear()
        place, size, needed = 0, len(data), 5
        while size - place >= 5 and call.status < 0 and call.handler is not None:
            until = place + 5 + int.from_bytes(data[place + 1 : place + 5], "big")
            if data[place] != 0 or until - place > LARGEST_MESSAGE:
                call.finish(UNIMPLEMENTED if data[place] else RESOURCE_EXHAUSTED)
                return
            if until > size:
                needed = until - place
                break
            call.handler[0](data[place + 5 : until])
            place = until
        if place < size:
            held += data[place:]
            call.needed = needed

    def _give_room(self, call: GrpcCall) -> None:
        if call.received >= WINDOW // 2 and not call.waiting:
            self._write(frame(WINDOW_UPDATE, 0, call.number, call.received.to_bytes(4, "big")))
            call.received = 0

    def _on_window(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR)
        more = int.from_bytes(payload, "big") & LARGEST_WINDOW
        if more == 0:
            raise ConnectionFault(PROTOCOL_ERROR)
        if number == 0:
            self._window += more
            if self._window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR)
            for call in list(self._blocked):
                self._flush(call)
            return
        one = self._calls.get(number)
        if one is not None:
            one.window += more
            if one.window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR)
            self._flush(one)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number != 0:
            raise ConnectionFault(PROTOCOL_ERROR)
        if flags & ACK:
            return
        if len(payload) % 6:
            raise ConnectionFault(FRAME_SIZE_ERROR)
        for place in range(0, len(payload), 6):
            name = int.from_bytes(payload[place : place + 2], "big")
            value = int.from_bytes(payload[place + 2 : place + 6], "big")
            if name == INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise ConnectionFault(FLOW_CONTROL_ERROR)
                for call in list(self._calls.values()):
                    call.window += value - self._call_window
                self._call_window = value
        self._write(frame(SETTINGS, ACK, 0, b""))
        for call in list(self._blocked):
            self._flush(call)

    # Calls.

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if number % 2 == 0:
            raise ConnectionFault(PROTOCOL_ERROR)
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & PRIORITY:
            payload = payload[5:]
        self._block, self._block_bytes, self._block_call = [], 0, number
        self._block_ends = bool(flags & END_STREAM)
        self._on_block(flags, payload)

    def _on_block(self, flags: int, payload: bytes) -> None:
        self._block_bytes += len(payload) + PIECE_BYTES
        if self._block_bytes > LONGEST_LIST:
            raise ConnectionFault(COMPRESSION_ERROR)
        self._block.append(payload)
        if not flags & END_HEADERS:
            return
        number, block = self._block_call, self._block
        self._block_call, self._block = 0, []
        try:
            headers = self._decoder.decode(b"".join(block))
        except ValueError:
            raise ConnectionFault(COMPRESSION_ERROR) from None
        if number > self._last:
            self._last = number
            self._service.silent.remove(self)
            self._begin(number, headers)
        call = self._calls.get(number)
        if call is not None and self._block_ends:
            self._half_closed(call)

    def _begin(self, number: int, headers: list[tuple[bytes, bytes]]) -> None:
        service = self._service
        call = GrpcCall(self, number, self._call_window)
        self._calls[number] = call
        service.calls += 1
        if service.calls > service.most_calls:
            call.finish(RESOURCE_EXHAUSTED)
            return
        path = b""
        for name, value in headers:
            if name == b":path":
                path = value
        call.handler = service.handler_of(path, call)
        if call.handler is None:
            call.finish(UNIMPLEMENTED)

    def _half_closed(self, call: GrpcCall) -> None:
        """The peer has ended its side; the call ends when everything is sent."""
        call.peer_ended = True
        self._tell(call)
        call.finish(OK)

    def _drop(self, call: GrpcCall) -> None:
        """Drops a call that has ended or that the peer has cancelled."""
        self._forget(call)
        self._tell(call)

    def _tell(self, call: GrpcCall) -> None:
        handler, call.handler = call.handler, None
        if handler is not None:
            handler[1]()

    def _forget(self, call: GrpcCall) -> None:
        if self._calls.pop(call.number, None) is not None:
            self._service.calls -= 1
        self._blocked.pop(call, None)
        call.over = True

    # Answers.

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Sends a length-prefixed message, as far as the peer's window allows."""
        if call.waiting:
            call.waiting.append(message)
            return
        head = b""
        if not call.begun:
            call.begun = True
            head = frame(HEADERS, END_HEADERS, call.number, ANSWER_HEAD)
        size = len(message)
        if size <= FRAME_BYTES and size <= call.window and size <= self._window:
            call.window -= size
            self._window -= size
            self._write(head + frame(DATA, 0, call.number, message))
            return
        if head:
            self._write(head)
        call.waiting.append(message)
        self._flush(call)

    def _flush(self, call: GrpcCall) -> None:
        """Sends waiting messages, as far as the window allows."""
        waiting = call.waiting
        while waiting:
            room = min(FRAME_BYTES, call.window, self._window)
            if room <= 0:
                self._blocked[call] = None
                return
            message, place = waiting[0], call.waiting_sent
            piece = message[place : place + room]
            call.waiting_sent = place + len(piece)
            if call.waiting_sent == len(message):
                waiting.popleft()
                call.waiting_sent = 0
            call.window -= len(piece)
            self._window -= len(piece)
            self._write(frame(DATA, 0, call.number, piece))
        self._blocked.pop(call, None)
        if call.status >= 0:
            self.end(call)
        else:
            self._give_room(call)

    def end(self, call: GrpcCall) -> None:
        """Sends the status of a call whose messages were all sent."""
        block = encode([(b"grpc-status", b"%d" % call.status)])
        if not call.begun:
            block = ANSWER_HEAD + block
        last = frame(HEADERS, END_HEADERS | END_STREAM, call.number, block)
        if not call.peer_ended:
            last += frame(RST_STREAM, 0, call.number, NO_ERROR.to_bytes(4, "big"))
        self._write(last)
        self._drop(call)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR)
    return payload[1 : len(payload) - payload[0]]
