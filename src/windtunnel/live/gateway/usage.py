"""Token counts, as servers report them at the end of an answer."""

from typing import Final

import msgspec


class UsageDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
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
    usage: Usage | None = None


_decoder: Final = msgspec.json.Decoder(_WithUsage)


def usage_of(body: bytes) -> Usage | None:
    """What the body of an answer, or one chunk of it, says about tokens."""
    try:
        return _decoder.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
