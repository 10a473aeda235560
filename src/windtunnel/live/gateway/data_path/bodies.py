"""Reads the fields that decisions need from a request body, and changes the few bytes it must.

A body is passed on as the client wrote it. Fields are added by inserting bytes after its first
brace; a body is re-encoded only if it has a field that must not be passed on.
"""

from typing import Any, Final

import msgspec

from windtunnel.live.gateway.data_path.errors import ClientError
from windtunnel.live.gateway.data_path.prompts import LARGEST_TOKENS
from windtunnel.live.gateway.data_path.structs import NO_OPTIONS, BodyFields

ASK_FOR_USAGE: Final = b'"stream_options":{"include_usage":true},'
ASKING: Final = b"{" + ASK_FOR_USAGE
COPIED: Final = 16 << 10


def asks_for_usage(fields: BodyFields) -> bool:
    options = fields.stream_options
    return options is not None and bool(options.get("include_usage"))


def output_tokens_of(fields: BodyFields) -> int:
    """The request's limit on output tokens; 0 if it sets none."""
    asked = fields.max_completion_tokens or fields.max_tokens or fields.max_output_tokens or 0
    return min(max(asked, 0), LARGEST_TOKENS)


def prompt_of(fields: BodyFields) -> bytes:
    """The part of the body that the server will prefill, as raw JSON."""
    part = fields.messages
    if part is NO_OPTIONS:
        part = fields.prompt
        if part is NO_OPTIONS:
            part = fields.input
            if part is NO_OPTIONS:
                return b""
    tools = fields.tools
    return bytes(part) if tools is NO_OPTIONS else bytes(tools) + bytes(part)


_decoder: Final = msgspec.json.Decoder(BodyFields)


def read_body(body: bytes) -> BodyFields:
    """Reads the fields of a body; raises ClientError if it is not a JSON object."""
    try:
        if not body.isascii():
            body.decode()  # values that are not decoded would not be checked otherwise
        fields = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ClientError(400, _without_place(str(error)), param=_param(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError(400, f"The body is not JSON: {error}.") from None
    return fields


def check_names(body: bytes) -> None:
    """Checks that a body can be re-encoded: field names may contain unpaired surrogates."""
    if body.find(b"\\u") >= 0:
        try:
            _fields(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ClientError(400, f"The body is not JSON: {error}.") from None


def read_values(body: bytes) -> dict[str, Any]:
    """Decodes a whole body; raises ClientError if a number is out of range."""
    try:
        found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ClientError(400, f"The body is not JSON: {error}.") from None
    return found


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


def _param(message: str) -> str | None:
    """Extracts `max_tokens` from "Expected `int`, got `str` - at `$.max_tokens`"."""
    found = message.rpartition("at `$.")[2]
    return found.rstrip("`") if found.endswith("`") and found != message else None


def _without_place(message: str) -> str:
    param = _param(message)
    said = message.partition(" - at ")[0]
    return f"{said}, in `{param}`." if param else f"{said}."


def with_usage(body: bytes) -> bytes:
    """The same body, with a request for the usage chunk at the end of the stream.

    The field comes first; if the client sent its own `stream_options`, `without_fields` has removed
    them before.
    """
    if len(body) < COPIED and body.startswith(b'{"'):
        return ASKING + body[1:]
    start = body.index(b"{") + 1
    is_empty = body[start : start + 64].lstrip().startswith(b"}")
    asked = ASK_FOR_USAGE[:-1] if is_empty else ASK_FOR_USAGE
    return b"".join((body[:start], asked, memoryview(body)[start:]))


def without_fields(body: bytes, names: tuple[str, ...]) -> bytes:
    """The same object without some fields, re-encoded."""
    data = _fields(body)
    return msgspec.json.encode({name: raw for name, raw in data.items() if name not in names})


def with_fields(body: bytes, added: dict[str, Any]) -> bytes:
    """The same object with fields added or replaced, re-encoded."""
    data: dict[str, Any] = dict(_fields(body))
    data.update(added)
    return msgspec.json.encode(data)
