"""Decisions that differ between two runs on the same traffic: counts by kind, and the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from windtunnel.search.check.observation import ADMISSIONS, ControlDecision, Observation

ADMISSION, ROUTING, PREFILL_ROUTING = "admission", "routing", "prefill routing"
"""Kinds of decisions about requests; control-plane decisions are named after their controller."""
NONE = "nothing"


class FirstDifference(NamedTuple):
    """The earliest decision of a kind that differs."""

    time_s: float
    subject: str
    base: str
    changed: str


class DecisionDifference(NamedTuple):
    """Differing decisions of one kind."""

    kind: str
    decided: int
    """Number of requests; for the control plane, decisions of either run, where two on one subject
    at one time count once."""
    differ: int
    first: FirstDifference | None


class DecisionDifferences(NamedTuple):
    """Differences for every kind that occurred, and the number of requests in one run only."""

    kinds: list[DecisionDifference]
    unpaired: int


def decision_differences(base: Observation, changed: Observation) -> DecisionDifferences:
    """Compares decisions; a request is the same in both runs if its number and its arrival
    match."""
    import numpy as np

    ours, theirs = changed.requests, base.requests
    _, left, right = np.intersect1d(
        theirs["id"], ours["id"], assume_unique=True, return_indices=True
    )
    same = theirs["arrived"][left] == ours["arrived"][right]
    left, right = left[same], right[same]
    pairs = _Pairs(
        {name: values[left] for name, values in theirs.items()},
        {name: values[right] for name, values in ours.items()},
    )
    let_in = pairs.both("admission", lambda values: values != ADMISSIONS.index("rejected"))
    kinds = [
        pairs.differing(ADMISSION, "admission", None, ADMISSIONS, ADMISSIONS),
        pairs.differing(ROUTING, "server", let_in, base.servers, changed.servers),
    ]
    split = pairs.both("prefill_server", lambda values: values >= 0)
    if split.any():
        servers = base.servers, changed.servers
        kinds.append(pairs.differing(PREFILL_ROUTING, "prefill_server", split, *servers))
    controllers = dict.fromkeys(one.controller for one in (*base.control, *changed.control))
    kinds += [_control(name, base.control, changed.control) for name in controllers]
    most = max(len(theirs["id"]), len(ours["id"]))
    return DecisionDifferences(kinds, most - len(left))


class _Pairs:
    """The requests that are in both runs, row by row."""

    def __init__(self, base: dict[str, Any], changed: dict[str, Any]) -> None:
        self._base = base
        self._changed = changed

    def both(self, column: str, holds: Callable[[Any], Any]) -> Any:
        return holds(self._base[column]) & holds(self._changed[column])

    def differing(
        self, kind: str, column: str, among: Any, base: Sequence[str], changed: Sequence[str]
    ) -> DecisionDifference:
        """Compares a column by name, since server numbers may differ between the runs."""
        import numpy as np

        names = {name: number for number, name in enumerate(dict.fromkeys((*base, *changed)))}
        # A request that was routed nowhere has the number -1, the last entry of each array.
        theirs = np.array([*(names[name] for name in base), -1])[self._base[column]]
        ours = np.array([*(names[name] for name in changed), -1])[self._changed[column]]
        other = theirs != ours
        if among is not None:
            other &= among
        decided = len(other) if among is None else int(among.sum())
        places = np.flatnonzero(other)
        first = None
        if len(places):
            times = self._base["arrived"][places]
            at = places[int(times.argmin())]
            words = [*names, NONE]
            first = FirstDifference(
                float(self._base["arrived"][at]),
                f"request {int(self._base['id'][at])}",
                words[int(theirs[at])],
                words[int(ours[at])],
            )
        return DecisionDifference(kind, decided, len(places), first)


def _control(
    controller: str, base: Sequence[ControlDecision], changed: Sequence[ControlDecision]
) -> DecisionDifference:
    theirs, ours = (
        _in_turn(one for one in side if one.controller == controller) for side in (base, changed)
    )
    keys = sorted({**theirs, **ours})
    differing = [key for key in keys if _decided(theirs.get(key)) != _decided(ours.get(key))]
    first = None
    if differing:
        key = differing[0]
        first = FirstDifference(*key[:2], _words(theirs.get(key)), _words(ours.get(key)))
    return DecisionDifference(controller, len(keys), len(differing), first)


def _in_turn(decisions: Iterable[ControlDecision]) -> dict[tuple[float, str, int], ControlDecision]:
    """Decisions by time, subject, and position among those on that subject at that time."""
    found: dict[tuple[float, str, int], ControlDecision] = {}
    turns: Counter[tuple[float, str]] = Counter()
    for one in decisions:
        at = one.time_s, one.subject
        found[*at, turns[at]] = one
        turns[at] += 1
    return found


def _decided(one: ControlDecision | None) -> str | None:
    return None if one is None else one.decided


def _words(one: ControlDecision | None) -> str:
    if one is None:
        return NONE
    return f"{one.decided} ({one.reason.rstrip('.')})" if one.reason else one.decided
