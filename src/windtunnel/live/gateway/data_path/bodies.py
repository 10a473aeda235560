"""Reads what decisions need from the body of a request, and changes the few bytes that must change.

A body is passed on as the client wrote it. Fields are added by inserting bytes after its first
brace; only a body with a field that must not pass is written anew.
"""

from typing import Any, Final

import msgspec

from windtunnel.live.gateway.data_path.errors import ClientError
from windtunnel.live.gateway.data_path.prompts import LARGEST_TOKENS

NO_OPTIONS: Final = msgspec.Raw(b"")

ASK_FOR_USAGE: Final = b'"stream_options":{"include_usage":true},'


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
    kv_transfer_params: msgspec.Raw = NO_OPTIONS
    """They name hosts: only the gateway itself may send them."""

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
            if part is not NO_OPTIONS:
                return bytes(self.tools) + bytes(part)
        return b""


_decoder: Final = msgspec.json.Decoder(BodyFields)


def read_body(body: bytes) -> BodyFields:
    """The fields of a body; one that is not a JSON object is a ClientError."""
    try:
        body.decode()  # values that are not looked at are not checked otherwise
        fields = _decoder.decode(body)
        if b"\\u" in body:
            _fields(body)  # names of fields may be half of a surrogate pair
    except msgspec.ValidationError as error:
        raise ClientError(400, _without_place(str(error)), param=_param(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError(400, f"The body is not JSON: {error}.") from None
    return fields


def read_values(body: bytes) -> dict[str, Any]:
    """All of a body; numbers out of range are a ClientError."""
    try:
        found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ClientError(400, f"The body is not JSON: {error}.") from None
    return found


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


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
    is_empty = body[start : start + 64].lstrip().startswith(b"}")
    asked = ASK_FOR_USAGE[:-1] if is_empty else ASK_FOR_USAGE
    return b"".join((body[:start], asked, memoryview(body)[start:]))


def without_fields(body: bytes, names: tuple[str, ...]) -> bytes:
    """The same object without some fields, written anew."""
    data = _fields(body)
    return msgspec.json.encode({name: raw for name, raw in data.items() if name not in names})


def with_fields(body: bytes, added: dict[str, Any]) -> bytes:
    """The same object with fields added or replaced, written anew."""
    data: dict[str, Any] = dict(_fields(body))
    data.update(added)
    return msgspec.json.encode(data)
