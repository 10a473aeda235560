"""Taints of nodes and tolerations of pods: which pods may run on a tainted machine."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from windtunnel.core.errors import InputError

Taint = tuple[str, str, str]
"""A taint of a node: key, value ("" for none) and effect."""
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)


def taint_text(taint: Taint) -> str:
    """The taint as kubectl writes it: `gpu=a100:NoSchedule`."""
    key, value, effect = taint
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def taint_of(text: str) -> Taint:
    """Parses a taint as kubectl writes it: `key=value:effect` or `key:effect`."""
    before, _, effect = text.rpartition(":")
    key, _, value = before.partition("=")
    if not key or effect not in EFFECTS:
        allowed = f"key=value:effect, with the effect {', '.join(EFFECTS)}"
        raise InputError(f"{text!r} is not a taint", allowed=allowed)
    return (key, value, effect)


class Toleration(NamedTuple):
    """The taints that a pod tolerates; an empty key or effect matches all."""

    key: str
    operator: str
    value: str
    effect: str
    seconds: float | None = None
    """How long a pod stays on a node that gets such a NoExecute taint; None: indefinitely."""

    def covers(self, taint: Taint) -> bool:
        key, value, effect = taint
        if (self.effect and self.effect != effect) or (self.key and self.key != key):
            return False
        return self.operator == "Exists" or self.value == value


ALL_TAINTS: Final = Toleration("", "Exists", "", "")


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether a pod may run on a node with these taints."""
    hard = [taint for taint in taints if taint[2] != PREFER_NO_SCHEDULE]
    return all(any(one.covers(taint) for one in tolerations) for taint in hard)


def toleration_of(item: Mapping[str, object]) -> Toleration:
    """Parses a toleration of a pod spec."""
    where = "tolerations"
    key, operator = str(item.get("key") or ""), str(item.get("operator") or "Equal")
    value, effect = str(item.get("value") or ""), str(item.get("effect") or "")
    seconds = item.get("tolerationSeconds")
    if operator not in ("Equal", "Exists"):
        raise InputError(f"{operator!r} is not an operator", where=where, allowed="Equal, Exists")
    if operator == "Equal" and not key:
        raise InputError("a toleration without a key", where=where, allowed="operator: Exists")
    if operator == "Exists" and value:
        raise InputError(f"Exists of {key or 'all taints'} takes no value", where=where)
    if effect and effect not in EFFECTS:
        raise InputError(f"{effect!r} is not an effect", where=where, allowed=", ".join(EFFECTS))
    if seconds is not None and (effect != NO_EXECUTE or not isinstance(seconds, int)):
        what = "tolerationSeconds must be whole seconds of a NoExecute toleration"
        raise InputError(what, where=where)
    return Toleration(key, operator, value, effect, None if seconds is None else max(0.0, seconds))
