"""What servers report at the end of a response: token counts, and the location of a prompt's KV."""

from typing import Final

import msgspec

from windtunnel.live.gateway.data_path.structs import AnswerTransfer, AnswerUsage


class TokenUsage:
    """A request's tokens as counted by its server."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self, prompt: int, output: int, cached: int) -> None:
        self.prompt: Final = prompt
        self.output: Final = output
        self.cached: Final = cached


_decoder: Final = msgspec.json.Decoder(AnswerUsage)


def usage_of(body: bytes) -> TokenUsage | None:
    """The token usage in a response body or one of its chunks, if it has any."""
    try:
        found = _decoder.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if found is None:
        return None
    details = found.prompt_tokens_details
    return TokenUsage(
        found.prompt_tokens or found.input_tokens or 0,
        found.completion_tokens or found.output_tokens or 0,
        (details.cached_tokens or 0) if details is not None else 0,
    )


_transfer_decoder: Final = msgspec.json.Decoder(AnswerTransfer)


def transfer_of(body: bytes) -> msgspec.Raw | None:
    """The location of the KV that a server computed, as given by the server; None if not given."""
    try:
        found = _transfer_decoder.decode(body).kv_transfer_params
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.copy() if bytes(memoryview(found)).startswith(b"{") else None
