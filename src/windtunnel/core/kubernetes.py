"""Objects as a Kubernetes API server sends them, and its timestamps; internally a time is in
seconds, here since 1970."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

NEVER: Final = -1.0
"""The time of something that has not happened."""
MICROSECONDS: Final = 1_000_000


class Owner(Protocol):
    """The controller of an object."""

    @property
    def uid(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...


class Metadata(Protocol):
    """The metadata fields that are used."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def creation_timestamp(self) -> str | None: ...
    @property
    def deletion_timestamp(self) -> str | None: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def annotations(self) -> dict[str, str]: ...
    @property
    def controller(self) -> Owner | None: ...
    @property
    def finalizers(self) -> Sequence[str]: ...


class Received(Protocol):
    """An object as received."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def spec(self) -> dict[str, Any]: ...
    @property
    def status(self) -> dict[str, Any]: ...


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
