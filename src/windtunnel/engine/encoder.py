"""The encode stage: images and sound become tokens on machines of their own, one after another."""

from heapq import heapreplace
from typing import Final

from mypy_extensions import i64

from windtunnel.core.distribution import Distribution


class Encoders:
    """Equal encoders and one queue, first come, first served."""

    def __init__(self, count: int, fixed_s: float, per_token_s: float) -> None:
        self._fixed_s: Final = fixed_s
        self._per_token_s: Final = per_token_s
        self._free_s: Final = [0.0] * count
        self.taken: i64 = 0
        self.tokens: i64 = 0
        self.wait: Final = Distribution()  # seconds for an encoder, of all that came
        self._booked_s = 0.0

    def done_s(self, media_tokens: i64, now_s: float) -> float:
        """Takes work in and says when it will be done; a client that leaves wastes its turn."""
        took_s = self._fixed_s + self._per_token_s * float(media_tokens)
        start_s: float = max(now_s, self._free_s[0])
        done_s = start_s + took_s
        heapreplace(self._free_s, done_s)
        self._booked_s += took_s
        self.taken += 1
        self.tokens += media_tokens
        self.wait.add(start_s - now_s)
        return done_s

    def busy(self, now_s: float) -> float:
        """The share of their time until now in which encoders worked."""
        # Who has work beyond now works without a pause until it is free.
        beyond_s = sum([max(free_s - now_s, 0.0) for free_s in self._free_s])
        whole_s = now_s * float(len(self._free_s))
        return (self._booked_s - beyond_s) / whole_s if whole_s > 0.0 else 0.0
