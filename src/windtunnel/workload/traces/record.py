"""A request of a trace in any format, and the limits on what a trace may contain."""

import hashlib
from operator import lt

import msgspec

MOST_TOKENS = 10**7
"""Most tokens of one prompt or one output."""
LONGEST_TRACE_S = 10 * 366 * 86400.0
LONGEST_NAME = 256
"""Most characters of an id, a tenant, a model and other names."""
MOST_SEGMENTS = 100_000
"""Most prefix segments of one request."""
MOST_TURNS = 10**6
SPANS = ("deadline_s", "ttft_s", "e2e_s", "think_s")
SMALLEST_KEY, LARGEST_KEY = -(2**63), 2**63 - 1
BLOCK_TOKENS = 512
"""Tokens of a block in Mooncake's traces, the most common segments."""
BLOCK_ENDS = tuple(range(BLOCK_TOKENS, 1024 * BLOCK_TOKENS + 1, BLOCK_TOKENS))
"""The ends of a prompt's first blocks."""


class TraceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a trace. Times are in seconds; `arrived_s` counts from the trace's start."""

    arrived_s: float
    prompt_tokens: int
    """The whole prompt, including its shared prefix."""
    output_tokens: int
    id: str | None = None
    source: str | None = None
    tenant: str | None = None
    slo: str | None = None
    session: str | None = None
    turn: int | None = None
    """Turn of its session, from 0."""
    model: str | None = None
    adapter: str | None = None
    """The requested LoRA adapter; None for the base model."""
    deadline_s: float | None = None
    """Time after its arrival at which the client gives up."""
    ttft_s: float | None = None
    """Observed time to first token."""
    e2e_s: float | None = None
    """Observed time to the last token."""
    think_s: float | None = None
    """Observed time from the end of the session's previous turn to this one."""
    answer_key: int | None = None
    """Key of the answer as a segment of later prompts; None if no prompt continues it."""
    media_tokens: int | None = None
    """Prompt tokens that represent images and sound."""
    prefix_keys: tuple[int, ...] = ()
    """Keys of the segments at the start of the prompt that other prompts may share."""
    prefix_ends: tuple[int, ...] = ()
    """Segment i ends at token prefix_ends[i] of the prompt."""


def shifted(request: TraceRequest, start_s: float, speedup: float = 1.0) -> TraceRequest:
    """The request with its arrival counted from `start_s` and divided by `speedup`."""
    arrived_s = (request.arrived_s - start_s) / speedup
    return msgspec.structs.replace(request, arrived_s=arrived_s)


def key_of(text: str) -> int:
    """The prefix key for a name: equal names have equal keys."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def fault_of(request: TraceRequest, earliest_s: float = 0.0) -> str | None:
    """What is wrong with a request, without its place in the file; None if it is valid."""
    if not 0 <= request.prompt_tokens <= MOST_TOKENS:
        return f"the prompt has {_short(request.prompt_tokens)} tokens, not 0 to {MOST_TOKENS}"
    if not 0 <= request.output_tokens <= MOST_TOKENS:
        return f"the output has {_short(request.output_tokens)} tokens, not 0 to {MOST_TOKENS}"
    if not earliest_s <= request.arrived_s <= LONGEST_TRACE_S:
        return _time_fault(request.arrived_s)
    media = request.media_tokens
    if media is not None and not 0 <= media <= request.prompt_tokens:
        return f"media_tokens is {_short(media)}, but the prompt has {request.prompt_tokens} tokens"
    if request.turn is not None and not 0 <= request.turn <= MOST_TURNS:
        return f"the turn is {_short(request.turn)}"
    for name in SPANS:
        span = getattr(request, name)
        if span is not None and not 0 <= span <= LONGEST_TRACE_S:
            return f"{name.removesuffix('_s')} is {span} s"
    answer_key = request.answer_key
    if answer_key is not None and not SMALLEST_KEY <= answer_key <= LARGEST_KEY:
        return "the answer key has more than 64 bits"
    return _prefix_fault(request) if request.prefix_keys or request.prefix_ends else None


def _short(number: int) -> str:
    """The number, or words in place of one with more than 20 digits."""
    return str(number) if abs(number) < 10**20 else "far too many"


def _time_fault(time_s: float) -> str:
    if -LONGEST_TRACE_S <= time_s < 0:
        return f"the time is negative ({time_s:g} s)"
    return f"the time is {time_s:g} s, not within {LONGEST_TRACE_S:.0f} s"


def _prefix_fault(request: TraceRequest) -> str | None:
    keys, ends = request.prefix_keys, request.prefix_ends
    if len(keys) != len(ends):
        return f"there are {len(keys)} prefix_keys and {len(ends)} prefix_ends"
    if len(keys) > MOST_SEGMENTS:
        return f"the prefix has more than {MOST_SEGMENTS} segments"
    if not _increase(ends):
        return "the prefix_ends are not increasing"
    if ends[-1] > request.prompt_tokens:
        return f"the prefix ends at token {ends[-1]} of a prompt of {request.prompt_tokens}"
    ordered = sorted(keys)  # takes a quarter of the time of min and max
    if ordered[0] < SMALLEST_KEY or ordered[-1] > LARGEST_KEY:
        return "a prefix key has more than 64 bits"
    return None


def _increase(ends: tuple[int, ...]) -> bool:
    """Whether all numbers are positive, and each is more than the one before."""
    before = len(ends) - 1
    if ends[:before] == BLOCK_ENDS[:before]:  # the same objects, if a reader took them from there
        return ends[before] > (ends[before - 1] if before else 0)
    return ends[0] > 0 and all(map(lt, ends, ends[1:]))
