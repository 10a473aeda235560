"""What of an object is logged: not the values of environment variables, which may be secrets."""

from typing import Any, Final

HIDDEN: Final = "(not logged)"
WHOLE_MANIFEST: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation of kubectl with the whole object as text."""


def redacted(value: Any) -> Any:
    """A copy of plain values without what may be a secret."""
    if isinstance(value, dict):
        return {key: _field(key, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


def _field(key: Any, value: Any) -> Any:
    if key == WHOLE_MANIFEST:
        return HIDDEN
    if key == "env" and isinstance(value, list | tuple):
        return [_variable(one) for one in value]
    return redacted(value)


def _variable(one: Any) -> Any:
    """References to Secrets and fields stay: they hold names alone."""
    if isinstance(one, dict) and "value" in one:
        return {**one, "value": HIDDEN}
    return redacted(one)
