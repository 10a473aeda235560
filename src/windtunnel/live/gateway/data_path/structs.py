"""Structs decoded from and encoded to JSON; separate, as msgspec's structs cannot be compiled."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

NO_OPTIONS: Final = msgspec.Raw(b"")


class BodyFields(msgspec.Struct):
    """The fields of a request body that decisions need; the others are ignored."""

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
    """They contain host names: only the gateway itself may send them."""


class UsageDetails(msgspec.Struct):
    cached_tokens: int | None = None


class UsageFields(msgspec.Struct):
    """Token counts of servers, under the names of every API."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens: int | None = None
    prompt_tokens_details: UsageDetails | None = None


class AnswerUsage(msgspec.Struct):
    usage: UsageFields | None = None


class AnswerTransfer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


class TraceRow(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of the request trace, with the columns that `windtunnel simulate` reads."""

    arrived: float
    prompt_tokens: int
    output_tokens: int
    id: str
    tenant: str
    slo: str
    model: str
    outcome: str
    reason: str
    attempts: int
    server: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    prefix_keys: list[int] | UnsetType = UNSET
    prefix_ends: list[int] | UnsetType = UNSET
    ttft: float | UnsetType = UNSET
    e2e: float | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
