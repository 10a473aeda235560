"""Disaggregation: whether a prompt is computed on another server than the one that decodes."""

from typing import Final

from mypy_extensions import i64

ALWAYS: Final = "always"
NEVER: Final = "never"
PREFIX_THRESHOLD: Final = "prefix-threshold"
CACHED: Final = "enough of the prompt is cached on the decode server"


class SplitDecision:
    """Whether a request is split between a prefill and a decode server, and why."""

    def __init__(self, reason: str, *, split: bool) -> None:
        self.split: Final = split
        self.reason: Final = reason


class SplitDecider:
    """Splits always, never, or when more than `threshold` prompt tokens are not cached."""

    def __init__(self, kind: str, threshold: int) -> None:
        self._never: Final = kind == NEVER
        self._threshold: Final[i64] = threshold if kind == PREFIX_THRESHOLD else -1
        self._split: Final = SplitDecision(kind, split=True)
        self._whole: Final = SplitDecision(NEVER if kind == NEVER else CACHED, split=False)

    def decide(self, prompt_tokens: i64, cached_tokens: i64) -> SplitDecision:
        """`cached_tokens` of the prompt are cached on the server that will decode."""
        if self._never or prompt_tokens - cached_tokens <= self._threshold:
            return self._whole
        return self._split
