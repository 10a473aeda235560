"""A limit learned from latency, for servers that never refuse and only become slow.

Latency is compared with what it is when few requests are in flight. While it stays within a
tolerance of that, the limit grows by about its square root; as it rises beyond, the limit shrinks
in proportion. The comparison is measured afresh now and then, at a quarter of the limit for a
moment: a remembered latency that drifted with the present one would let the limit run away.
Latency may be taken per token, since a long answer is not a slow server.
"""

import math
from typing import Final

from windtunnel.admission.limiter import NEVER, Admission, Limiter
from windtunnel.admission.reasons import Outcome
from windtunnel.core.errors import InputError

_SAMPLES_MIN: Final = 10
_GRADIENT_MIN: Final = 0.5
_SMOOTHING: Final = 0.2
_WINDOWS_UNTIL_MEASURED: Final = 100
_TIMEOUT_FACTOR: Final = 0.75
_BLOCK_S: Final = 1.0

_SUCCESS: Final = Outcome.SUCCESS
_TIMEOUT: Final = Outcome.PROVIDER_TIMEOUT
_REFUSED: Final = (Outcome.RATE_LIMITED, Outcome.PROVIDER_OVERLOADED)


class GradientLimiter(Limiter):
    """Grows while requests are as fast as when few were in flight, shrinks as they slow down."""

    def __init__(
        self, maximum: int, initial: int = 4, tolerance: float = 1.5, *, per_token: bool = False
    ) -> None:
        super().__init__(maximum)
        if not tolerance >= 1.0:
            raise InputError(f"{tolerance} is not a tolerance", allowed="1 or more")
        self._tolerance: Final = tolerance
        self._per_token: Final = per_token
        self._exact = float(min(max(1, initial), maximum))
        self._baseline = NEVER
        self._sum = 0.0
        self._samples = 0
        self._most_in_flight = 0
        self._windows = 0
        self._is_measuring = False
        self.limit = int(self._exact)

    def room(self, in_flight: int, now: float) -> int:
        return 0 if now < self.blocked_until_s else self.limit - in_flight

    def next_change_s(self, in_flight: int, now: float) -> float:  # noqa: ARG002
        return self.blocked_until_s if now < self.blocked_until_s else NEVER

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,
        retry_after_s: float,
        now: float,
    ) -> None:
        if outcome is _SUCCESS and not (self._is_measuring and admission.epoch != self.epoch):
            took_s = now - admission.at_s
            if self._per_token and tokens > 0:
                took_s /= tokens
            self._sum += took_s
            self._samples += 1
            self._most_in_flight = max(self._most_in_flight, admission.in_flight)
            self.consecutive_rate_limits = 0
            if self._samples >= max(_SAMPLES_MIN, self.limit) and admission.epoch == self.epoch:
                self._close_window()
        elif (outcome is _TIMEOUT or outcome in _REFUSED) and admission.epoch == self.epoch:
            self.epoch += 1
            self._set(self._exact * _TIMEOUT_FACTOR)
        if outcome in _REFUSED:
            self.consecutive_rate_limits += 1
            until_s = now + (retry_after_s if retry_after_s > 0.0 else _BLOCK_S)
            self.blocked_until_s = max(self.blocked_until_s, until_s)

    def set_maximum(self, maximum: int) -> None:
        self.maximum = maximum
        self._set(self._exact)

    def _close_window(self) -> None:
        """One step of the limit from the mean latency of a window of answers."""
        mean = self._sum / self._samples
        if self._is_measuring:
            self._is_measuring = False
            self._baseline = mean
        self._baseline = min(self._baseline, mean)
        gradient = 1.0 if mean <= 0.0 else self._tolerance * self._baseline / mean
        gradient = max(_GRADIENT_MIN, min(1.0, gradient))
        wanted = self._exact * gradient + math.sqrt(self._exact)
        is_used = 2 * self._most_in_flight >= self.limit
        if wanted < self._exact or is_used:
            self._set(self._exact + _SMOOTHING * (wanted - self._exact))
        self._sum = 0.0
        self._samples = 0
        self._most_in_flight = 0
        self._windows += 1
        if self._windows % _WINDOWS_UNTIL_MEASURED == 0:
            self._is_measuring = True
            self.limit = max(1, self.limit // 4)
        self.epoch += 1

    def _set(self, exact: float) -> None:
        self._exact = max(1.0, min(float(self.maximum), exact))
        self.limit = int(self._exact)
