"""When to try again: rate limits in reply headers, and backoff.

Understood: `retry-after` (seconds or an HTTP date) and `retry-after-ms`; `x-ratelimit-*` as OpenAI
and most compatible servers send them; the same with the window in the name, as in
`x-ratelimit-limit-tokens-minute`; `anthropic-ratelimit-*`; and the `ratelimit-*` of the IETF draft,
with the window in `ratelimit-policy` or after the limit. Unreadable values are ignored: a
provider's mistake must not stop a run. Without any of these, waits grow and are jittered.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from windtunnel.admission.requests.budgets import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    SECOND_S,
    UNSAID,
    ObservedLimit,
    ObservedLimits,
)
from windtunnel.admission.requests.pace import TOLERATED
from windtunnel.core.random import Stream

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0
FIRST_REFUSAL_S = 0.05
REFUSAL_GROWTH = 4.0
"""The wait after a refused call, and the factor by which it grows with each further refusal."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WHOLE = re.compile(r"\s*(\d{1,15})")
_LONGEST_WAIT_S = DAY_S
"""A wait beyond a day is cut to a day: it cannot be meant."""
_UNIX_S = 1e9
"""A reset of this many seconds or more is a Unix time, in seconds or milliseconds."""
_POLICY_LIMIT = re.compile(r"^\s*(\d{1,15})|[;\s]q=(\d{1,15})")
_POLICY_WINDOW = re.compile(r"[;\s]w(?:indow)?=(\d{1,9})")
_UNKNOWN = -1.0


class _Dialect(NamedTuple):
    """The header names of a limit, its remainder and its reset; and the window they refer to."""

    limit: str
    remaining: str
    reset: str
    window_s: float


def _dialect(name: str, window_s: float) -> _Dialect:
    """Builds a dialect from a name with a placeholder."""
    return _Dialect(name.format("limit"), name.format("remaining"), name.format("reset"), window_s)


def _dialects(names: tuple[str, ...], others: tuple[_Dialect, ...]) -> tuple[_Dialect, ...]:
    """Orders dialects by window, short ones first: those are what a client can keep to."""

    def named(window: str, window_s: float) -> list[_Dialect]:
        return [_dialect(f"x-ratelimit-{{}}-{name}{window}", window_s) for name in names]

    return (
        *named("second", SECOND_S),
        *named("minute", MINUTE_S),
        *others,
        *named("hour", HOUR_S),
        *named("day", DAY_S),
    )


_REQUESTS = _dialects(
    ("requests-", "req-", ""),
    (
        _dialect("x-ratelimit-{}-requests", _UNKNOWN),
        _dialect("anthropic-ratelimit-requests-{}", MINUTE_S),
        _dialect("ratelimit-{}", _UNKNOWN),
        _dialect("x-ratelimit-{}", _UNKNOWN),
    ),
)
_TOKENS = _dialects(
    ("tokens-",),
    (
        _dialect("x-ratelimit-{}-tokens", _UNKNOWN),
        _dialect("anthropic-ratelimit-tokens-{}", MINUTE_S),
    ),
)


def read_limits(headers: Mapping[str, str], wall_s: float) -> ObservedLimits | None:
    """Returns the limits in a reply, or None if there are none; `wall_s` is the Unix time now."""
    said = {name.lower(): value for name, value in headers.items()}
    requests, tokens = _said_of(said, _REQUESTS, wall_s), _said_of(said, _TOKENS, wall_s)
    wait_s = max(0.0, retry_after_s(said, wall_s))
    if requests is tokens is UNSAID and wait_s == 0.0:
        return None
    return ObservedLimits(requests=requests, tokens=tokens, retry_after_s=wait_s)


def retry_after_s(headers: Mapping[str, str], wall_s: float) -> float:
    """Returns the seconds to wait by `retry-after-ms` or `retry-after`; 0 without either."""
    said = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(said.get("retry-after-ms", ""))
    if milliseconds is not None:
        return min(_LONGEST_WAIT_S, milliseconds / 1000.0)
    return max(0.0, _wait(said.get("retry-after", ""), wall_s))


def _said_of(
    said: Mapping[str, str], dialects: tuple[_Dialect, ...], wall_s: float
) -> ObservedLimit:
    """Reads the first dialect that the headers use."""
    for dialect in dialects:
        limit, left = _whole(said, dialect.limit), _whole(said, dialect.remaining)
        if limit < 0 and left < 0:
            continue
        window_s = dialect.window_s
        if window_s < 0.0:
            policies = (said.get(dialect.limit, ""), said.get("ratelimit-policy", ""))
            window_s = _policy_window_s(",".join(policies), limit)
        return ObservedLimit(limit, left, _wait(said.get(dialect.reset, ""), wall_s), window_s)
    return UNSAID


def _policy_window_s(policies: str, limit: int) -> float:
    """The window of the policy with this limit, as in `100, 100;w=60` or `"a";q=100;w=60`."""
    for policy in policies.split(","):
        quota, window = _POLICY_LIMIT.search(policy), _POLICY_WINDOW.search(policy)
        if quota and window and int(quota[1] or quota[2]) == limit:
            return float(window[1]) or _UNKNOWN
    return _UNKNOWN


def _whole(said: Mapping[str, str], name: str) -> int:
    match = _WHOLE.match(said.get(name, ""))
    return int(match[1]) if match else -1


def _wait(text: str, wall_s: float) -> float:
    """Parses seconds from `12`, `6m0s`, `250ms`, a date (HTTP, RFC 3339, Unix time); -1 if none."""
    text = text.strip()
    seconds = _number(text)
    if seconds is not None:
        moment_s = seconds / 1000.0 if seconds >= 1000.0 * _UNIX_S else seconds
        return min(_LONGEST_WAIT_S, max(0.0, moment_s - wall_s) if seconds >= _UNIX_S else seconds)
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return min(_LONGEST_WAIT_S, sum(float(number) * _UNIT_S[unit] for number, unit in parts))
    moment = _moment(text)
    if moment is None:
        return -1.0
    return min(_LONGEST_WAIT_S, max(0.0, moment - wall_s))


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d{1,13}(\.\d*)?\s*", text) else None


def _moment(text: str) -> float | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def retry_delay_s(attempt: int, stream: Stream) -> float:
    """The wait after the `attempt`-th failure, from 0: half to all of a delay that doubles."""
    full_s = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempt, 10))
    return stream.between(0.5 * full_s, full_s)


def refusal_delay_s(refusals: int, share: float, stream: Stream) -> float:
    """Returns the wait after the `refusals`-th consecutive refusal that did not say how long.

    The limiter spaces all calls; this keeps one call from using up its tries at once. It is short
    if few of all calls are refused (`share`), and drawn from half to all of its length.
    """
    full_s = FIRST_REFUSAL_S * REFUSAL_GROWTH ** min(refusals - 1, 10)
    full_s = min(LONGEST_RETRY_S, full_s * max(1.0, share / TOLERATED))
    return stream.between(0.5 * full_s, full_s)
