"""Reads a streamed response of an OpenAI-compatible server, with the time of each piece."""

from typing import Annotated, Any

import msgspec

from windtunnel.workload.traces.record import MOST_TOKENS

LONGEST_LINE = 1 << 20
LARGEST_STREAM = 256 << 20
"""In bytes: a hundred thousand tokens take a tenth of it."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None


Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class BadStream(Exception):
    """The server sent something that is not a stream of completions."""


class ErrorInStream(Exception):
    """The server reported an error within its stream, kept here verbatim."""

    def __init__(self, said: bytes) -> None:
        super().__init__(said)
        self.said = said


class Answered:
    """The received part of a streamed response, with the time of each piece."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.times_s: list[float] = []
        self.ended_s: float | None = None
        """When the end mark of the stream arrived."""
        self._usage: _Usage | None = None
        self._line = bytearray()  # an incomplete line
        self._bytes = 0
        self._decoder = msgspec.json.Decoder(_Event)

    @property
    def whole(self) -> bool:
        """Whether the response is complete."""
        return self.ended_s is not None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        """As counted by the server, or else one token per piece."""
        usage = self._usage
        return usage.completion_tokens if usage is not None else len(self.times_s)

    @property
    def prompt_tokens(self) -> int | None:
        return self._usage.prompt_tokens if self._usage is not None else None

    @property
    def cached_tokens(self) -> int | None:
        details = self._usage.prompt_tokens_details if self._usage is not None else None
        return details.cached_tokens if details is not None else None

    def feed(self, data: bytes, now_s: float) -> None:
        """Processes received data. Anything after the end is ignored."""
        self._bytes += len(data)
        if self._bytes > LARGEST_STREAM:
            raise BadStream(f"the stream has more than {LARGEST_STREAM >> 20} MiB")
        first, *others = data.split(b"\n")
        self._line += first
        for other in others:
            self._ended(now_s)
            self._line += other
        if len(self._line) > LONGEST_LINE:
            raise BadStream(f"a line of the stream has more than {LONGEST_LINE >> 20} MiB")

    def _ended(self, now_s: float) -> None:
        """Processes a complete line."""
        if self._line.startswith(b"data:") and not self.whole:
            self._event(bytes(self._line[5:]).strip(), now_s)
        self._line.clear()

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self.ended_s = now_s
            return
        try:
            event = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadStream(f"a piece of the stream cannot be read: {error}") from None
        if event.error is not None:
            raise ErrorInStream(data)
        if event.usage is not None:
            self._usage = event.usage
        for choice in event.choices[:1]:
            text = choice.text
            if choice.delta is not None:
                delta = choice.delta
                text = delta.content or delta.reasoning_content or delta.reasoning
            if text:
                self.texts.append(text)
                self.times_s.append(now_s)
