"""Conversations (ShareGPT and similar) or bare token counts, which need assigned arrivals.

A conversation is a session: each answer of the model is a request whose prompt is the conversation
so far, with one prefix segment per message. Without `tokens`, lengths are characters / 4.
"""

import json
from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.random import Stream
from windtunnel.workload.traces.lines import Lines, PlainBytes, Unreadable
from windtunnel.workload.traces.notes import NameCheck, TraceNotes
from windtunnel.workload.traces.record import (
    LONGEST_TRACE_S,
    MOST_TURNS,
    TraceRequest,
    fault_of,
    key_of,
)

CHARACTERS_PER_TOKEN = 4
MODEL_ROLES = ("gpt", "assistant", "model", "chatgpt", "bing", "bard", "claude")
LARGEST_CONVERSATION = 64 * 1024**2
MOST_PENDING = 1_000_000
"""Later turns of started conversations that are held in memory at once."""
FIRST_READ = 1024**2


class AssignedArrivals(msgspec.Struct, frozen=True):
    """Arrivals for files without times: when conversations start, and the gap between turns."""

    rate_per_s: float
    process: str = "poisson"
    """`poisson` or `constant`."""
    turn_gap_s: float = 30.0
    seed: int = 0


def read(path: Path, notes: TraceNotes, assigned: AssignedArrivals) -> Iterator[TraceRequest]:
    """Reads a file; conversations start in the order of the file, and times start at 0."""
    stream = Stream(assigned.seed, "trace.arrivals")
    gap_s = 1.0 / assigned.rate_per_s
    pending: list[tuple[float, int, int, TraceRequest]] = []
    start_s = 0.0
    for number, turns in enumerate(_conversations(path, notes)):
        while pending and pending[0][0] <= start_s:
            yield heappop(pending)[3]
        for request in turns:
            time_s = start_s + (request.turn or 0) * assigned.turn_gap_s
            if not time_s <= LONGEST_TRACE_S:
                what = f"conversation {number + 1} would last beyond {LONGEST_TRACE_S:.0f} s"
                raise notes.fault(what, hint="a higher --rate or a shorter --turn-gap ends sooner")
            timed = msgspec.structs.replace(request, arrived_s=time_s)
            heappush(pending, (time_s, number, request.turn or 0, timed))
        if len(pending) > MOST_PENDING:
            what = f"more than {MOST_PENDING} turns wait for their time at once"
            raise notes.fault(what, hint="a shorter --turn-gap or a lower --rate holds fewer")
        start_s += gap_s if assigned.process == "constant" else stream.exponential(gap_s)
    while pending:
        yield heappop(pending)[3]


def _conversations(path: Path, notes: TraceNotes) -> Iterator[list[TraceRequest]]:
    """The requests of each conversation, without times."""
    names = NameCheck()
    for number, (place, item) in enumerate(_items(path, notes)):
        try:
            turns = _turns(item, number, names)
        except (ValueError, TypeError, OverflowError) as error:
            notes.skip(str(error)[:200], place)
            continue
        fault = next(filter(None, map(fault_of, turns)), None)
        if fault:
            notes.skip(fault, place)
        elif turns:
            yield turns
        else:
            notes.empty += 1


def _turns(item: Any, number: int, names: NameCheck) -> list[TraceRequest]:
    if not isinstance(item, dict):
        raise ValueError("each conversation must be an object")  # noqa: TRY004 - a bad row
    if "prompt_tokens" in item or "output_tokens" in item:
        prompt, output = (
            _count(item.get(name), name) for name in ("prompt_tokens", "output_tokens")
        )
        return [TraceRequest(0.0, prompt, output)] if prompt and output else []
    messages = item.get("conversations", item.get("messages"))
    if not isinstance(messages, list):
        raise ValueError("there are neither conversations, messages nor prompt_tokens")  # noqa: TRY004
    if len(messages) > MOST_TURNS:
        raise ValueError(f"there are more than {MOST_TURNS} messages")
    session = names(str(item.get("id") or f"conversation-{number}"))
    model = names(str(item.get("model") or ""))
    requests: list[TraceRequest] = []
    keys: list[int] = []
    ends: list[int] = []
    for message in messages:
        tokens, answer = _message(message)
        said = ends[-1] if ends else 0
        if answer and said and tokens:
            turn, shared = len(requests), (tuple(keys), tuple(ends))
            requests.append(
                TraceRequest(
                    0.0,
                    said,
                    tokens,
                    session=session,
                    turn=turn,
                    model=model,
                    prefix_keys=shared[0],
                    prefix_ends=shared[1],
                )
            )
        if tokens:
            keys.append(key_of(f"{number}/{len(keys)}"))
            ends.append(said + tokens)
    return requests


def _message(message: Any) -> tuple[int, bool]:
    """The number of tokens of a message, and whether the model wrote it."""
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")  # noqa: TRY004 - a bad row
    role = message.get("from", message.get("role"))
    if "tokens" in message:
        tokens = _count(message["tokens"], "tokens")
    else:
        text = message.get("value", message.get("content"))
        if not isinstance(text, str):
            raise ValueError("a message has no text")
        tokens = -(-len(text) // CHARACTERS_PER_TOKEN)
    return tokens, role in MODEL_ROLES


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is not a whole number")
    return value


def _items(path: Path, notes: TraceNotes) -> Iterator[tuple[int | None, Any]]:
    """The items of a file with their lines: members of a JSON list, or one value per line."""
    with PlainBytes(path) as file:
        start = _read(file, 64, notes).removeprefix(b"\xef\xbb\xbf")
    if start.lstrip().startswith(b"["):
        for item in _members(path, notes):
            yield None, item
        return
    lines = Lines(path, notes)
    for line in lines.raw():
        try:
            item = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            notes.skip("the line is not JSON, perhaps truncated", lines.number)
            continue
        yield lines.number, item


def _read(file: PlainBytes, size: int, notes: TraceNotes) -> bytes:
    try:
        return file.read(size)
    except Unreadable as error:
        raise notes.fault(str(error)) from None


def _members(path: Path, notes: TraceNotes) -> Iterator[Any]:
    """The members of a JSON list, read piece by piece."""
    import codecs

    decoder = json.JSONDecoder()
    with PlainBytes(path) as file:
        utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        text, at, size, more, members = "", 0, FIRST_READ, True, 0
        while True:
            at = _skip(text, at, " \t\r\n,[" if not members else " \t\r\n,")
            try:
                if at == len(text):
                    raise ValueError("the list goes on")  # noqa: TRY301 - one way to read on
                if text[at] == "]":
                    return
                item, at = decoder.raw_decode(text, at)
            except RecursionError:
                raise notes.fault(f"member {members + 1} is nested too deep") from None
            except ValueError:
                if not more or len(text) - at > LARGEST_CONVERSATION:
                    what = f"the list cannot be read after {members} members, perhaps truncated"
                    raise notes.fault(what) from None
                block = _read(file, size, notes)
                more = bool(block)
                try:
                    text = text[at:] + utf8.decode(block, final=not more)
                except UnicodeDecodeError:
                    raise notes.fault("the text is not UTF-8") from None
                at, size = 0, min(2 * size, LARGEST_CONVERSATION)
                continue
            size = FIRST_READ
            members += 1
            yield item


def _skip(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at
