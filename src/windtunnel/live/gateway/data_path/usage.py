"""What servers say at the end of an answer: token counts, and where the KV of a prompt is."""

from typing import Final

import msgspec


class UsageDetails(msgspec.Struct):
    cached_tokens: int | None = None


class TokenUsage(msgspec.Struct):
    """Tokens of a request as its server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens: int | None = None
    prompt_tokens_details: UsageDetails | None = None

    @property
    def prompt(self) -> int:
        return self.prompt_tokens or self.input_tokens or 0

    @property
    def output(self) -> int:
        return self.completion_tokens or self.output_tokens or 0

    @property
    def cached(self) -> int:
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details is not None else 0


class _WithUsage(msgspec.Struct):
    usage: TokenUsage | None = None


_decoder: Final = msgspec.json.Decoder(_WithUsage)


def usage_of(body: bytes) -> TokenUsage | None:
    """What the body of an answer, or one chunk of it, says about tokens."""
    try:
        return _decoder.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _WithTransfer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


_transfer_decoder: Final = msgspec.json.Decoder(_WithTransfer)


def transfer_of(body: bytes) -> msgspec.Raw | None:
    """Where a server keeps the KV that it computed, as it said it; None: it does not."""
    try:
        found = _transfer_decoder.decode(body).kv_transfer_params
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.copy() if bytes(memoryview(found)).startswith(b"{") else None
