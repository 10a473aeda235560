"""Values that settings may have, checked where parts are built."""

import math

from windtunnel.core.errors import InputError


def at_least(field: str, value: float, low: float = 0.0, *, above: bool = False) -> None:
    """A finite number from `low` on, or above it."""
    if not math.isfinite(value) or value < low or (above and value == low):
        allowed = f"a finite number above {low:g}" if above else f"a finite number from {low:g} on"
        raise InputError(f"{value!r} is out of range", where=field, allowed=allowed)


def share(field: str, value: float) -> None:
    """Above 0, up to 1."""
    if not (math.isfinite(value) and 0 < value <= 1):
        allowed = "a number above 0, up to 1"
        raise InputError(f"{value!r} is no share", where=field, allowed=allowed)


def apart(up_field: str, up: float, down_field: str, down: float) -> None:
    """The load at which a group grows must be above the one at which it shrinks."""
    if down >= up:
        raise InputError(
            f"{down:g} is not below {up_field}, which is {up:g}",
            where=down_field,
            hint="a group between the two would grow and shrink in turns; set both",
        )


def within(field: str, spare: float, of_field: str, of: float) -> None:
    """What must be left to spare is less than all that there is."""
    if spare >= of:
        raise InputError(
            f"{spare:g} is not below {of_field}, which is {of:g}",
            where=field,
            hint="no replica ever has as much to spare: it would grow without end",
        )
