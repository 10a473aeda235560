"""Reads a streamed answer of an OpenAI-compatible server: when each piece of it came."""

from typing import Any

import msgspec

LONGEST_LINE = 1 << 20
LONGEST_ERROR = 200
"""Characters that are kept of what a server says went wrong."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class BadStream(Exception):
    """The server sent something that is no stream of completions."""


class Answered:
    """What has come of a streamed answer, with the time of each piece."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.times_s: list[float] = []
        self.whole = False
        self._usage: _Usage | None = None
        self._rest = b""
        self._decoder = msgspec.json.Decoder(_Event)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def tokens(self) -> int:
        """As the server counts them, or else a token a piece."""
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
        """Takes what has arrived."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise BadStream(f"a line of the stream has more than {LONGEST_LINE >> 20} MiB")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_s)

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self.whole = True
            return
        try:
            event = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadStream(f"a piece of the stream cannot be read: {error}") from None
        if event.error is not None:
            raise BadStream(error_text(data))
        if event.usage is not None:
            self._usage = event.usage
        for choice in event.choices[:1]:
            text = choice.text
            if choice.delta is not None:
                text = choice.delta.content or choice.delta.reasoning_content
            if text:
                self.texts.append(text)
                self.times_s.append(now_s)


def error_text(body: bytes) -> str:
    """What a server says went wrong, in one line; whoever shows it hides keys, then cuts it."""
    try:
        data: Any = msgspec.json.decode(body)
        error = data.get("error", data)
        said = error.get("message", error) if isinstance(error, dict) else error
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        said = body.decode(errors="replace")
    line = " ".join(str(said).split())
    return "".join(c if c.isprintable() else "?" for c in line)
