"""A changed policy is held until its check has passed; the one in force goes on, over restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scaling.kubernetes.pods import HPA, plan, target
from tests.scaling.kubernetes.recorded import CANARY, STARVED, WIDER
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.canary import (
    RETRY_S,
    CanaryGate,
    CanaryOutcome,
    check_arguments,
    sides_of_check,
)
from windtunnel.scaling.kubernetes.plan import InvalidPlan, ObjectName, ScalingPlan

NAMED = ObjectName("windtunnel.dev/v1alpha1", "Autoscaler", "ns", "chat")
GOOD = CanaryOutcome(passed=True, message="passed on 600 requests", report="# good")
BAD = CanaryOutcome(passed=False, message="regression on 600 requests", report="# bad")
NONE = CanaryOutcome(passed=None, message="the check took longer than 10 min.")


def spec(scaling: dict[str, Any] = HPA, **more: Any) -> dict[str, Any]:
    return {"targets": [target()], "scaling": scaling, "canary": CANARY, **more}


def restarted(gate: CanaryGate | None = None) -> CanaryGate:
    made = CanaryGate()
    made.restore(None if gate is None else json.loads(json.dumps(gate.record())))
    return made


def most(made: ScalingPlan | InvalidPlan) -> int:
    assert isinstance(made, ScalingPlan)
    return made.targets[0].bounds.max


def told(gate: CanaryGate) -> tuple[bool, str]:
    condition = gate.condition()
    assert condition is not None
    return condition.holds, condition.reason


def test_the_first_policy_is_applied_and_a_changed_one_waits_for_its_verdict() -> None:
    gate = restarted()
    assert gate.plan(NAMED, spec()) == plan()
    assert gate.pending(0.0) is None
    assert told(gate) == (True, "InForce")
    assert gate.plan(NAMED, spec(WIDER)) == plan()
    ask = gate.pending(0.0)
    assert ask is not None
    assert (ask.in_force, ask.changed) == (HPA, WIDER)
    assert told(gate) == (False, "Checking")
    event = gate.conclude(ask, GOOD, 0.0)
    assert event.reason == "CanaryPassed"
    assert most(gate.plan(NAMED, spec(WIDER))) == 9
    assert (told(gate), gate.pending(0.0)) == ((True, "Passed"), None)
    again = restarted(gate)
    assert most(again.plan(NAMED, spec(WIDER))) == 9
    assert told(again) == (True, "Passed")


def test_a_refusal_holds_over_restarts_until_the_object_is_edited() -> None:
    gate = restarted()
    gate.plan(NAMED, spec())
    gate.plan(NAMED, spec(STARVED))
    ask = gate.pending(0.0)
    assert ask is not None
    note = gate.conclude(ask, BAD, 0.0, acts=False).note
    assert note == "the changed policy would not be applied: regression on 600 requests"
    for one in (gate, restarted(gate)):
        assert most(one.plan(NAMED, spec(STARVED))) == 8
        assert (told(one), one.pending(1e9)) == ((False, "Refused"), None)
    other = {**CANARY, "last": "2h"}
    assert most(gate.plan(NAMED, spec(STARVED, canary=other))) == 8
    assert gate.pending(0.0) is not None
    gate.plan(NAMED, spec())
    assert (told(gate), gate.pending(0.0)) == ((True, "InForce"), None)
    without = {key: value for key, value in spec(STARVED).items() if key != "canary"}
    assert most(gate.plan(NAMED, without)) == 1
    assert gate.condition() is None


def test_an_edit_is_held_as_a_whole_and_others_are_applied_at_once() -> None:
    gate = restarted()
    gate.plan(NAMED, spec())
    both = gate.plan(NAMED, spec(STARVED, mode="Recommend"))
    assert isinstance(both, ScalingPlan)
    assert not both.recommends_only
    mode = gate.plan(NAMED, spec(mode="Recommend"))
    assert isinstance(mode, ScalingPlan)
    assert mode.recommends_only
    assert not gate.waits


def test_a_check_without_a_verdict_is_run_again_later() -> None:
    gate = restarted()
    gate.plan(NAMED, spec())
    gate.plan(NAMED, spec(WIDER))
    ask = gate.pending(0.0)
    assert ask is not None
    assert gate.conclude(ask, NONE, 0.0).reason == "CanaryFailed"
    assert told(gate) == (False, "CheckFailed")
    assert gate.pending(RETRY_S - 1.0) is None
    assert gate.pending(RETRY_S) == ask
    gate.conclude(ask, GOOD, RETRY_S)
    assert most(gate.plan(NAMED, spec(WIDER))) == 9


def test_nothing_is_in_force_before_the_record_is_read() -> None:
    """A standby sees an edit that the leader has not judged: it is none to take over."""
    leader, standby = restarted(), CanaryGate()
    leader.plan(NAMED, spec())
    standby.plan(NAMED, spec(STARVED))
    standby.restore(leader.record())
    assert most(standby.plan(NAMED, spec(STARVED))) == 8
    assert standby.waits


@pytest.mark.parametrize(
    "record",
    [None, [], {"in_force": 3}, {"in_force": {"scaling": {"policy": "no"}}, "judged": [1]}],
)
def test_a_record_of_nonsense_is_dropped(record: Any) -> None:
    gate = CanaryGate()
    gate.restore(record)
    assert gate.plan(NAMED, spec()) == plan()
    assert told(gate) == (True, "InForce")


def test_the_check_has_the_two_policies_and_all_limits() -> None:
    limits = {"maxCost": "+5%", "minAttainment": "-1%", "max": {"latency.ttft.p99": "+10%"}}
    gate = restarted()
    gate.plan(NAMED, spec())
    gate.plan(NAMED, spec(WIDER, canary={**CANARY, "limits": limits}))
    ask = gate.pending(0.0)
    assert ask is not None
    arguments = check_arguments(ask, Path("/canary"), Path("/work"))
    wanted = {"--scenario=/canary/fleet.yaml", "--trace=/canary/trace", "--last=3600.0s",
              "--max-cost=+5%", "--min-attainment=-1%", "--max=latency.ttft.p99=+10%"}  # fmt: skip
    assert wanted <= set(arguments)
    assert json.loads(sides_of_check(ask)["changed.yaml"]) == {"scaling": WIDER}


@pytest.mark.parametrize(
    ("canary", "says"),
    [
        ({**CANARY, "scenario": "/etc/passwd"}, "spec.canary.scenario: '/etc/passwd' is outside"),
        ({**CANARY, "trace": "a/../../b"}, "spec.canary.trace: 'a/../../b' is outside"),
        ({**CANARY, "last": "1s"}, "spec.canary.last"),
        ({"scenario": "a"}, "spec.canary.trace"),
    ],
)
def test_a_wrong_canary_is_refused(canary: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPlan, match=says):
        autoscaler_plan("ns", "chat", spec(canary=canary))
