"""HPACK (RFC 7541): decodes the headers of HTTP/2 requests, and encodes those of responses."""

from typing import Final

TABLE_BYTES: Final = 4096
"""Size of the table of headers that both sides keep; HTTP/2's default."""
OVERHEAD: Final = 32
"""Bytes counted for a table entry besides its name and value."""
LONGEST_LIST: Final = 64 << 10
BROKEN: Final = "the headers are not valid HPACK"
END_OF_TEXT: Final = 256
SHORTEST: Final = 5
LONGEST: Final = 30
CODE_LENGTHS: Final = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
    "1e"
)
"""Lengths in bits of the Huffman codes of all bytes and the end of string; they fix the codes."""
STATIC_TABLE: Final = (
    ":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|"
    ":scheme=https|:status=200|:status=204|:status=206|:status=304|:status=400|"
    ":status=404|:status=500|accept-charset|accept-encoding=gzip, deflate|"
    "accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|"
    "authorization|cache-control|content-disposition|content-encoding|content-language|"
    "content-length|content-location|content-range|content-type|cookie|date|etag|expect|"
    "expires|from|host|if-match|if-modified-since|if-none-match|if-range|"
    "if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|"
    "proxy-authorization|range|referer|refresh|retry-after|server|set-cookie|"
    "strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)
STATIC: Final = tuple(
    (name.encode(), value.encode())
    for name, _, value in (line.partition("=") for line in STATIC_TABLE.split("|"))
)


class HuffmanCodes:
    """Canonical Huffman codes, ordered by length, then symbol; each is one above the previous."""

    def __init__(self) -> None:
        self.symbols: Final = sorted(
            range(len(CODE_LENGTHS)), key=lambda one: (CODE_LENGTHS[one], one)
        )
        self.first: Final[list[int]] = []  # first code of each length
        self.start: Final[list[int]] = []  # index of its symbol
        self.count: Final[list[int]] = []
        code, place = 0, 0
        for length in range(LONGEST + 1):
            code <<= 1
            found = CODE_LENGTHS.count(length)
            self.first.append(code)
            self.start.append(place)
            self.count.append(found)
            code += found
            place += found

    def decode(self, data: bytes) -> bytes:
        """Decodes a string; the padding in the last byte must be all ones, like the end code."""
        found = bytearray()
        code, length, ones = 0, 0, True
        first, start, count, symbols = self.first, self.start, self.count, self.symbols
        for byte in data:
            for shift in (7, 6, 5, 4, 3, 2, 1, 0):
                bit = (byte >> shift) & 1
                code = code * 2 + bit
                length += 1
                ones = ones and bit == 1
                if length < SHORTEST:
                    continue
                place = code - first[length]
                if 0 <= place < count[length]:
                    symbol = symbols[start[length] + place]
                    if symbol == END_OF_TEXT:
                        raise ValueError(BROKEN)
                    found.append(symbol)
                    code, length, ones = 0, 0, True
        if length > 7 or not ones:
            raise ValueError(BROKEN)
        return bytes(found)


_huffman: Final = HuffmanCodes()


class HeaderDecoder:
    """The header decoder of a connection. A fault raises ValueError and ends the connection."""

    def __init__(self) -> None:
        self._table: Final[list[tuple[bytes, bytes]]] = []  # the newest first
        self._bytes = 0
        self._most = TABLE_BYTES
        self._data = b""
        self._place = 0

    def decode(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The headers in a complete block."""
        self._data, self._place = data, 0
        found: list[tuple[bytes, bytes]] = []
        total = 0
        while self._place < len(data):
            first = data[self._place]
            if first & 0x80:
                header = self._entry(self._number(7))
            elif first & 0xC0 == 0x40:
                header = self._literal(6)
                self._remember(header)
            elif first & 0xE0 == 0x20:
                if found:
                    raise ValueError(BROKEN)
                self._resize(self._number(5))
                continue
            else:
                header = self._literal(4)
            found.append(header)
            total += len(header[0]) + len(header[1]) + OVERHEAD
            if total > LONGEST_LIST:
                raise ValueError(BROKEN)
        return found

    def _number(self, bits: int) -> int:
        """An integer whose first bits share a byte with the field's type."""
        most = (1 << bits) - 1
        number = self._byte() & most
        if number < most:
            return number
        shift = 0
        while True:
            byte = self._byte()
            number += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 28:
                raise ValueError(BROKEN)

    def _byte(self) -> int:
        if self._place >= len(self._data):
            raise ValueError(BROKEN)
        self._place += 1
        return self._data[self._place - 1]

    def _text(self) -> bytes:
        if self._place >= len(self._data):
            raise ValueError(BROKEN)
        coded = self._data[self._place] >= 0x80
        size = self._number(7)
        end = self._place + size
        if end > len(self._data):
            raise ValueError(BROKEN)
        text = self._data[self._place : end]
        self._place = end
        return _huffman.decode(text) if coded else text

    def _literal(self, bits: int) -> tuple[bytes, bytes]:
        number = self._number(bits)
        name = self._entry(number)[0] if number else self._text()
        return name, self._text()

    def _entry(self, number: int) -> tuple[bytes, bytes]:
        if 0 < number <= len(STATIC):
            return STATIC[number - 1]
        place = number - len(STATIC) - 1
        if not 0 <= place < len(self._table):
            raise ValueError(BROKEN)
        return self._table[place]

    def _remember(self, header: tuple[bytes, bytes]) -> None:
        self._table.insert(0, header)
        self._bytes += len(header[0]) + len(header[1]) + OVERHEAD
        self._forget()

    def _resize(self, most: int) -> None:
        if most > TABLE_BYTES:
            raise ValueError(BROKEN)
        self._most = most
        self._forget()

    def _forget(self) -> None:
        while self._bytes > self._most:
            name, value = self._table.pop()
            self._bytes -= len(name) + len(value) + OVERHEAD


def encode(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Encodes headers as literals that are not added to the table."""
    parts = []
    for name, value in headers:
        parts += [b"\x00", _length(len(name)), name, _length(len(value)), value]
    return b"".join(parts)


def _length(number: int) -> bytes:
    if number < 127:
        return bytes((number,))
    found = bytearray((127,))
    number -= 127
    while number >= 128:
        found.append(number % 128 + 128)
        number //= 128
    found.append(number)
    return bytes(found)
