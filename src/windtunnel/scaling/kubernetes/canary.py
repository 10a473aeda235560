"""Canary checks: a changed policy of an Autoscaler is held until it passed on recorded traffic.

The spec in force is the one that was last applied. An edit of `spec.scaling` under a `canary` is
held as a whole: the spec in force goes on until `windtunnel check` has passed, and stays where it
has failed. A driver runs the check, on the side, in this order:

    plan = gate.plan(named, spec)            # when the object is new or was edited
    gate.restore(record)                     # once the record is read, then gate.plan again
    ask = gate.pending(now_s)                # run it, and then:
    gate.conclude(ask, outcome, now_s)       # then gate.plan again: it may be in force now
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core.units import format_duration
from windtunnel.scaling.kubernetes.autoscaler import CanarySpec, autoscaler_plan
from windtunnel.scaling.kubernetes.control import (
    LONGEST_MESSAGE,
    NORMAL,
    WARNING,
    Condition,
    ObjectEvent,
)
from windtunnel.scaling.kubernetes.plan import InvalidPlan, ObjectName, ScalingPlan

CANARY: Final = "CanaryPassed"
RETRY_S: Final = 600.0
"""A check that came to no verdict is run again after this."""
IN_FORCE: Final = "in-force"
CHANGED: Final = "changed"
JSON_FILE: Final = "check.json"
MARKDOWN_FILE: Final = "check.md"

_NO_VERDICT: Final = "CheckFailed"
_REFUSED: Final = "Refused"
_PASSED: Final = "Passed"


class CanaryAsk(NamedTuple):
    """A check that is to be run."""

    key: str
    """The same for the same policies under the same canary."""
    in_force: Mapping[str, Any]
    """A `scaling` section."""
    changed: Mapping[str, Any]
    canary: CanarySpec


class CanaryOutcome(NamedTuple):
    """What came of a check."""

    passed: bool | None
    """None: it came to no verdict."""
    message: str
    report: str = ""
    """Markdown."""


class _Judgement(NamedTuple):
    key: str
    passed: bool
    message: str


class CanaryGate:
    """Which spec of one Autoscaler is in force, and what became of a changed one."""

    def __init__(self) -> None:
        self.restored = False
        """Whether it is known what was in force before this process."""
        self._in_force: Mapping[str, Any] | None = None
        self._spec: Mapping[str, Any] = {}
        self._canary: CanarySpec | None = None
        self._judged: _Judgement | None = None
        self._failed = _Judgement("", passed=False, message="")
        self._retry_s = -math.inf

    def plan(self, named: ObjectName, spec: Mapping[str, Any]) -> ScalingPlan | InvalidPlan:
        """The plan that is carried out: of this spec, or of the one in force."""
        try:
            made = autoscaler_plan(named.namespace, named.name, spec)
        except InvalidPlan as error:
            return error
        canary = spec.get("canary")
        self._canary = None if canary is None else CanarySpec.model_validate(canary)
        self._spec = {key: value for key, value in spec.items() if key != "canary"}
        if self.waits:
            assert self._in_force is not None
            try:
                return autoscaler_plan(named.namespace, named.name, self._in_force)
            except InvalidPlan:  # an earlier version took it: there is nothing to go on with
                self._in_force = None
        if self.restored:
            self._in_force = self._spec
        return made

    @property
    def checks(self) -> bool:
        """Whether changes are checked at all."""
        return self._canary is not None

    @property
    def waits(self) -> bool:
        """Whether a changed policy is not in force."""
        before = self._in_force
        return self.checks and before is not None and before["scaling"] != self._spec["scaling"]

    def pending(self, now_s: float) -> CanaryAsk | None:
        """The check that is to be run, or goes on."""
        ask = self._ask()
        if ask is None or (self._judged is not None and self._judged.key == ask.key):
            return None
        return None if self._failed.key == ask.key and now_s < self._retry_s else ask

    def _ask(self) -> CanaryAsk | None:
        if not self.waits:
            return None
        assert self._canary is not None
        assert self._in_force is not None
        before, after = self._in_force["scaling"], self._spec["scaling"]
        told = self._canary.model_dump(mode="json")
        text = msgspec.json.encode([before, after, told], order="sorted")
        return CanaryAsk(hashlib.sha256(text).hexdigest(), before, after, self._canary)

    def conclude(
        self, ask: CanaryAsk, outcome: CanaryOutcome, now_s: float, *, acts: bool = True
    ) -> ObjectEvent:
        """Takes note of an outcome; the event that says so."""
        message = outcome.message[:LONGEST_MESSAGE]
        if outcome.passed is None:
            self._failed = _Judgement(ask.key, passed=False, message=message)
            self._retry_s = now_s + RETRY_S
            note = f"the check of the changed policy came to no verdict: {message}"
            return ObjectEvent(WARNING, "CanaryFailed", note)
        self._judged = _Judgement(ask.key, outcome.passed, message)
        if outcome.passed:
            self._in_force = self._spec
            done = "is applied" if acts else "would be applied"
            return ObjectEvent(NORMAL, "CanaryPassed", f"the changed policy {done}: {message}")
        done = "is not applied" if acts else "would not be applied"
        return ObjectEvent(WARNING, "CanaryRefused", f"the changed policy {done}: {message}")

    def condition(self) -> Condition | None:
        """What is known of a change; None: none is checked."""
        if self._canary is None:
            return None
        ask = self._ask()
        judged = self._judged
        if ask is None:
            if judged is not None and judged.passed:
                return Condition(CANARY, holds=True, reason=_PASSED, message=judged.message)
            return Condition(CANARY, holds=True, reason="InForce")
        goes_on = "The policy in force goes on."
        if judged is not None and judged.key == ask.key:
            return _held(_REFUSED, f"{judged.message} {goes_on}")
        if self._failed.key == ask.key:
            again = f"{goes_on} The check is run again after {format_duration(RETRY_S)}."
            return _held(_NO_VERDICT, f"{self._failed.message} {again}")
        what = f"the changed policy is checked on the last {format_duration(self._canary.last)}"
        return _held("Checking", f"{what} of traffic. {goes_on}")

    # What is remembered.

    def record(self) -> dict[str, Any]:
        """What a restart must not lose, as plain data."""
        return {
            "in_force": None if self._in_force is None else dict(self._in_force),
            "judged": None if self._judged is None else list(self._judged),
        }

    def restore(self, record: object) -> None:
        """Takes back what `record` gave; what cannot be read is left out."""
        self.restored = True
        found = record if isinstance(record, dict) else {}
        before = found.get("in_force")
        if isinstance(before, dict) and "scaling" in before:
            self._in_force = before
        match found.get("judged"):
            case [str(key), bool(passed), str(message)]:
                self._judged = _Judgement(key, passed, message[:LONGEST_MESSAGE])


def _held(reason: str, message: str) -> Condition:
    return Condition(CANARY, holds=False, reason=reason, message=message[:LONGEST_MESSAGE])


def sides_of_check(ask: CanaryAsk) -> dict[str, bytes]:
    """The two files that are checked against each other, by name. JSON is YAML, too."""
    sides = {IN_FORCE: ask.in_force, CHANGED: ask.changed}
    return {
        f"{name}.yaml": msgspec.json.encode({"scaling": scaling}) for name, scaling in sides.items()
    }


def check_arguments(ask: CanaryAsk, folder: Path, work: Path) -> list[str]:
    """Of `windtunnel check`: `folder` has scenario and trace, `work` the two sides."""
    canary, limits = ask.canary, ask.canary.limits
    most = [f"--max={figure}={limit}" for figure, limit in limits.max.items()]
    least = [f"--min={figure}={limit}" for figure, limit in limits.min.items()]
    return [
        "check",
        *(str(work / name) for name in sides_of_check(ask)),
        f"--scenario={folder / canary.scenario}",
        f"--trace={folder / canary.trace}",
        f"--last={canary.last}s",
        *([] if limits.max_cost is None else [f"--max-cost={limits.max_cost}"]),
        *([] if limits.min_attainment is None else [f"--min-attainment={limits.min_attainment}"]),
        *most,
        *least,
        "--jobs=1",
        f"--json={work / JSON_FILE}",
        f"--markdown={work / MARKDOWN_FILE}",
        f"--output={work / 'report'}",
    ]


def outcome_of_check(found: Mapping[str, Any], report: str) -> CanaryOutcome:
    """The verdict and its main numbers, of `check.json`."""
    limits: Sequence[Mapping[str, Any]] = found["limits"]
    told = "; ".join(
        f"{one['name']} {one['found_text']} ({one['limit']}: {one['verdict']})" for one in limits
    )
    requests = found["requests"][0]
    traffic = f"{requests:,} requests in {format_duration(found['traffic_s'])}"
    message = f"{found['verdict']} on {traffic}: {told or 'no limits'}."
    return CanaryOutcome(found["verdict"] == "passed", message, report)
