"""Whether a prompt is computed on another server than its answer."""

from typing import Final

from mypy_extensions import i64

ALWAYS: Final = "always"
NEVER: Final = "never"
PREFIX_THRESHOLD: Final = "prefix-threshold"


class Decider:
    """Splits a request when so many tokens of its prompt are missing where it will be decoded."""

    def __init__(self, kind: str, threshold: int) -> None:
        self.kind: Final = kind
        self._threshold: Final[i64] = threshold if kind == PREFIX_THRESHOLD else 0

    def split(self, prompt_tokens: i64, cached_tokens: i64) -> bool:
        """`cached_tokens` are those that the decoding server has already."""
        if self.kind == NEVER:
            return False
        return self.kind == ALWAYS or prompt_tokens - cached_tokens > self._threshold
