"""Reads what decisions need from the body of a request, and changes the few bytes that must change.

A body is passed on as the client wrote it. Fields are added by inserting bytes after its first
brace; only a body with a field that must not pass is written anew.
"""

import hashlib
from typing import Any, Final

import msgspec
import xxhash

from windtunnel.live.gateway.data_path.errors import ClientError

LARGEST_TOKENS: Final = 10_000_000
FIRST_BLOCK_BYTES: Final = 512
LATER_BLOCK_BYTES: Final = 4096
FIRST_BLOCKS: Final = 64
MOST_BLOCKS: Final = 256
"""Of a prompt: 64 blocks of 512 bytes and 192 of 4 KiB; what follows is not compared."""

BYTES_PER_TOKEN: Final = 4
"""To begin with; what servers report as usage corrects it."""
RATE_OF_LEARNING: Final = 0.02
NO_OPTIONS: Final = msgspec.Raw(b"")

ASK_FOR_USAGE: Final = b'"stream_options":{"include_usage":true},'
FORBIDDEN_FIELDS: Final = (b'"kv_transfer_params"',)
"""They name hosts; only the gateway itself may send them."""


class BodyFields(msgspec.Struct):
    """The fields that decisions need; the rest is not looked at."""

    model: str | None = None
    stream: bool | None = False
    messages: msgspec.Raw = NO_OPTIONS
    prompt: msgspec.Raw = NO_OPTIONS
    input: msgspec.Raw = NO_OPTIONS
    tools: msgspec.Raw = NO_OPTIONS
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = 1
    stream_options: dict[str, Any] | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    previous_response_id: str | None = None
    user: str | None = None

    @property
    def asks_for_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.get("include_usage"))

    @property
    def output_tokens(self) -> int:
        """The most that it may have; 0: the request does not say."""
        asked = self.max_completion_tokens or self.max_tokens or self.max_output_tokens or 0
        return min(max(asked, 0), LARGEST_TOKENS)

    def prompt_bytes(self) -> bytes:
        """What the server will compute, as it was written."""
        for part in (self.messages, self.prompt, self.input):
            written = memoryview(part)
            if written:
                return bytes(memoryview(self.tools)) + bytes(written)
        return b""


_decoder: Final = msgspec.json.Decoder(BodyFields)


def read_body(body: bytes) -> BodyFields:
    """The fields of a body; one that is not a JSON object is a ClientError."""
    try:
        fields = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ClientError(400, _without_place(str(error)), param=_param(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError(400, f"The body is not JSON: {error}.") from None
    return fields


def _param(message: str) -> str | None:
    """`max_tokens` of "Expected `int`, got `str` - at `$.max_tokens`"."""
    found = message.rpartition("at `$.")[2]
    return found.rstrip("`") if found.endswith("`") and found != message else None


def _without_place(message: str) -> str:
    param = _param(message)
    said = message.partition(" - at ")[0]
    return f"{said}, in `{param}`." if param else f"{said}."


def with_usage(body: bytes) -> bytes:
    """The same body, asking for the usage chunk at the end of a stream.

    The field comes first; where the client gave `stream_options` of its own, `without_fields` has
    taken it out before.
    """
    start = body.index(b"{") + 1
    rest = body[start:].lstrip()
    if rest.startswith(b"}"):
        return body[:start] + ASK_FOR_USAGE[:-1] + rest
    return body[:start] + ASK_FOR_USAGE + rest


def without_fields(body: bytes, names: tuple[str, ...]) -> bytes:
    """The same object without some fields, written anew."""
    data = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: raw for name, raw in data.items() if name not in names})


def with_fields(body: bytes, added: dict[str, Any]) -> bytes:
    """The same object with fields added or replaced, written anew."""
    data: dict[str, Any] = dict(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    data.update(added)
    return msgspec.json.encode(data)


class PromptReader:
    """Prompts as prefix chains and token counts, without a tokenizer.

    Blocks of a prompt's bytes are hashed in a chain with a secret of this process, so that files
    may have the keys without telling prompts. Model, adapter and salt are part of the first hash:
    equal text shares nothing across them. The number of tokens is estimated from the number of
    bytes, by a ratio that is learned from the usage that servers report.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret: Final = secret
        self._bytes_per_token: Final[dict[str, float]] = {}

    def tokens(self, model: str, size: int) -> int:
        """About how many tokens so many bytes of a prompt are."""
        return max(1, round(size / self._bytes_per_token.get(model, BYTES_PER_TOKEN)))

    def learn(self, model: str, size: int, tokens: int) -> None:
        """A server reported the usage of a prompt of this size."""
        if size > 0 and 0 < tokens <= LARGEST_TOKENS:
            known = self._bytes_per_token.get(model, BYTES_PER_TOKEN)
            seen = min(max(size / tokens, 0.25), 64.0)
            self._bytes_per_token[model] = known + RATE_OF_LEARNING * (seen - known)

    def chain(self, model: str, salt: str, prompt: bytes) -> tuple[list[int], list[int]]:
        """Keys of the prompt's blocks, and the token at which each ends.

        Ends go by the first estimate for ever: a prefix has the same ends in every prompt.
        """
        size = len(prompt)
        if size < FIRST_BLOCK_BYTES:
            return [], []
        state = xxhash.xxh3_64_intdigest(f"{model}\0{salt}".encode())
        secret, hashed, keyed = self._secret, xxhash.xxh3_64_intdigest, hashlib.blake2b
        keys: list[int] = []
        ends: list[int] = []
        place, block = 0, FIRST_BLOCK_BYTES
        while len(keys) < MOST_BLOCKS:
            if len(keys) == FIRST_BLOCKS:
                block = LATER_BLOCK_BYTES
            until = place + block
            if until > size:
                break
            state = hashed(prompt[place:until], state)
            digest = keyed(state.to_bytes(8, "little"), digest_size=8, key=secret).digest()
            keys.append(int.from_bytes(digest, "little") >> 1)
            ends.append(until // BYTES_PER_TOKEN)
            place = until
        return keys, ends
