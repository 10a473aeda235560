"""Kubernetes timestamps; internally a time is in seconds, here since 1970."""

from datetime import UTC, datetime
from typing import Final

from windtunnel.gangs.statuses import NEVER

MICROSECONDS: Final = 1_000_000


def stamp(at_s: float) -> str:
    """Formats a time as RFC 3339 with microseconds."""
    whole = round(at_s * MICROSECONDS)
    seconds, fraction = divmod(whole, MICROSECONDS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:06d}Z"


def stamp_or_none(at_s: float) -> str | None:
    """Formats a time like `stamp`; None if it has not happened."""
    return None if at_s < 0.0 else stamp(at_s)


def seconds_of(text: object, now_s: float = float("inf")) -> float:
    """Parses a timestamp; one in the future, as a wrong clock writes it, is clamped to `now_s`."""
    if not isinstance(text, str) or not text:
        return NEVER
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return NEVER
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return min(round(found.timestamp() * MICROSECONDS) / MICROSECONDS, now_s)
