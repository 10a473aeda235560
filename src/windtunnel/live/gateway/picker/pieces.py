"""Body chunks in Envoy's messages, read and written without the Protocol Buffers library.

Nearly all messages of a stream are chunks of its response and have one form: a field of
`ProcessingRequest` with the bytes and an end-of-stream flag. A message of any other form is left to
the library, which costs several times as much.
"""

from typing import Final

REQUEST_BODY: Final = 3
RESPONSE_BODY: Final = 4
"""Fields of `ProcessingResponse` that return a chunk."""

ANSWER_PIECE: Final = 5 << 3 | 2  # `ProcessingRequest.response_body`
BYTES: Final = 1 << 3 | 2
IS_LAST: Final = 2 << 3
NESTED: Final = (3 << 3 | 2, 3 << 3 | 2, 1 << 3 | 2)
"""`BodyMutation.streamed_response`, `CommonResponse.body_mutation`, `BodyResponse.response`."""
LONGEST_VARINT: Final = 5


def answer_piece(message: bytes) -> tuple[bytes, bool] | None:
    """The bytes of a response chunk, and whether it is the last; None for any other message."""
    size = len(message)
    if size < 2 or message[0] != ANSWER_PIECE:
        return None
    length, place = _number(message, 1)
    if place + length != size or length < 0:
        return None
    data, last = b"", False
    if place < size and message[place] == BYTES:
        length, place = _number(message, place + 1)
        if length < 0 or place + length > size:
            return None
        data = message[place : place + length]
        place += length
    if place + 2 == size and message[place] == IS_LAST and message[place + 1] <= 1:
        last = message[place + 1] == 1
        place += 2
    return (data, last) if place == size else None


def piece_response(field: int, data: bytes, last: bool) -> bytes:  # noqa: FBT001
    """A `ProcessingResponse` that passes on a body chunk."""
    parts = [data, b"\x10\x01" if last else b""]
    if data:
        parts.insert(0, _head(BYTES, len(data)))
    size = sum([len(part) for part in parts])
    for tag in (*NESTED, field << 3 | 2):
        head = _head(tag, size)
        parts.insert(0, head)
        size += len(head)
    return b"".join(parts)


def _head(tag: int, size: int) -> bytes:
    """The tag and length that precede a field of this many bytes."""
    found = [tag]
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    found.append(size)
    return bytes(found)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A varint and the position after it; below 0 if it is not one."""
    value, shift, size = 0, 0, len(data)
    while place < size and shift < 7 * LONGEST_VARINT:
        letter = data[place]
        place += 1
        value |= (letter & 127) << shift
        if letter < 128:
            return value, place
        shift += 7
    return -1, place
