"""Reads what providers say of their limits in reply headers, in the dialects they speak.

Understood: `retry-after` (seconds or an HTTP date) and `retry-after-ms`; `x-ratelimit-*` as OpenAI
and most compatible servers send them; `anthropic-ratelimit-*`; and the `ratelimit-*` of the IETF
draft. What cannot be read is taken as not said: a provider's mistake must not stop a run.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from windtunnel.admission.budgets import Observed

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WHOLE = re.compile(r"\s*(\d{1,15})")
_LONGEST_WAIT_S = 86400.0
"""A wait beyond a day is cut to a day: nobody means it."""


def read_limits(headers: Mapping[str, str], wall_s: float) -> Observed | None:
    """What a reply said of limits, or None for nothing; `wall_s` is the Unix time now."""
    said = {name.lower(): value for name, value in headers.items()}
    observed = Observed(
        requests_limit=_whole(said, _dialects("limit", "requests")),
        requests_left=_whole(said, _dialects("remaining", "requests")),
        requests_reset_s=_first_wait(said, _dialects("reset", "requests"), wall_s),
        tokens_limit=_whole(said, _dialects("limit", "tokens")[:2]),
        tokens_left=_whole(said, _dialects("remaining", "tokens")[:2]),
        tokens_reset_s=_first_wait(said, _dialects("reset", "tokens")[:2], wall_s),
        retry_after_s=max(0.0, retry_after_s(said, wall_s)),
    )
    known = (
        observed.requests_limit,
        observed.requests_left,
        observed.tokens_limit,
        observed.tokens_left,
    )
    return observed if max(known) >= 0 or observed.retry_after_s > 0.0 else None


def retry_after_s(headers: Mapping[str, str], wall_s: float) -> float:
    """Seconds to wait as `retry-after-ms` or `retry-after` say; 0 when neither does."""
    said = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(said.get("retry-after-ms", ""))
    if milliseconds is not None:
        return min(_LONGEST_WAIT_S, milliseconds / 1000.0)
    return max(0.0, _wait(said.get("retry-after", ""), wall_s))


def _dialects(what: str, of: str) -> tuple[str, ...]:
    return (f"x-ratelimit-{what}-{of}", f"anthropic-ratelimit-{of}-{what}", f"ratelimit-{what}")


def _whole(said: Mapping[str, str], names: tuple[str, ...]) -> int:
    for name in names:
        match = _WHOLE.match(said.get(name, ""))
        if match:
            return int(match[1])
    return -1


def _first_wait(said: Mapping[str, str], names: tuple[str, ...], wall_s: float) -> float:
    return next((_wait(said[name], wall_s) for name in names if name in said), -1.0)


def _wait(text: str, wall_s: float) -> float:
    """Seconds from `12`, `1.5`, `6m0s`, `250ms`, an HTTP date or an RFC 3339 time; -1 if none."""
    text = text.strip()
    seconds = _number(text)
    if seconds is not None:
        return min(_LONGEST_WAIT_S, seconds)
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return min(_LONGEST_WAIT_S, sum(float(number) * _UNIT_S[unit] for number, unit in parts))
    moment = _moment(text)
    if moment is None:
        return -1.0
    return min(_LONGEST_WAIT_S, max(0.0, moment - wall_s))


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d{1,12}(\.\d*)?\s*", text) else None


def _moment(text: str) -> float | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None
