"""Mooncake traces: milliseconds, lengths, and the hash of each 512-token block of the prompt."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.record import (
    BLOCK_ENDS,
    BLOCK_TOKENS,
    LARGEST_KEY,
    MOST_TOKENS,
    TraceRequest,
)
from windtunnel.workload.traces.rows import json_requests

_WRAP = 2**64


class MooncakeLine(msgspec.Struct, gc=False):
    """One line of the file; other keys are ignored."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads a file; times count from the trace's start, as written."""
    return json_requests(path, notes, MooncakeLine, _request)


def _request(line: MooncakeLine) -> TraceRequest:
    prompt, keys = line.input_length, line.hash_ids
    if not keys:
        return TraceRequest(line.timestamp / 1e3, prompt, line.output_length)
    blocks = -(-prompt // BLOCK_TOKENS)
    if len(keys) > blocks or prompt > MOST_TOKENS:
        most = f"a prompt of {prompt} tokens has {max(blocks, 0)} blocks of {BLOCK_TOKENS}"
        raise ValueError(f"there are {len(keys)} hash_ids, and {most}")
    if sorted(keys)[-1] > LARGEST_KEY:  # faster than max
        keys = tuple(key - _WRAP if key > LARGEST_KEY else key for key in keys)
    count = len(keys)
    if count <= len(BLOCK_ENDS):
        ends = BLOCK_ENDS[:count]
    else:
        ends = tuple(range(BLOCK_TOKENS, count * BLOCK_TOKENS + 1, BLOCK_TOKENS))
    if ends[-1] > prompt:
        ends = (*ends[:-1], prompt)
    return TraceRequest(
        line.timestamp / 1e3, prompt, line.output_length, prefix_keys=keys, prefix_ends=ends
    )


def line(request: TraceRequest) -> bytes:
    """A request as a line; this format can only express a prefix of whole blocks."""
    written: dict[str, object] = {
        "timestamp": _milliseconds(request.arrived_s),
        "input_length": request.prompt_tokens,
        "output_length": request.output_tokens,
    }
    if request.prefix_keys:
        written["hash_ids"] = _blocks(request)
    return msgspec.json.encode(written) + b"\n"


def _milliseconds(time_s: float) -> int | float:
    exact = time_s * 1e3
    near = round(exact)
    return near if abs(exact - near) < 1e-6 else exact


def _blocks(request: TraceRequest) -> tuple[int, ...]:
    ends, prompt = request.prefix_ends, request.prompt_tokens
    expected = range(BLOCK_TOKENS, len(ends) * BLOCK_TOKENS + 1, BLOCK_TOKENS)
    if all(end == min(right, prompt) for end, right in zip(ends, expected, strict=True)):
        return request.prefix_keys
    what = f"a prefix whose segments end at {', '.join(map(str, ends[:4]))}"
    raise ValueError(f"{what} cannot be written as blocks of {BLOCK_TOKENS} tokens")
