"""Faults that an emulated server injects: random ones, and a request rate limit."""

import math
from typing import NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.core.units import RATE_UNITS, parse_duration, parse_rate, parse_share

BREAK = "break"
LATENCY = "latency"
_ALLOWED = "STATUS=SHARE with a status of 400 to 599, break=SHARE, or latency=SHARE:DURATION"
_EXAMPLE = "as in 500=1%,429=5%,latency=10%:2s"
_LONGEST_TEXT = 60


class ResponseFault(NamedTuple):
    """One kind of fault, and its probability."""

    share: float
    status: int = 0
    """The status of the response; 0 for no error."""
    delay_s: float = 0.0
    """The delay before the request reaches the server."""
    breaks: bool = False
    """Whether the connection ends in the middle of the answer."""


NO_FAULT = ResponseFault(0.0)


def parse_faults(text: str) -> tuple[ResponseFault, ...]:
    """Parses faults such as `500=1%,429=5%,latency=10%:2s,break=0.01`."""
    faults = tuple(_fault(part.strip()) for part in text.split(","))
    if sum(fault.share for fault in faults) > 1.0 + 1e-9:
        what = "the shares add up to more than 1, and a request has one fault at most"
        raise InputError(what, where=f"--fault {text[:_LONGEST_TEXT]}")
    return faults


def _fault(text: str) -> ResponseFault:
    where = f"--fault {text[:_LONGEST_TEXT]}"
    kind, _, value = text.partition("=")
    written, _, duration = value.partition(":")
    try:
        share = parse_share(written)
    except InputError:
        share = math.nan
    if not 0.0 <= share <= 1.0:
        raise InputError(
            f"{written!r} is not a share",
            where=where,
            allowed="a share from 0% to 100%, such as 5% or 0.05",
            hint=_EXAMPLE,
        )
    if kind == LATENCY:
        try:
            delay_s = parse_duration(duration)
        except InputError as error:
            raise InputError(error.what, where=where, allowed=error.allowed) from None
        if not delay_s >= 0.0:
            raise InputError("the delay is negative", where=where, allowed="0s or more")
        return ResponseFault(share, delay_s=delay_s)
    if duration:
        what = f"only {LATENCY} has a duration"
        raise InputError(what, where=where, allowed=_ALLOWED, hint=_EXAMPLE)
    if kind == BREAK:
        return ResponseFault(share, breaks=True)
    if not (kind.isdecimal() and len(kind) == 3 and kind[0] in "45"):
        raise InputError(
            f"{kind!r} is not a kind of fault", where=where, allowed=_ALLOWED, hint=_EXAMPLE
        )
    return ResponseFault(share, status=int(kind))


class FaultDraw:
    """Draws each request's fault, always with one draw per request."""

    def __init__(self, faults: tuple[ResponseFault, ...], stream: Stream) -> None:
        self._faults = faults
        self._stream = stream

    def draw(self) -> ResponseFault:
        if not self._faults:
            return NO_FAULT
        drawn = self._stream.uniform()
        for fault in self._faults:
            drawn -= fault.share
            if drawn < 0.0:
                return fault
        return NO_FAULT


class RequestRateLimit:
    """A token bucket for requests; its size is the number as written, such as `400` in `400/s`."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._left = burst
        self._then_s = -math.inf

    def take(self, now_s: float) -> float:
        """Takes one request from the bucket; if empty, takes none and returns seconds to wait."""
        if self._then_s > -math.inf:
            passed_s = max(0.0, now_s - self._then_s)
            self._left = min(self.burst, self._left + passed_s * self.rate_per_s)
        self._then_s = now_s
        if self._left < 1.0 - 1e-9:
            return (1.0 - self._left) / self.rate_per_s
        self._left -= 1.0
        return 0.0

    def headers(self, wait_s: float) -> list[tuple[bytes, bytes]]:
        """Rate-limit headers as OpenAI sends them: the limit, the rest, and the time to refill."""
        reset_s = (self.burst - self._left) / self.rate_per_s
        said = [
            (b"x-ratelimit-limit-requests", str(round(self.burst))),
            (b"x-ratelimit-remaining-requests", str(max(0, math.floor(self._left)))),
            (b"x-ratelimit-reset-requests", f"{max(1, math.ceil(1e3 * reset_s))}ms"),
        ]
        if wait_s > 0.0:
            said.append((b"retry-after", str(math.ceil(wait_s))))
            said.append((b"retry-after-ms", str(math.ceil(1e3 * wait_s))))
        return [(name, value.encode()) for name, value in said]


def parse_rate_limit(text: str) -> RequestRateLimit:
    """Parses a limit such as `400/s` or `60/min`; the number is also the burst size."""
    try:
        rate_per_s = parse_rate(text)
    except InputError as error:
        raise InputError(error.what, where="--rate-limit", allowed=error.allowed) from None
    if not rate_per_s > 0.0:
        raise InputError(
            f"{text!r} admits no request", where="--rate-limit", allowed="more than 0/s"
        )
    unit = text.partition("/")[2].strip()
    per_unit = rate_per_s / RATE_UNITS[unit] if unit else rate_per_s
    return RequestRateLimit(rate_per_s, max(1.0, per_unit))
