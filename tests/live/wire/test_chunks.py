"""Chunked answers: what the decoder accepts, the HTTP parser reads in the same way."""

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.live.wire.chunks import (
    LONGEST_LINE,
    MOST_TRAILERS,
    NOT_CHUNKS,
    ChunkDecoder,
)

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Parsed:
    """What httptools finds in a body; None: it refuses it."""

    def __init__(self) -> None:
        self.body = b""
        self.done = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.done = True


def parsed(data: bytes) -> bytes | None:
    found = Parsed()
    parser = httptools.HttpResponseParser(found)
    parser.feed_data(HEAD)
    try:
        parser.feed_data(data)
    except httptools.HttpParserError:
        if not found.done:
            return None
    return found.body if found.done else None


def decoded(pieces: list[bytes]) -> tuple[bytes, ChunkDecoder]:
    decoder = ChunkDecoder()
    body = b""
    for piece in pieces:
        if piece and not decoder.done:
            body += decoder.feed(piece)
    return body, decoder


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted(place % (len(data) + 1) for place in places)
    return [data[a:b] for a, b in zip([0, *marks], [*marks, len(data)], strict=True)]


chunked = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
places = st.lists(st.integers(0, 1000), max_size=8)
ends = st.sampled_from([b"0\r\n\r\n", b"000\r\nx: 1\r\n\r\n", b"0;a=b\r\n\r\n"])


@given(chunked, ends, st.sampled_from([b"", b";a", b";b=c;d"]), places)
def test_a_body_is_the_same_wherever_it_is_cut(
    parts: list[bytes], end: bytes, extension: bytes, marks: list[int]
) -> None:
    data = b"".join(b"%x%b\r\n%b\r\n" % (len(one), extension, one) for one in parts) + end
    body, decoder = decoded(cut(data, marks))
    assert (body, decoder.done, decoder.more) == (b"".join(parts), True, False)
    assert parsed(data) == body


@given(chunked, places)
def test_what_may_pass_as_it_came_is_a_body_of_the_same_bytes(
    parts: list[bytes], marks: list[int]
) -> None:
    data = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n"
    decoder = ChunkDecoder()
    written = b""
    for piece in cut(data, marks):
        body = decoder.feed(piece) if piece else b""
        if piece and decoder.as_came:
            written += piece
        elif body:
            written += b"%x\r\n%b\r\n" % (len(body), body)
        if decoder.done and not decoder.as_came:
            written += b"0\r\n\r\n"
    assert parsed(written) == b"".join(parts)
    assert ChunkDecoder().feed(data) == b"".join(parts)


letters = st.sampled_from([*b"0123afAFxgX+- \t;\r\n\x00\xff", *b"\r\n\r\n"])


@given(chunked, st.lists(st.tuples(st.integers(0, 300), letters), max_size=4), places)
def test_what_it_accepts_the_parser_reads_in_the_same_way(
    parts: list[bytes], changes: list[tuple[int, int]], marks: list[int]
) -> None:
    data = bytearray(b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n")
    for place, letter in changes:
        data[place % len(data)] = letter
    try:
        body, decoder = decoded(cut(bytes(data), marks))
    except ValueError:
        return
    if decoder.done:
        assert parsed(bytes(data)) == body


WRONG = {
    "no size": b"\r\n",
    "letter": b"g\r\n",
    "prefix": b"0x5\r\nhello\r\n",
    "sign": b"+5\r\nhello\r\n",
    "space": b" 5\r\nhello\r\n",
    "too much": b"5\r\nhello!\r\n",
    "line feeds": b"5\r\nhello\n\n",
    "extension alone": b";a\r\n",
    "huge": b"5" * 13 + b"\r\n",
    "endless line": b"1" * (LONGEST_LINE + 1),
    "many trailers": b"0\r\n" + b"a: b\r\n" * MOST_TRAILERS,
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_chunks_is_refused(what: str) -> None:
    data = WRONG[what]
    with pytest.raises(ValueError, match=NOT_CHUNKS):
        ChunkDecoder().feed(data)


def test_bytes_after_the_end_are_reported() -> None:
    decoder = ChunkDecoder()
    found: Any = decoder.feed(b"1\r\nx\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert (found, decoder.done, decoder.more, decoder.as_came) == (b"x", True, True, False)
