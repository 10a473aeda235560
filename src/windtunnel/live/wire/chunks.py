"""Decodes chunked response bodies, and tells whether they can be passed on unchanged."""

import re
from typing import Final

CRLF: Final = b"\r\n"
CR: Final = 13
LF: Final = 10
SEMICOLON: Final = 59
LAST_CHUNK: Final = b"0\r\n\r\n"
LONGEST_LINE: Final = 4096
MOST_DIGITS: Final = 12
MOST_TRAILERS: Final = 64
EXTENSION: Final = re.compile(rb"(;[A-Za-z0-9_-]+(=[A-Za-z0-9_-]+)?)+")
TRAILER: Final = re.compile(rb"[A-Za-z0-9_-]+:[\t\x20-\x7e]*")
NOT_CHUNKS: Final = "this is not a body in chunks"


class ChunkDecoder:
    """Decodes the chunked body of one response. Raises ValueError if it is malformed."""

    __slots__ = ("_ends", "_held", "_left", "_trailers", "as_came", "done", "more")

    def __init__(self) -> None:
        self.done = False  # the last chunk and its trailers have arrived
        self.more = False  # more bytes followed them
        self.as_came = False
        """Whether the last input was whole chunks and nothing else, so that it can be passed on."""
        self._held = b""  # the start of an incomplete line
        self._left = 0  # bytes of the current chunk still to come
        self._ends = False  # the line end after a chunk's data is next
        self._trailers = 0

    def feed(self, data: bytes) -> bytes:
        """Decodes data; returns the part of the body in it."""
        self.as_came = not (self._left or self._ends or self._held or self._trailers)
        if self._held:
            data = self._held + data
            self._held = b""
        found: list[bytes] = []
        size = len(data)
        place = 0
        while place < size:
            if self._left > 0:
                until = min(place + self._left, size)
                found.append(data[place:until])
                self._left -= until - place
                self._ends = self._left == 0
            elif self._ends:
                until = self._line_end(data, place)
            elif self._trailers:
                until = self._trailer(data, place)
            else:
                until = self._size(data, place)
            if until < 0:  # the line is incomplete
                self._held = data[place:]
                if size - place > LONGEST_LINE:
                    raise ValueError(NOT_CHUNKS)
                break
            place = until
        if self._left or self._ends or self._held or (self._trailers and not self.done):
            self.as_came = False
        return found[0] if len(found) == 1 else b"".join(found)

    def _line_end(self, data: bytes, place: int) -> int:
        """The position after the line end behind a chunk's data; below 0 if it is incomplete."""
        if place + 2 > len(data):
            return -1
        if data[place] != CR or data[place + 1] != LF:
            raise ValueError(NOT_CHUNKS)
        self._ends = False
        return place + 2

    def _size(self, data: bytes, place: int) -> int:
        """The position after the line with a chunk's size; below 0 if it is incomplete."""
        size, end, number, letter = len(data), place, 0, 0
        while end < size and end - place <= MOST_DIGITS:
            letter = data[end]
            if 48 <= letter <= 57:
                number = number * 16 + letter - 48
            elif 97 <= letter <= 102:
                number = number * 16 + letter - 87
            elif 65 <= letter <= 70:
                number = number * 16 + letter - 55
            else:
                break
            end += 1
        if end < size and (end == place or letter not in (CR, SEMICOLON)):
            raise ValueError(NOT_CHUNKS)
        if letter == SEMICOLON:
            end = self._extension(data, end)
        if end < 0 or end + 2 > size:
            return -1
        if data[end + 1] != LF:
            raise ValueError(NOT_CHUNKS)
        self._left = number
        if number == 0:
            self._trailers = 1
        return end + 2

    def _extension(self, data: bytes, place: int) -> int:
        """The end of a chunk extension, which is dropped; below 0 if it is incomplete."""
        self.as_came = False
        end = data.find(CRLF, place)
        if end >= 0 and EXTENSION.fullmatch(data, place, end) is None:
            raise ValueError(NOT_CHUNKS)
        return end

    def _trailer(self, data: bytes, place: int) -> int:
        """The position after a trailer, which is dropped, or after the final empty line."""
        end = data.find(CRLF, place)
        if end == place:
            self.done = True
            self.more = end + 2 < len(data)
            if self.more:
                self.as_came = False
            return len(data)
        if end < 0:
            return -1
        self.as_came = False
        self._trailers += 1
        if self._trailers > MOST_TRAILERS or TRAILER.fullmatch(data, place, end) is None:
            raise ValueError(NOT_CHUNKS)
        return end + 2
