"""Follows a response as it passes: when its first token arrived, how many there were, how it ended.

Server-sent events are passed on byte for byte, except for a usage chunk that the gateway requested
and the client did not. A response without its last event (`[DONE]`) was cut off.
"""

from typing import Final

from windtunnel.live.gateway.data_path.bodies import without_fields
from windtunnel.live.gateway.data_path.usage import TokenUsage, usage_of

DONE: Final = b"data: [DONE]"
LAST_RESPONSE_EVENTS: Final = (b"response.completed", b"response.incomplete", b"response.failed")
EVENT_END: Final = b"\n\n"
USAGE: Final = b'"usage"'
TRANSFER: Final = b'"kv_transfer_params":{'
LONGEST_EVENT: Final = 4 << 20
QUOTE: Final = 34  # as a number: searching for a bytes object costs ten times as much
SPACE: Final = 32
BACKSLASH: Final = 92
MOST_LESSONS: Final = 4
"""Failed attempts to learn the form of events before giving up: some are never alike."""


class EventStream:
    """The events of one streamed response."""

    __slots__ = (
        *("_ends_with_done", "_held", "_lessons", "_rest", "_start", "_strips", "_tail"),
        *("done", "events", "usage"),
    )

    def __init__(self, *, strips_usage: bool, ends_with_done: bool) -> None:
        self.events = 0
        self.done = False  # whether the last event has passed
        self.usage: TokenUsage | None = None
        self._strips: Final = strips_usage
        self._ends_with_done: Final = ends_with_done  # False: `response.completed` is the last
        self._held = b""  # the start of an incomplete event
        self._tail = b""
        self._start = b""  # of a text-only event; `_rest` is what follows its text
        self._rest = b""
        self._lessons = MOST_LESSONS

    def feed(self, data: bytes) -> bytes:
        """Processes data; returns the part that goes to the client now."""
        if self._start and self._is_text(data):
            self.events += 1
            self._tail = b""
            self._lessons = MOST_LESSONS
            return data
        if self._held:
            data = self._held + data
            self._held = b""
        if self._strips and not data.endswith(EVENT_END):
            data = self._whole_events(data)
        if data.find(TRANSFER) >= 0:  # `in` would cost an exception for each search
            data = EVENT_END.join([_without_transfer(one) for one in data.split(EVENT_END)])
        events = data.count(b"data: {")
        self.events += events
        if data.find(USAGE) >= 0:
            data = self._read_usage(data)
        elif events == 1 and self._lessons and self._ends_with_done:
            self._learn(data)
        if self._ends_with_done:
            if data.endswith(b"[DONE]\n\n") or data.find(DONE) >= 0:
                self.done = True
            elif not self._strips:
                self._look_in_tail(data)
        else:
            for word in LAST_RESPONSE_EVENTS:
                if data.find(word) >= 0:
                    self.done = True
        return data

    def _whole_events(self, data: bytes) -> bytes:
        """Holds back an incomplete event."""
        end = data.rfind(EVENT_END) + 2
        if end < 2:
            end = 0
        self._held = data[end:]
        data = data[:end]
        if len(self._held) > LONGEST_EVENT:
            data, self._held = data + self._held, b""
        return data

    def _is_text(self, data: bytes) -> bool:
        """Whether this event differs from the last only in its text, so nothing needs reading."""
        start, rest = self._start, self._rest
        end = len(data) - len(rest)
        return (
            end >= len(start)
            and not self._held
            and data[: len(start)] == start
            and data[end:] == rest
            and QUOTE not in data[len(start) : end]
        )

    def _learn(self, data: bytes) -> None:
        """Learns the parts around the text of an event without usage or other relevant fields."""
        self._start = b""
        self._lessons -= 1
        place = data.find(b'content":')
        place = place + 9 if place >= 0 else data.find(b'text":') + 6
        if place < 6 or place + 2 > len(data) or not data.endswith(EVENT_END):
            return
        if data[place] == SPACE:
            place += 1
        end = data.find(b'"', place + 1)
        if data[place] == QUOTE and end >= 0 and data[end - 1] != BACKSLASH:
            self._start, self._rest = data[: place + 1], data[end:]

    def end(self) -> bytes:
        """Ends the response; returns the data held back."""
        held, self._held = self._held, b""
        return held

    def _look_in_tail(self, data: bytes) -> None:
        """Looks for `[DONE]`, which may be split between two pieces."""
        self._tail = (self._tail + data)[-len(DONE) - 4 :]
        if DONE in self._tail:
            self.done = True

    def _read_usage(self, data: bytes) -> bytes:
        """Reads the usage in these events, and removes the chunk that contains nothing else."""
        kept = []
        for event in data.split(EVENT_END):
            if event.find(USAGE) >= 0:
                start = event.find(b"data: ")
                found = usage_of(event[start + 6 :]) if start >= 0 else None
                if found is not None:
                    self.usage = found
                    if self._strips and _has_no_choices(event):
                        self.events -= 1
                        continue
            kept.append(event)
        return EVENT_END.join(kept)


def _without_transfer(event: bytes) -> bytes:
    """An event without `kv_transfer_params`, which contain host names."""
    start = event.find(b"data: ")
    if TRANSFER not in event or start < 0:
        return event
    return event[: start + 6] + without_fields(event[start + 6 :], ("kv_transfer_params",))


def _has_no_choices(event: bytes) -> bool:
    return b'"choices":[]' in event or b'"choices": []' in event
