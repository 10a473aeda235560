"""The part of OpenAI's HTTP API that an emulated server supports: bodies in, answers out.

Fields that change the text but not its timing (temperature, stop, tools and so on) are accepted and
ignored.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from windtunnel.live.emulate.prompts import chat_prompt, text_prompt, token_prompt
from windtunnel.live.filler import BYTES_PER_TOKEN, TOKENS, WORDS, filler

MOST_TOKENS = 10**6
"""In one answer."""

INVALID = "invalid_request_error"


class HttpRefusal(Exception):
    """A request answered with an error, in OpenAI's format."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or []
        error = {"message": message, "type": kind, "param": param, "code": code}
        self.body = msgspec.json.encode({"error": error})


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class MessagePart(msgspec.Struct):
    """One part of a message."""

    type: str
    text: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[MessagePart] | None = None


class ChatBody(msgspec.Struct):
    """The body of `POST /v1/chat/completions`; other fields are ignored."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None


class CompletionBody(msgspec.Struct):
    """The body of `POST /v1/completions`; other fields are ignored."""

    model: str
    prompt: str | list[int | str | list[int]]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int | None = None


class Job(NamedTuple):
    """A request as the emulated server sees it."""

    model: str
    prompt: bytes
    max_tokens: int | None
    streams: bool
    tells_usage: bool


BodyType = TypeVar("BodyType", ChatBody, CompletionBody)


class BodyReader(Generic[BodyType]):
    """Turns bodies of one kind into jobs; raises `HttpRefusal` for an invalid body."""

    def __init__(self, kind: type[BodyType]) -> None:
        self._decoder: msgspec.json.Decoder[BodyType] = msgspec.json.Decoder(kind)

    def read(self, data: bytes) -> Job:
        try:
            body = self._decoder.decode(data)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            raise HttpRefusal(400, str(error)) from None
        except msgspec.DecodeError as error:
            raise HttpRefusal(400, f"the body is not JSON: {error}") from None
        except RecursionError:
            raise HttpRefusal(400, "the body is nested too deeply") from None
        if body.n not in (None, 1):
            raise HttpRefusal(400, f"n is {body.n}, but only 1 is supported", param="n")
        options = body.stream_options
        if options is not None and not body.stream:
            raise HttpRefusal(400, "stream_options are for streams", param="stream_options")
        prompt = _chat_bytes(body) if isinstance(body, ChatBody) else _prompt_bytes(body.prompt)
        if not prompt:
            raise HttpRefusal(400, "the prompt is empty", param="prompt")
        return Job(
            body.model,
            prompt,
            _max_tokens(body),
            bool(body.stream),
            options is not None and bool(options.include_usage),
        )


def _max_tokens(body: ChatBody | CompletionBody) -> int | None:
    name, most = "max_tokens", body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        name, most = "max_completion_tokens", body.max_completion_tokens
    if most is not None and not 1 <= most <= MOST_TOKENS:
        raise HttpRefusal(400, f"{name} is {most}, not 1 to {MOST_TOKENS}", param=name)
    return most


def _chat_bytes(body: ChatBody) -> bytes:
    if not body.messages:
        raise HttpRefusal(400, "there are no messages", param="messages")
    return chat_prompt([(message.role, _text(message.content)) for message in body.messages])


def _text(content: str | list[MessagePart] | None) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.text is None:
            what = f"a part of the type {part.type[:60]!r} cannot be read here, only text"
            raise HttpRefusal(400, what, param="messages")
    return "".join(part.text or "" for part in content)


def _prompt_bytes(prompt: str | list[int | str | list[int]]) -> bytes:
    if isinstance(prompt, list) and len(prompt) == 1:
        (one,) = prompt
        prompt = [one] if isinstance(one, int) else one if isinstance(one, str) else [*one]
    if isinstance(prompt, str):
        return text_prompt(prompt)
    ids = [token for token in prompt if isinstance(token, int)]
    if len(ids) < len(prompt):
        raise HttpRefusal(400, "there are several prompts; only one is supported", param="prompt")
    return _token_bytes(ids)


def _token_bytes(ids: list[int]) -> bytes:
    try:
        return token_prompt(ids)
    except OverflowError:
        raise HttpRefusal(400, "a token id is negative or too large", param="prompt") from None


class Usage(NamedTuple):
    """Token counts of an answer."""

    prompt: int
    output: int
    cached: int

    def to_data(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Head(NamedTuple):
    """The fields common to all parts of an answer."""

    number: int
    created: int
    model: str


class AnswerFormat:
    """The response format of one endpoint."""

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._prefix = "chatcmpl-" if chat else "cmpl-"
        self._whole = "chat.completion" if chat else "text_completion"
        self._piece = "chat.completion.chunk" if chat else "text_completion"

    def _data(self, head: Head, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"{self._prefix}{head.number}",
            "object": kind,
            "created": head.created,
            "model": head.model,
            "choices": choices,
        }

    def whole(self, head: Head, text: str, finish: str, usage: Usage) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        choice["logprobs"] = None
        choice["finish_reason"] = finish
        data = self._data(head, self._whole, [choice])
        data["usage"] = usage.to_data()
        return msgspec.json.encode(data)

    def piece(self, head: Head, text: str, finish: str | None, *, first: bool) -> bytes:
        """One chunk of a streamed answer."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            delta = {"role": "assistant", "content": text} if first else {"content": text}
            choice["delta"] = delta
        else:
            choice["text"] = text
        choice["logprobs"] = None
        choice["finish_reason"] = finish
        return _event(self._data(head, self._piece, [choice]))

    def frame(self, head: Head) -> "ChunkFrame":
        """The bytes around the text of a middle chunk."""
        key = b'"content":"' if self._chat else b'"text":"'
        before, _, after = self.piece(head, "", None, first=False).rpartition(key)
        return ChunkFrame(head.number, before + key, after)

    def usage(self, head: Head, usage: Usage) -> bytes:
        """The last chunk of a streamed answer, with the usage, for clients that requested it."""
        data = self._data(head, self._piece, [])
        data["usage"] = usage.to_data()
        return _event(data)


class ChunkFrame:
    """Middle chunks of a streamed answer as HTTP chunks: all bytes but the text are the same."""

    def __init__(self, number: int, before: bytes, after: bytes) -> None:
        self._number = number
        self._before = before
        self._after = after + b"\r\n"
        self._size = len(before) + len(after)
        self._before_one = b"%x\r\n%b" % (self._size + BYTES_PER_TOKEN, before)

    def chunk(self, sent: int, tokens: int) -> bytes:
        """The chunk that brings an answer from `sent` tokens to `tokens`."""
        start = self._number + sent
        if tokens == sent + 1:
            return self._before_one + TOKENS[start % WORDS] + self._after
        text = filler(tokens - sent, start).encode()
        return b"%x\r\n%b%b%b" % (self._size + len(text), self._before, text, self._after)


DONE = b"data: [DONE]\n\n"


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
