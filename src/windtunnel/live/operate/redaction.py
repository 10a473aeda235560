"""Redaction of logged objects: the values of environment variables may be secrets."""

from typing import Any, Final

HIDDEN: Final = "(not logged)"
WHOLE_MANIFEST: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's annotation with the whole object as text."""


def redacted(value: Any) -> Any:
    """A copy of plain values without potential secrets."""
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
    """Redacts a variable's value; references to Secrets and fields stay: they are only names."""
    if isinstance(one, dict) and "value" in one:
        return {**one, "value": HIDDEN}
    return redacted(one)
