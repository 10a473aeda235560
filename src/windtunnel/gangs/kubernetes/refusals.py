"""Refusals by the API server: each is reported once, and a condition of its set while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.commands import SetCondition
from windtunnel.gangs.objects import TRUE
from windtunnel.gangs.statuses import Condition
from windtunnel.gangs.view import View

REFUSED: Final = "Refused"
FORGET_S: Final = 60.0
"""A refusal expires after this; a call that is still needed is retried sooner."""
REWRITE_S: Final = 1.0
MOST: Final = 100
"""Refused calls kept for one set."""

Key = tuple[str, str, str]
"""The verb, kind and name of a call."""


class _Refusal(NamedTuple):
    says: str
    at_s: float


class Refusals:
    """Calls that were refused and have not succeeded since, and the resulting conditions."""

    def __init__(self, view: View, now_s: float) -> None:
        self._view: Final = view
        self._known: Final[dict[str, dict[Key, _Refusal]]] = {}
        """By set."""
        self._due: Final[dict[str, float]] = {
            owner.name: now_s + FORGET_S
            for owner in view.sets.values()
            if REFUSED in owner.conditions
        }
        """By set: when to check its condition."""

    def next_s(self) -> float:
        return min(self._due.values(), default=INFINITY)

    def failed(self, owner: str, key: Key, says: str, now_s: float) -> bool:
        """Records a refusal; returns whether it is new."""
        known = self._known.setdefault(owner, {})
        before = known.get(key)
        if before is None and len(known) >= MOST:
            known.clear()
        known[key] = _Refusal(says, now_s)
        if before is None or before.says != says:
            self._due[owner] = now_s
            return True
        return False

    def done(self, owner: str, key: Key, now_s: float) -> None:
        if self._known.get(owner, {}).pop(key, None) is not None:
            self._due[owner] = now_s

    def conditions(self, now_s: float) -> Iterator[SetCondition]:
        """The conditions that need to be changed."""
        for name in [name for name, due_s in self._due.items() if due_s <= now_s]:
            known = self._known.get(name, {})
            for key in [key for key, one in known.items() if one.at_s + FORGET_S <= now_s]:
                del known[key]  # no longer wanted
            made = self._condition(name, known, now_s)
            if made is not None:
                self._due[name] = now_s + REWRITE_S  # unless the view shows it before
                yield made
            elif known:
                self._due[name] = min(one.at_s for one in known.values()) + FORGET_S
            else:
                self._known.pop(name, None)
                del self._due[name]

    def _condition(
        self, name: str, known: dict[Key, _Refusal], now_s: float
    ) -> SetCondition | None:
        owner = self._view.sets.get(name)
        if owner is None:
            known.clear()
            return None
        before = owner.conditions.get(REFUSED)
        if not known:
            gone = Condition(REFUSED, "", "", "", now_s)
            return None if before is None else SetCondition(owner, gone)
        first = min(known)
        reason = f"Failed{first[0].capitalize()}"
        says = f"{first[1]} {first[2]}: {known[first].says}"
        if before is not None and before.says(TRUE, reason, says):
            return None
        since_s = before.since_s if before is not None and before.status == TRUE else now_s
        return SetCondition(owner, Condition(REFUSED, TRUE, reason, says, since_s))
