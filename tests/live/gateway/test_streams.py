"""Streams of events: what is read and taken out does not depend on how they are cut."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.live.gateway.bed import DONE, USAGE, USAGE_EVENT, event
from windtunnel.live.gateway.data_path.streams import EventStream

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["usage", '"usage"', "data: [DONE]", '"},"usage":{"prompt_tokens":1}', "\\", "\n\n", '"', '"a']
)
spaced = st.sampled_from([b'data: {"choices": [{"text": "a"}]}\n\n', b'data: {"text":1}\n\n'])
odd = st.sampled_from([USAGE_EVENT, b": keep-alive\n\n", event("x", usage=USAGE), event("")])
events = st.lists(texts.map(event) | texts.map(lambda text: event(text, role="a")) | odd | spaced)


def fed(pieces: list[bytes], *, strips: bool) -> tuple[bytes, EventStream]:
    stream = EventStream(strips_usage=strips, ends_with_done=True)
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.end()]), stream


def told(stream: EventStream) -> Any:
    usage = stream.usage
    return stream.events, stream.done, usage and (usage.prompt, usage.output, usage.cached)


@given(events, st.booleans())
def test_events_one_by_one_are_read_as_all_at_once(parts: list[bytes], strips: bool) -> None:
    parts = [*parts, DONE]
    together, whole = fed([b"".join(parts)], strips=strips)
    one_by_one, stream = fed(parts, strips=strips)
    assert one_by_one == together
    assert told(stream) == told(whole)
    kept = [part for part in parts if not (strips and part == USAGE_EVENT)]
    assert together == b"".join(kept)
    assert stream.events == sum(part.startswith(b"data: {") for part in kept)
    assert stream.done


def test_text_that_looks_like_usage_is_not_taken_for_it() -> None:
    parts = [event("a"), event("b"), event("usage"), event('"usage"'), event("c"), DONE]
    passed, stream = fed(parts, strips=True)
    assert passed == b"".join(parts)
    assert told(stream) == (5, True, None)
    shown = [json.loads(part[6:]) for part in passed.split(b"\n\n")[:-2]]
    assert [one["choices"][0]["delta"]["content"] for one in shown][2:4] == ["usage", '"usage"']
