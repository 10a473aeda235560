"""Replays an operator's event log: the decisions of its autoscaler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from windtunnel.core.telemetry import Event
from windtunnel.live.replay import (
    AuditReport,
    LogSection,
    MadeLines,
    audit_all,
    replay,
    sections_of,
)
from windtunnel.scaling.kubernetes import core as facts
from windtunnel.scaling.kubernetes.canary import CanaryOutcome
from windtunnel.scaling.kubernetes.control import ScaleOutcome, TickObservation
from windtunnel.scaling.kubernetes.core import ScalingCore, StoredObject
from windtunnel.scaling.kubernetes.plan import ObjectName


def audit(path: Path) -> AuditReport:
    """Replays a log."""

    def audit_one(start: LogSection) -> AuditReport:
        made = MadeLines()
        return replay(path, start, _ReplayedOperator(made), made)

    return audit_all(sections_of(path), audit_one)


class _ReplayedOperator:
    """An autoscaler that replays the facts of its log."""

    decisions: tuple[str, ...] = facts.DECISIONS

    def __init__(self, made: MadeLines) -> None:
        self._made: Final = made
        self._core: ScalingCore | None = None

    def skips(self, line: Event) -> bool:
        """Skips gangs and machines: the log does not have all the inputs of their decisions."""
        return line.kind not in self.decisions and line.kind not in _FACTS

    def apply(self, line: Event) -> None:
        if line.kind == facts.BEGAN:  # a leader's term
            acts = line.data["acts"]
            self._core = ScalingCore(line.time, acts=acts, record=self._made.record)
        elif self._core is None:
            raise LookupError(facts.BEGAN)
        else:
            _FACTS[line.kind](self._core, line)


def _named(line: Event) -> ObjectName:
    return ObjectName(*line.data["object"])


def _receive(core: ScalingCore, line: Event) -> None:
    data = {key: value for key, value in line.data.items() if key != "object"}
    core.received(StoredObject(_named(line), **data), line.time)


def _others(core: ScalingCore, line: Event) -> None:
    rows = line.data["targets"]
    core.others({(kind, space, name): who for kind, space, name, who in rows}, line.time)


def _check(core: ScalingCore, line: Event) -> None:
    named = _named(line)
    ask = core.objects[named].gate.pending(line.time)
    if ask is None or ask.key != line.data["key"]:
        raise LookupError(line.data["key"])
    outcome = CanaryOutcome(line.data["passed"], line.data["message"])
    core.checked(named, ask, outcome, line.time)


def _observe(core: ScalingCore, line: Event) -> None:
    named = _named(line)
    assert core.objects[named].control is not None
    seen: Any = msgspec.convert(line.data["seen"], TickObservation, str_keys=True)
    try:
        core.decide(named, seen, line.time)
    except Exception:  # noqa: BLE001 - a bug that also ended this pass of the operator
        return


def _carry_out(core: ScalingCore, line: Event) -> None:
    outcome = ScaleOutcome(line.data["outcome"])
    core.carried_out(_named(line), line.data["pool"], outcome, line.data["says"], line.time)


_FACTS: Final[dict[str, Callable[[ScalingCore, Event], object]]] = {
    facts.BEGAN: lambda *_: None,
    facts.RECEIVED: _receive,
    facts.GONE: lambda core, line: core.gone(_named(line), line.time),
    facts.OTHERS: _others,
    facts.PLANNED: lambda core, line: core.plan(line.time),
    facts.RESTORED: lambda core, line: core.restore(_named(line), line.data["record"], line.time),
    facts.RESUMED: lambda core, line: core.resume(_named(line), line.data["state"], line.time),
    facts.CHECKED: _check,
    facts.OBSERVED: _observe,
    facts.CARRIED_OUT: _carry_out,
}
"""How each kind of fact is replayed."""
