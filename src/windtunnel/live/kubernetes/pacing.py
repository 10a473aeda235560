"""Request pacing and backoff after failures; the time is an argument."""

from typing import Final

from windtunnel.core.random import Stream


class Backoff:
    """Delays that double from `first_s` to `most_s`, each with up to 50 % random jitter added.

    After `healthy_s` without a failure, the delay starts at `first_s` again.
    """

    def __init__(
        self, stream: Stream, first_s: float = 0.25, most_s: float = 20.0, healthy_s: float = 120.0
    ) -> None:
        assert 0 < first_s <= most_s
        self._stream = stream
        self._first_s = first_s
        self._most_s = most_s
        self._healthy_s = healthy_s
        self._next_s = first_s
        self._quiet_until_s = 0.0
        self.failures = 0

    def failed(self, now_s: float) -> float:
        """How long to wait after this failure."""
        if self.failures and now_s >= self._quiet_until_s + self._healthy_s:
            self.reset()
        self.failures += 1
        delay_s = self._next_s * self._stream.between(1.0, 1.5)
        self._next_s = min(2 * self._next_s, self._most_s)
        self._quiet_until_s = now_s + delay_s
        return delay_s

    def reset(self) -> None:
        self._next_s = self._first_s
        self.failures = 0


class RequestPacer:
    """A token bucket of `per_s` requests a second and bursts of `burst`, with a pause for all."""

    def __init__(self, per_s: float, burst: int) -> None:
        assert per_s > 0
        assert burst >= 1
        self._gap_s: Final = 1.0 / per_s
        self._depth_s: Final = (burst - 1) * self._gap_s
        self._next_s = 0.0
        self._paused_until_s = 0.0

    def take(self, now_s: float) -> float:
        """Takes a turn; returns how many seconds from now it is due."""
        due_s = max(self._next_s - self._depth_s, self._paused_until_s, now_s)
        self._next_s = max(self._next_s, now_s) + self._gap_s
        return due_s - now_s

    def paused_s(self, now_s: float) -> float:
        """The rest of the pause, in seconds."""
        return max(self._paused_until_s - now_s, 0.0)

    def pause(self, now_s: float, seconds: float) -> None:
        """Delays all requests by this many seconds, as the server asked (Retry-After)."""
        self._paused_until_s = max(self._paused_until_s, now_s + seconds)
