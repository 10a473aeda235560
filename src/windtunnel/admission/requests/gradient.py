"""A limit learned from latency, for servers that never refuse and only slow down.

Latency is compared with a reference at low concurrency. While it stays within a tolerance of that,
the limit grows by about its square root; as it rises beyond, the limit shrinks in proportion. The
reference is measured again now and then, briefly at a quarter of the limit: one that drifted along
with current latency would let the limit run away. Latency may be taken per token, since a long
answer does not mean a slow server. A refusal or a timeout cuts the limit, also during a
measurement, and a requested wait is respected.
"""

import math
from typing import Final

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.limiter import NEVER, Admission, RequestLimiter
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream

_SAMPLES_MIN: Final = 10
_GRADIENT_MIN: Final = 0.5
_SMOOTHING: Final = 0.2
_WINDOWS_UNTIL_MEASURED: Final = 100
_TIMEOUT_FACTOR: Final = 0.75
_MEASURED_PART: Final = 4
"""A measurement is made at the limit divided by this."""
_COOLDOWN_S: Final = 1.0

_SUCCESS: Final = Outcome.SUCCESS
_TIMEOUT: Final = Outcome.PROVIDER_TIMEOUT
_RATE_LIMITED: Final = Outcome.RATE_LIMITED
_OVERLOADED: Final = Outcome.PROVIDER_OVERLOADED


class GradientLimiter(RequestLimiter):
    """Grows while latency is as low as at low concurrency, shrinks as it rises."""

    def __init__(
        self,
        maximum: int,
        initial: int = 4,
        tolerance: float = 1.5,
        *,
        per_token: bool = False,
        stream: Stream | None = None,
    ) -> None:
        super().__init__(maximum, stream, cooldown_s=_COOLDOWN_S)
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

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,
        retry_after_s: float,
        now: float,
    ) -> None:
        if outcome is _SUCCESS:
            is_fresh = admission.epoch == self.epoch
            self._served(admission, now)
            if is_fresh or not self._is_measuring:
                self._add_sample(admission, tokens, now, is_fresh)
        elif outcome is _TIMEOUT and admission.epoch == self.epoch:
            self.epoch += 1
            self._lower(admission)
        elif outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            self._refused(admission, retry_after_s, now)

    def set_maximum(self, maximum: int) -> None:
        self.maximum = maximum
        self._set(self._exact)

    def _lower(self, admission: Admission) -> None:  # noqa: ARG002 - latency says where
        self._set(self._exact * _TIMEOUT_FACTOR)

    def _add_sample(
        self,
        admission: Admission,
        tokens: int,
        now: float,
        is_fresh: bool,  # noqa: FBT001 - compiled calls are cheaper by place
    ) -> None:
        took_s = now - admission.at_s
        if self._per_token and tokens > 0:
            took_s /= tokens
        self._sum += took_s
        self._samples += 1
        self._most_in_flight = max(self._most_in_flight, admission.in_flight)
        if is_fresh and self._samples >= max(_SAMPLES_MIN, self.limit):
            self._close_window()

    def _close_window(self) -> None:
        """Moves the limit one step, by the mean latency of a window of answers."""
        mean = self._sum / self._samples
        if self._is_measuring:
            self._baseline = mean
        self._baseline = min(self._baseline, mean)
        gradient = 1.0 if mean <= 0.0 else self._tolerance * self._baseline / mean
        gradient = max(_GRADIENT_MIN, min(1.0, gradient))
        wanted = self._exact * gradient + math.sqrt(self._exact)
        is_used = 2 * self._most_in_flight >= self.limit
        exact = self._exact
        if wanted < exact or is_used:
            exact += _SMOOTHING * (wanted - exact)
        self._sum = 0.0
        self._samples = 0
        self._most_in_flight = 0
        self._windows += 1
        self._is_measuring = self._windows % _WINDOWS_UNTIL_MEASURED == 0
        self._set(exact)
        self.epoch += 1

    def _set(self, exact: float) -> None:
        self._exact = max(1.0, min(float(self.maximum), exact))
        limit = int(self._exact)
        self.limit = max(1, limit // _MEASURED_PART) if self._is_measuring else limit
