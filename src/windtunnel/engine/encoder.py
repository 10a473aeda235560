"""The encode stage: images and sound become tokens on machines of their own, one after another."""

from heapq import heapreplace
from typing import Final

from mypy_extensions import i64


class Encoders:
    """Equal encoders and one queue, first come, first served."""

    def __init__(self, count: int, fixed_s: float, per_token_s: float) -> None:
        self._fixed_s: Final = fixed_s
        self._per_token_s: Final = per_token_s
        self._free_s: Final = [0.0] * count
        self.busy_s = 0.0
        self.encoded: i64 = 0

    def done_s(self, media_tokens: i64, now_s: float) -> float:
        """Takes work in and says when it will be done; a client that leaves wastes its turn."""
        took_s = self._fixed_s + self._per_token_s * float(media_tokens)
        done_s: float = max(now_s, self._free_s[0]) + took_s
        heapreplace(self._free_s, done_s)
        self.busy_s += took_s
        self.encoded += 1
        return done_s
