"""The picker's gRPC server: frames as RFC 9113 has them, and what becomes of peers that err."""

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.live.gateway.picker import grpc_server as h2
from windtunnel.live.gateway.picker.grpc_server import (
    GrpcCall,
    GrpcConnection,
    GrpcService,
    frame,
)
from windtunnel.live.gateway.picker.hpack import HeaderDecoder, encode

CALL = encode([(b":method", b"POST"), (b":path", b"/echo"), (b"te", b"trailers")])


class Wire:
    """A transport that keeps what is written to it, as frames."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, call and payload of what was written since the last look."""
        found, data = [], self.data
        self.data = b""
        while data:
            size = int.from_bytes(data[:3], "big")
            number = int.from_bytes(data[5:9], "big")
            found.append((data[3], data[4], number, data[9 : 9 + size]))
            data = data[9 + size :]
        return found


class Peer:
    """A client of an echo service, with what the service saw."""

    def __init__(
        self,
        *,
        most_calls: int = 10,
        greets: bool = True,
        handler_of: Callable[[bytes, GrpcCall], Any] | None = None,
    ) -> None:
        self.seen: list[bytes] = []
        self.closed = 0
        self.now_s = 0.0
        self.calls: list[GrpcCall] = []
        self.service = GrpcService(
            handler_of or self._handler_of, most_calls, 5.0, lambda: self.now_s
        )
        self.connection = GrpcConnection(self.service)
        self.wire = Wire()
        self.connection.connection_made(cast("asyncio.Transport", self.wire))
        if greets:
            self.give(h2.PREFACE + frame(h2.SETTINGS, 0, 0, b""))
            kinds = [one[0] for one in self.wire.frames()]
            assert kinds == [h2.SETTINGS, h2.WINDOW_UPDATE, h2.SETTINGS]

    def _handler_of(self, path: bytes, call: GrpcCall) -> Any:
        if path != b"/echo":
            return None
        self.calls.append(call)

        def message(data: bytes) -> None:
            self.seen.append(data)
            call.write(data)

        def closed() -> None:
            self.closed += 1

        return message, closed

    def give(self, data: bytes) -> None:
        self.connection.data_received(data)

    def begin(self, number: int = 1, block: bytes = CALL) -> None:
        self.give(frame(h2.HEADERS, h2.END_HEADERS, number, block))

    def fault(self) -> int:
        """The code with which the connection was ended."""
        kind, _, _, payload = self.wire.frames()[-1]
        assert kind == h2.GOAWAY
        assert self.wire.closed
        assert not self.service.connections
        assert self.service.calls == 0
        return int.from_bytes(payload[4:8], "big")


def message(data: bytes) -> bytes:
    return b"\x00" + len(data).to_bytes(4, "big") + data


def test_messages_come_back_and_the_call_ends_with_its_status() -> None:
    peer = Peer()
    peer.begin()
    peer.give(frame(h2.DATA, 0, 1, message(b"one") + message(b"")))
    peer.give(frame(h2.DATA, h2.END_STREAM, 1, message(b"two")))
    head, *data, last = peer.wire.frames()
    assert HeaderDecoder().decode(head[3])[0] == (b":status", b"200")
    assert [one[3] for one in data] == [message(b"one"), message(b""), message(b"two")]
    assert last[1] == h2.END_HEADERS | h2.END_STREAM
    assert HeaderDecoder().decode(last[3]) == [(b"grpc-status", b"0")]
    assert peer.closed == 1
    assert peer.service.calls == 0


@given(
    st.lists(st.binary(max_size=400), max_size=6),
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    st.integers(1, 50),
)
def test_messages_are_the_same_however_they_are_cut(
    sent: list[bytes], cuts: list[int], size: int
) -> None:
    """In frames of any size, and in reads of any size."""
    peer = Peer(greets=False)
    stream = b"".join(message(one) for one in sent)
    data = h2.PREFACE + frame(h2.SETTINGS, 0, 0, b"")
    data += frame(h2.HEADERS, 0, 1, CALL[:5]) + frame(h2.CONTINUATION, 0, 1, CALL[5:9])
    data += frame(h2.CONTINUATION, h2.END_HEADERS, 1, CALL[9:])
    for place in range(0, len(stream), size):
        padded = b"\x03" + stream[place : place + size] + b"\x00" * 3
        data += frame(h2.DATA, h2.PADDED, 1, padded)
    while data:
        cut = cuts[len(data) % len(cuts)]
        peer.give(data[:cut])
        data = data[cut:]
    assert peer.seen == sent
    peer.give(frame(h2.DATA, h2.END_STREAM, 1, b""))
    answered = b"".join(one[3] for one in peer.wire.frames() if one[0] == h2.DATA)
    assert answered == stream
    assert peer.closed == 1


def window(size: int) -> bytes:
    setting = h2.INITIAL_WINDOW_SIZE.to_bytes(2, "big") + size.to_bytes(4, "big")
    return frame(h2.SETTINGS, 0, 0, setting)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30), st.integers(0, 3000))
def test_no_more_is_sent_than_the_peer_has_room_for(rooms: list[int], first: int) -> None:
    peer = Peer()
    peer.give(window(first))
    peer.begin()
    whole = message(bytes(20_000))
    for place in range(0, len(whole), 4000):
        last = h2.END_STREAM if place + 4000 >= len(whole) else 0
        peer.give(frame(h2.DATA, last, 1, whole[place : place + 4000]))
    room, sent, ended = first, 0, False
    for more in [0, *rooms]:
        if more:
            room += more
            peer.give(frame(h2.WINDOW_UPDATE, 0, 1, more.to_bytes(4, "big")))
        for kind, flags, _, payload in peer.wire.frames():
            sent += len(payload) if kind == h2.DATA else 0
            ended = ended or (kind == h2.HEADERS and bool(flags & h2.END_STREAM))
        assert sent == min(room, len(whole))
        assert ended == (sent == len(whole))
        if ended:
            break
    assert peer.closed == 1


def test_a_call_whose_answers_wait_gets_no_room_for_more() -> None:
    peer = Peer()
    peer.give(window(0))
    peer.begin()
    piece = message(bytes(16_000))
    sent = 0
    while sent + len(piece) <= h2.WINDOW:
        peer.give(frame(h2.DATA, 0, 1, piece))
        sent += len(piece)
    given_room = [one for one in peer.wire.frames() if one[0] == h2.WINDOW_UPDATE and one[2] == 1]
    assert not given_room
    peer.give(window(1 << 30))
    connection = (1 << 30).to_bytes(4, "big")
    peer.give(frame(h2.WINDOW_UPDATE, 0, 0, connection))
    (room,) = [one for one in peer.wire.frames() if one[0] == h2.WINDOW_UPDATE and one[2] == 1]
    assert int.from_bytes(room[3], "big") == sent


def test_a_frame_does_not_copy_what_is_held_of_its_message() -> None:
    """The memory at its peak shows a copy, were it made for one frame only."""
    peer = Peer()
    peer.begin()
    sent = bytes(h2.LARGEST_MESSAGE - 5)
    whole = message(sent)
    small = len(whole) - 1000
    tracemalloc.start()
    try:
        for place in range(0, small, h2.FRAME_BYTES):
            piece = whole[place : min(place + h2.FRAME_BYTES, small)]
            peer.give(frame(h2.DATA, 0, 1, piece))
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for place in range(small, len(whole) - 1):
            peer.give(frame(h2.DATA, 0, 1, whole[place : place + 1]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert before > small
    assert peak - before < h2.LARGEST_MESSAGE // 4  # what is held may grow by an eighth
    assert not peer.seen
    peer.give(frame(h2.DATA, 0, 1, whole[-1:]))
    assert peer.seen == [sent]


def test_room_for_a_byte_does_not_copy_the_rest_of_an_answer() -> None:
    """The memory at its peak shows a copy, were it made for one frame only."""
    peer = Peer()
    peer.begin()
    sent = bytes(range(256)) * (1 << 12)
    tracemalloc.start()
    try:
        peer.calls[0].write(sent)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            peer.give(window(1) + frame(h2.WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < len(sent) // 4
    peer.give(window(1 << 30) + frame(h2.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
    got = b"".join(one[3] for one in peer.wire.frames() if one[0] == h2.DATA)
    assert got[5:] == sent


def test_a_finished_call_whose_answer_waits_gets_no_more_messages() -> None:
    seen: list[bytes] = []
    closed: list[int] = []

    def handler_of(path: bytes, call: GrpcCall) -> Any:
        def once(data: bytes) -> None:
            seen.append(data)
            call.write(data)
            call.finish()

        return once, lambda: closed.append(call.number)

    peer = Peer(handler_of=handler_of)
    peer.give(window(0))
    peer.begin()
    peer.give(frame(h2.DATA, 0, 1, message(b"one") + message(b"two")))
    peer.give(frame(h2.DATA, 0, 1, message(b"three")))
    assert seen == [b"one"]
    peer.wire.frames()
    peer.give(window(100))
    _, data, last, reset = peer.wire.frames()
    assert data[3] == message(b"one")
    assert HeaderDecoder().decode(last[3]) == [(b"grpc-status", b"0")]
    assert reset[0] == h2.RST_STREAM
    assert closed == [1]


def test_a_reset_call_is_closed_once_and_what_still_comes_is_dropped() -> None:
    peer = Peer()
    peer.begin()
    peer.give(frame(h2.RST_STREAM, 0, 1, bytes(4)))
    peer.give(frame(h2.DATA, h2.END_STREAM, 1, message(b"late")))
    peer.calls[0].write(b"late")
    peer.calls[0].finish()
    assert peer.closed == 1
    assert not peer.seen
    assert not peer.wire.frames()


def test_calls_on_a_lost_connection_are_closed() -> None:
    peer = Peer()
    peer.begin(1)
    peer.begin(3)
    peer.connection.connection_lost(None)
    assert peer.closed == 2
    assert peer.service.calls == 0
    assert not peer.service.connections


def test_one_call_too_many_and_an_unknown_path_end_with_their_status() -> None:
    peer = Peer(most_calls=1)
    peer.begin(1, encode([(b":path", b"/other")]))
    peer.begin(3)
    peer.begin(5)
    ends = [HeaderDecoder().decode(one[3]) for one in peer.wire.frames() if one[0] == h2.HEADERS]
    assert [one[-1] for one in ends] == [(b"grpc-status", b"12"), (b"grpc-status", b"8")]
    assert peer.service.calls == 1


def test_a_ping_is_answered() -> None:
    peer = Peer()
    peer.give(frame(h2.PING, 0, 0, b"12345678"))
    assert peer.wire.frames() == [(h2.PING, h2.ACK, 0, b"12345678")]


def test_a_connection_without_a_call_is_closed_in_time() -> None:
    peer = Peer(greets=False)
    peer.service.sweep(4.9)
    assert not peer.wire.is_closing()
    peer.service.sweep(5.1)
    assert peer.wire.is_closing()
    busy = Peer()
    busy.begin()
    busy.service.sweep(100.0)
    assert not busy.wire.closed


def _too_much(peer: Peer) -> None:
    """More than there is room for while answers wait."""
    peer.give(window(0))
    for _ in range(h2.WINDOW // 16_000 + 1):
        peer.give(frame(h2.DATA, 0, 1, message(bytes(16_000 - 5))))


def _endless_headers(peer: Peer) -> None:
    peer.give(frame(h2.HEADERS, 0, 3, b""))
    for _ in range(10_000):
        if not peer.wire.closed:
            peer.give(frame(h2.CONTINUATION, 0, 3, b""))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\xff" * 9, h2.FRAME_SIZE_ERROR),
        (frame(h2.DATA, 0, 9, b""), h2.PROTOCOL_ERROR),
        (frame(h2.DATA, h2.PADDED, 1, b"\x05abc"), h2.PROTOCOL_ERROR),
        (frame(h2.HEADERS, h2.END_HEADERS, 2, CALL), h2.PROTOCOL_ERROR),
        (frame(h2.HEADERS, h2.END_HEADERS, 3, b"\xff"), h2.COMPRESSION_ERROR),
        (frame(h2.HEADERS, 0, 3, CALL) + frame(h2.DATA, 0, 1, b""), h2.PROTOCOL_ERROR),
        (frame(h2.CONTINUATION, 0, 1, b""), h2.PROTOCOL_ERROR),
        (frame(h2.WINDOW_UPDATE, 0, 1, bytes(4)), h2.PROTOCOL_ERROR),
        (frame(h2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), h2.FLOW_CONTROL_ERROR),
        (frame(h2.SETTINGS, 0, 0, b"123"), h2.FRAME_SIZE_ERROR),
        (window(1 << 31), h2.FLOW_CONTROL_ERROR),
        (frame(h2.PING, 0, 0, b"1"), h2.FRAME_SIZE_ERROR),
        (frame(h2.PUSH_PROMISE, 0, 1, b""), h2.PROTOCOL_ERROR),
        (frame(h2.RST_STREAM, 0, 7, bytes(4)), h2.PROTOCOL_ERROR),
        (_endless_headers, h2.COMPRESSION_ERROR),
        (_too_much, h2.FLOW_CONTROL_ERROR),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_and_left(
    sent: bytes | Callable[[Peer], None], code: int
) -> None:
    peer = Peer()
    peer.begin()
    peer.wire.frames()
    if isinstance(sent, bytes):
        peer.give(sent)
    else:
        sent(peer)
    assert peer.fault() == code
    assert peer.closed == 1


def test_what_is_not_http_2_is_left_at_once() -> None:
    peer = Peer(greets=False)
    peer.wire.frames()
    peer.give(b"GET / HTTP/1.1\r\n")
    assert peer.fault() == h2.PROTOCOL_ERROR


def test_a_compressed_message_and_one_that_is_too_large_end_the_call() -> None:
    peer = Peer()
    for number, start in ((1, b"\x01\x00\x00\x00\x01x"), (3, b"\x00\x7f\xff\xff\xff")):
        peer.begin(number)
        peer.give(frame(h2.DATA, 0, number, start))
    ends = [HeaderDecoder().decode(one[3]) for one in peer.wire.frames() if one[0] == h2.HEADERS]
    assert [one[-1] for one in ends] == [(b"grpc-status", b"12"), (b"grpc-status", b"8")]
    assert peer.closed == 2


# Headers.


def test_headers_are_those_of_the_specification() -> None:
    """RFC 7541, C.4: requests with Huffman codes, which share a table."""
    decoder = HeaderDecoder()
    first = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
    ]
    block = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
    assert decoder.decode(block) == first
    block = bytes.fromhex("828684be5886a8eb10649cbf")
    assert decoder.decode(block) == [*first, (b"cache-control", b"no-cache")]
    block = bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    assert decoder.decode(block) == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ]


def test_the_table_of_headers_forgets_the_oldest() -> None:
    """RFC 7541, C.6: answers, in a table of 256 bytes."""
    decoder = HeaderDecoder()
    block = "3fe101488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff"
    block += "6e919d29ad171863c78f0b97c8e9ae82ae43d3"
    status, control, date, location = decoder.decode(bytes.fromhex(block))
    assert status == (b":status", b"302")
    assert control == (b"cache-control", b"private")
    assert date == (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
    assert location == (b"location", b"https://www.example.com")
    assert decoder.decode(bytes.fromhex("4883640effc1c0bf")) == [
        (b":status", b"307"),
        control,
        date,
        location,
    ]
    with pytest.raises(ValueError, match="HPACK"):
        decoder.decode(b"\xc1\xc2")  # the first status was forgotten


@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=300)), max_size=10))
def test_headers_that_are_written_are_read(headers: list[tuple[bytes, bytes]]) -> None:
    assert HeaderDecoder().decode(encode(headers)) == headers


@given(st.binary(max_size=200))
def test_any_bytes_are_headers_or_a_fault(data: bytes) -> None:
    decoder = HeaderDecoder()
    try:
        found = decoder.decode(data)
    except ValueError:
        return
    assert all(isinstance(name, bytes) and isinstance(value, bytes) for name, value in found)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # entry 0
        b"\xff\xff\xff\xff\xff\xff\x01",  # a number without end
        b"\x00\x05ab",  # a text that is cut
        b"\x00\x81\x00\x00",  # padding that is not ones
        b"\x00\x84\xff\xff\xff\xff\x00",  # the end of a text, written out
        b"\x3f\xe2\x1f",  # a table larger than was allowed
        b"\x82\x20",  # a table that changes after a header
    ],
)
def test_what_hpack_forbids_is_a_fault(block: bytes) -> None:
    with pytest.raises(ValueError, match="HPACK"):
        HeaderDecoder().decode(block)


def test_a_list_of_headers_has_a_limit() -> None:
    """A short block can stand for a long list: an entry of the table, again and again."""
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x7f\xa1\x1d" + b"x" * 3872)
    with pytest.raises(ValueError, match="HPACK"):
        decoder.decode(b"\xbe" * 100)
