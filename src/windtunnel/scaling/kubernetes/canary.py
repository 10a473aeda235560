"""Canary checks: a changed policy is held until it has passed on recorded traffic.

The policy in force is the one last applied. Under a `canary`, a changed policy is held together
with everything else that was edited: the old plan stays in force until `windtunnel check` has
passed, and remains if the check fails or the edit is invalid. A driver runs the check in the
background, in this order:

    plan = gate.plan(wanted)                 # when the object is new or was edited
    gate.restore(record)                     # once the record is read, then gate.plan again
    ask = gate.pending(now_s)                # run it, and then:
    gate.conclude(ask, outcome, now_s)       # then gate.plan again: it may be in force now
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pydantic import ValidationError

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration
from windtunnel.scaling.kubernetes.autoscaler import CanarySpec, autoscaler_plan, invalid
from windtunnel.scaling.kubernetes.control import (
    LONGEST_MESSAGE,
    NORMAL,
    WARNING,
    AutoscalerCondition,
    AutoscalerEvent,
)
from windtunnel.scaling.kubernetes.plan import InvalidPlan, ObjectName, ScalingPlan, attempt
from windtunnel.settings.document import parse_value
from windtunnel.settings.faults import checker_faults
from windtunnel.settings.section import Context, faults_of

CANARY: Final = "CanaryPassed"
ANNOTATION: Final = "windtunnel.dev/canary"
"""The annotation with the canary of an object of another project's kind."""
LONGEST_ANNOTATION: Final = 16 << 10
GOES_ON: Final = "The policy in force goes on."
RETRY_S: Final = 600.0
"""A check without a verdict is run again after this time."""
IN_FORCE: Final = "in-force"
CHANGED: Final = "changed"
JSON_FILE: Final = "check.json"
MARKDOWN_FILE: Final = "check.md"

_NO_VERDICT: Final = "CheckFailed"
_REFUSED: Final = "Refused"
_PASSED: Final = "Passed"


Documents = Sequence[Mapping[str, Any]]
"""One side of a check: a `scaling` section, or manifests."""


class WantedScaling(NamedTuple):
    """The scaling that an object asks for."""

    policy: Documents
    """The documents that a check compares."""
    rest: Mapping[str, Any]
    """The rest of the input to `make`."""
    make: Callable[[Documents, Mapping[str, Any]], ScalingPlan]
    """Makes the plan; raises InvalidPlan."""
    read_canary: Callable[[], CanarySpec] | None = None
    """Reads the canary; raises InvalidPlan. None: changes are applied at once."""


class CanaryAsk(NamedTuple):
    """A request to run a check."""

    key: str
    """The same for the same policies under the same canary."""
    in_force: Documents
    changed: Documents
    canary: CanarySpec


class CanaryOutcome(NamedTuple):
    """The outcome of a check."""

    passed: bool | None
    """None: the check reached no verdict."""
    message: str
    report: str = ""
    """In Markdown."""


class _Judgement(NamedTuple):
    key: str
    passed: bool
    message: str


class _InForce(NamedTuple):
    policy: Documents
    rest: Mapping[str, Any]


class CanaryGate:
    """The policy in force for one object, and the state of a changed one."""

    def __init__(self) -> None:
        self.restored = False
        """Whether the policy in force before this process started is known."""
        self.wrong: InvalidPlan | None = None
        """The fault in the latest edit, where changes are checked."""
        self._in_force: _InForce | None = None
        self._changed = _InForce((), {})
        self._checks = False
        self._canary: CanarySpec | None = None
        """None: there is none, or it is invalid."""
        self._judged: _Judgement | None = None
        self._failed = _Judgement("", passed=False, message="")
        self._retry_s = -math.inf

    def plan(self, wanted: WantedScaling) -> ScalingPlan | InvalidPlan:
        """Returns the plan to carry out: of the wanted policy, or of the one in force."""
        self._checks, self._canary = wanted.read_canary is not None, None
        made = _plan(wanted, wanted)
        if wanted.read_canary is not None and not isinstance(made, InvalidPlan):
            canary = attempt(wanted.read_canary)
            if isinstance(canary, InvalidPlan):
                made = canary
            else:
                self._canary = canary
        is_wrong = isinstance(made, InvalidPlan)
        self.wrong = made if isinstance(made, InvalidPlan) and self._checks else None
        if not is_wrong:
            self._changed = _InForce(wanted.policy, wanted.rest)
        if self._in_force is not None and (self.wrong or self.waits):
            plan = _plan(wanted, self._in_force)
            if not isinstance(plan, InvalidPlan):
                return plan
            self._in_force = None  # only an earlier version accepted it: nothing valid to keep
        if self.restored and not is_wrong:
            self._in_force = self._changed
        return made

    @property
    def checks(self) -> bool:
        """Whether changes are checked at all."""
        return self._checks

    @property
    def waits(self) -> bool:
        """Whether a changed policy is being held."""
        before = self._in_force
        if self._canary is None or before is None:
            return False
        return list(before.policy) != list(self._changed.policy)

    def pending(self, now_s: float) -> CanaryAsk | None:
        """The check to run, or still running."""
        ask = self._ask()
        if ask is None or (self._judged is not None and self._judged.key == ask.key):
            return None
        return None if self._failed.key == ask.key and now_s < self._retry_s else ask

    def _ask(self) -> CanaryAsk | None:
        if not self.waits:
            return None
        assert self._canary is not None
        assert self._in_force is not None
        before, after = self._in_force.policy, self._changed.policy
        told = self._canary.model_dump(mode="json")
        text = msgspec.json.encode([before, after, told], order="sorted")
        return CanaryAsk(hashlib.sha256(text).hexdigest(), before, after, self._canary)

    def conclude(
        self, ask: CanaryAsk, outcome: CanaryOutcome, now_s: float, *, acts: bool = True
    ) -> AutoscalerEvent:
        """Records an outcome; returns the event that reports it."""
        message = outcome.message[:LONGEST_MESSAGE]
        if outcome.passed is None:
            self._failed = _Judgement(ask.key, passed=False, message=message)
            self._retry_s = now_s + RETRY_S
            note = f"the check of the changed policy came to no verdict: {message}"
            return AutoscalerEvent(WARNING, "CanaryFailed", note)
        self._judged = _Judgement(ask.key, outcome.passed, message)
        if outcome.passed:
            self._in_force = self._changed
            done = "is applied" if acts else "would be applied"
            return AutoscalerEvent(NORMAL, "CanaryPassed", f"the changed policy {done}: {message}")
        done = "is not applied" if acts else "would not be applied"
        return AutoscalerEvent(WARNING, "CanaryRefused", f"the changed policy {done}: {message}")

    def condition(self) -> AutoscalerCondition | None:
        """The condition about a changed policy; None: changes are not checked."""
        if not self._checks:
            return None
        if self.wrong is not None:
            return _held("Invalid", f"the edit is invalid. {GOES_ON}")
        ask = self._ask()
        judged = self._judged
        if ask is None:
            if judged is not None and judged.passed:
                return AutoscalerCondition(
                    CANARY, holds=True, reason=_PASSED, message=judged.message
                )
            return AutoscalerCondition(CANARY, holds=True, reason="InForce")
        if judged is not None and judged.key == ask.key:
            return _held(_REFUSED, f"{judged.message} {GOES_ON}")
        if self._failed.key == ask.key:
            again = f"{GOES_ON} The check is run again after {format_duration(RETRY_S)}."
            return _held(_NO_VERDICT, f"{self._failed.message} {again}")
        last = format_duration(ask.canary.last)
        what = f"the changed policy is checked on the last {last}"
        return _held("Checking", f"{what} of traffic. {GOES_ON}")

    # What is remembered.

    def record(self) -> dict[str, Any]:
        """State to keep across a restart, as plain data."""
        return {
            "in_force": None if self._in_force is None else self._in_force._asdict(),
            "judged": None if self._judged is None else list(self._judged),
        }

    def restore(self, record: object) -> None:
        """Restores a `record`; unreadable parts are ignored."""
        self.restored = True
        found = record if isinstance(record, dict) else {}
        match found.get("in_force"):
            case {"policy": list(policy), "rest": dict(rest)}:
                if all(isinstance(one, dict) for one in policy):
                    self._in_force = _InForce(policy, rest)
        match found.get("judged"):
            case [str(key), bool(passed), str(message)]:
                self._judged = _Judgement(key, passed, message[:LONGEST_MESSAGE])


def _plan(wanted: WantedScaling, of: WantedScaling | _InForce) -> ScalingPlan | InvalidPlan:
    return attempt(partial(wanted.make, of.policy, of.rest))


def _held(reason: str, message: str) -> AutoscalerCondition:
    return AutoscalerCondition(
        CANARY, holds=False, reason=reason, message=message[:LONGEST_MESSAGE]
    )


def autoscaler_wants(named: ObjectName, spec: Mapping[str, Any]) -> WantedScaling:
    """The scaling that an Autoscaler asks for; its policy is the `scaling` section."""
    canary = spec.get("canary")
    policy = [{"scaling": spec["scaling"]}] if "scaling" in spec else []
    rest = {key: value for key, value in spec.items() if key != "scaling"}

    def make(policy: Documents, rest: Mapping[str, Any]) -> ScalingPlan:
        whole = {**rest, **(policy[0] if policy else {})}
        return autoscaler_plan(named.namespace, named.name, whole)

    read = None if canary is None else partial(CanarySpec.model_validate, canary)
    return WantedScaling(policy, rest, make, read)


def annotated_canary(text: str) -> CanarySpec:
    """Reads the canary from an annotation; raises InvalidPlan if it is wrong."""
    where = f"metadata.annotations[{ANNOTATION}]"
    if len(text) > LONGEST_ANNOTATION:
        raise InvalidPlan(f"{where}: it has more than {LONGEST_ANNOTATION} characters")
    try:
        made = CanarySpec.model_validate(parse_value(text, where))
    except ValidationError as error:
        raise InvalidPlan(f"{where}: {invalid(checker_faults(error, CanarySpec))}") from None
    except InputError as error:
        raise InvalidPlan(str(error)) from None
    faults = list(faults_of(made, Context(None, Path())))
    if faults:
        raise InvalidPlan(f"{where}: {invalid(faults)}")
    return made


def sides_of_check(ask: CanaryAsk) -> dict[str, bytes]:
    """The two files to compare, by name. JSON is valid YAML."""
    sides = {IN_FORCE: ask.in_force, CHANGED: ask.changed}
    return {
        f"{name}.yaml": b"\n---\n".join(map(msgspec.json.encode, documents))
        for name, documents in sides.items()
    }


def check_arguments(ask: CanaryAsk, folder: Path, work: Path) -> list[str]:
    """Arguments of `windtunnel check`: `folder` has scenario and trace, `work` the two files."""
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
    """Reads the verdict and its main numbers from `check.json`.

    An undecided check is like one that could not run: it is repeated, with later traffic.
    """
    limits: Sequence[Mapping[str, Any]] = found["limits"]
    told = "; ".join(
        f"{one['name']} {one['found_text']} ({one['limit']}: {one['verdict']})" for one in limits
    )
    requests = found["requests"][0]
    traffic = f"{requests:,} requests in {format_duration(found['traffic_s'])}"
    message = f"{found['verdict']} on {traffic}: {told or 'no limits'}."
    passed = {"passed": True, "regression": False}.get(found["verdict"])
    return CanaryOutcome(passed, message, report)
