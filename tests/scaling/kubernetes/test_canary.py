"""A changed policy is held until its check has passed; the one in force goes on, over restarts."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.scaling.kubernetes.pods import HPA, plan, target
from tests.scaling.kubernetes.recorded import CANARY, STARVED, WIDER
from tests.scaling.manifests.texts import HOMOGENEOUS
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.canary import (
    RETRY_S,
    CanaryGate,
    CanaryOutcome,
    WantedScaling,
    autoscaler_wants,
    check_arguments,
    outcome_of_check,
    sides_of_check,
)
from windtunnel.scaling.kubernetes.kthena import Stored, wanted_by
from windtunnel.scaling.kubernetes.plan import InvalidPlan, ObjectName, ScalingPlan

NAMED = ObjectName("windtunnel.dev/v1alpha1", "Autoscaler", "ns", "chat")
KTHENA = "workload.serving.volcano.sh/v1alpha1"
GOOD = CanaryOutcome(passed=True, message="passed on 600 requests", report="# good")
BAD = CanaryOutcome(passed=False, message="regression on 600 requests", report="# bad")
NONE = CanaryOutcome(passed=None, message="the check took longer than 10 min.")


def spec(scaling: dict[str, Any] = HPA, **more: Any) -> dict[str, Any]:
    return {"targets": [target()], "scaling": scaling, "canary": CANARY, **more}


def wanted(asked: dict[str, Any]) -> WantedScaling:
    return autoscaler_wants(NAMED, asked)


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
    assert gate.plan(wanted(spec())) == plan()
    assert gate.pending(0.0) is None
    assert told(gate) == (True, "InForce")
    assert gate.plan(wanted(spec(WIDER))) == plan()
    ask = gate.pending(0.0)
    assert ask is not None
    assert (ask.in_force, ask.changed) == ([{"scaling": HPA}], [{"scaling": WIDER}])
    assert told(gate) == (False, "Checking")
    event = gate.conclude(ask, GOOD, 0.0)
    assert event.reason == "CanaryPassed"
    assert most(gate.plan(wanted(spec(WIDER)))) == 9
    assert (told(gate), gate.pending(0.0)) == ((True, "Passed"), None)
    again = restarted(gate)
    assert most(again.plan(wanted(spec(WIDER)))) == 9
    assert told(again) == (True, "Passed")


def test_a_refusal_holds_over_restarts_until_the_object_is_edited() -> None:
    gate = restarted()
    gate.plan(wanted(spec()))
    gate.plan(wanted(spec(STARVED)))
    ask = gate.pending(0.0)
    assert ask is not None
    note = gate.conclude(ask, BAD, 0.0, acts=False).note
    assert note == "the changed policy would not be applied: regression on 600 requests"
    for one in (gate, restarted(gate)):
        assert most(one.plan(wanted(spec(STARVED)))) == 8
        assert (told(one), one.pending(1e9)) == ((False, "Refused"), None)
    other = {**CANARY, "last": "2h"}
    assert most(gate.plan(wanted(spec(STARVED, canary=other)))) == 8
    assert gate.pending(0.0) is not None
    gate.plan(wanted(spec()))
    assert (told(gate), gate.pending(0.0)) == ((True, "InForce"), None)
    without = {key: value for key, value in spec(STARVED).items() if key != "canary"}
    assert most(gate.plan(wanted(without))) == 1
    assert gate.condition() is None


def test_an_edit_is_held_as_a_whole_and_others_are_applied_at_once() -> None:
    gate = restarted()
    gate.plan(wanted(spec()))
    both = gate.plan(wanted(spec(STARVED, mode="Recommend")))
    assert isinstance(both, ScalingPlan)
    assert not both.recommends_only
    mode = gate.plan(wanted(spec(mode="Recommend")))
    assert isinstance(mode, ScalingPlan)
    assert mode.recommends_only
    assert not gate.waits


def test_a_check_without_a_verdict_is_run_again_later() -> None:
    gate = restarted()
    gate.plan(wanted(spec()))
    gate.plan(wanted(spec(WIDER)))
    ask = gate.pending(0.0)
    assert ask is not None
    assert gate.conclude(ask, NONE, 0.0).reason == "CanaryFailed"
    assert told(gate) == (False, "CheckFailed")
    assert gate.pending(RETRY_S - 1.0) is None
    assert gate.pending(RETRY_S) == ask
    gate.conclude(ask, GOOD, RETRY_S)
    assert most(gate.plan(wanted(spec(WIDER)))) == 9


@pytest.mark.parametrize(
    "edit",
    [
        {"scaling": {**HPA, "polcy": "hpa"}},
        {"scaling": None},
        {"targets": []},
        {"canary": {**CANARY, "last": "soon"}},
    ],
)
def test_an_invalid_edit_leaves_the_policy_in_force(edit: dict[str, Any]) -> None:
    gate = restarted()
    gate.plan(wanted(spec()))
    for one in (gate, restarted(gate)):
        assert one.plan(wanted({**spec(), **edit})) == plan()
        assert one.wrong is not None
        assert (told(one), one.pending(0.0)) == ((False, "Invalid"), None)
        assert most(one.plan(wanted(spec()))) == 8
        assert told(one) == (True, "InForce")
    new = restarted()
    assert isinstance(new.plan(wanted({**spec(), **edit})), InvalidPlan)
    bare = {key: value for key, value in {**spec(), **edit}.items() if key != "canary"}
    if "canary" not in edit:  # without one, nothing holds an edit
        assert isinstance(gate.plan(wanted(bare)), InvalidPlan)


def kthena(policy: dict[str, Any], canary: str | None, *bindings: Stored) -> WantedScaling:
    named = ObjectName(KTHENA, "AutoscalingPolicy", "ns", "policy")
    found = wanted_by([Stored(named, policy["spec"], canary)], bindings)
    return dict(found)[bindings[0].named if bindings else named]


def test_a_policy_of_kthena_is_gated_by_an_annotation_on_it_or_its_binding() -> None:
    canary = json.dumps(CANARY)
    wider = copy.deepcopy(HOMOGENEOUS)
    wider["spec"]["homogeneousTarget"]["maxReplicas"] = 9
    gate = restarted()
    assert most(gate.plan(kthena(HOMOGENEOUS, canary))) == 5
    assert most(gate.plan(kthena(wider, canary))) == 5
    ask = gate.pending(0.0)
    assert ask is not None
    (manifest,) = ask.changed
    assert json.loads(sides_of_check(ask)["changed.yaml"]) == manifest
    assert manifest["kind"] == "AutoscalingPolicy"
    again = restarted(gate)
    assert most(again.plan(kthena(wider, canary))) == 5
    assert again.waits
    gate.conclude(ask, GOOD, 0.0)
    assert most(gate.plan(kthena(wider, canary))) == 9
    wrong = copy.deepcopy(wider)
    wrong["spec"]["metrics"] = []
    assert most(gate.plan(kthena(wrong, canary))) == 9
    assert told(gate) == (False, "Invalid")
    assert most(gate.plan(kthena(HOMOGENEOUS, None))) == 5, "without the annotation it is applied"
    bare = copy.deepcopy(HOMOGENEOUS)
    targets = {"homogeneousTarget": bare["spec"].pop("homogeneousTarget")}
    named = ObjectName(KTHENA, "AutoscalingPolicyBinding", "ns", "binding")
    binding = Stored(named, {"policyRef": {"name": "policy"}, **targets}, canary)
    tied = restarted()
    assert most(tied.plan(kthena(bare, None, binding))) == 5
    bare["spec"]["tolerancePercent"] = 50
    tied.plan(kthena(bare, None, binding))
    ask = tied.pending(0.0)
    assert ask is not None
    assert [one["kind"] for one in ask.changed] == [
        "AutoscalingPolicy",
        "AutoscalingPolicyBinding",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3", r"annotations\[windtunnel.dev/canary\]"),
        ("{scenario: a}", r"annotations\[windtunnel.dev/canary\]: trace: missing"),
        ("{scenario: ../a, trace: b}", "scenario: '../a' is outside of the folder"),
        ("{scenario: [", r"annotations\[windtunnel.dev/canary\]"),
        ("{a: " + "x" * 20_000 + "}", "more than 16384 characters"),
    ],
)
def test_a_wrong_annotation_is_refused(text: str, says: str) -> None:
    found = restarted().plan(kthena(HOMOGENEOUS, text))
    assert isinstance(found, InvalidPlan)
    assert re.search(says, str(found)), found


def test_nothing_is_in_force_before_the_record_is_read() -> None:
    """A standby sees an edit that the leader has not judged: it is none to take over."""
    leader, standby = restarted(), CanaryGate()
    leader.plan(wanted(spec()))
    standby.plan(wanted(spec(STARVED)))
    standby.restore(leader.record())
    assert most(standby.plan(wanted(spec(STARVED)))) == 8
    assert standby.waits


@pytest.mark.parametrize(
    "record",
    [None, [], {"in_force": 3}, {"in_force": {"scaling": {"policy": "no"}}, "judged": [1]}],
)
def test_a_record_of_nonsense_is_dropped(record: Any) -> None:
    gate = CanaryGate()
    gate.restore(record)
    assert gate.plan(wanted(spec())) == plan()
    assert told(gate) == (True, "InForce")


def test_the_check_has_the_two_policies_and_all_limits() -> None:
    limits = {"maxCost": "+5%", "minAttainment": "-1%", "max": {"latency.ttft.p99": "+10%"}}
    gate = restarted()
    gate.plan(wanted(spec()))
    gate.plan(wanted(spec(WIDER, canary={**CANARY, "limits": limits})))
    ask = gate.pending(0.0)
    assert ask is not None
    arguments = check_arguments(ask, Path("/canary"), Path("/work"))
    given = {"--scenario=/canary/fleet.yaml", "--trace=/canary/trace", "--last=3600.0s",
              "--max-cost=+5%", "--min-attainment=-1%", "--max=latency.ttft.p99=+10%"}  # fmt: skip
    assert given <= set(arguments)
    assert json.loads(sides_of_check(ask)["changed.yaml"]) == {"scaling": WIDER}


@pytest.mark.parametrize(
    ("verdict", "passed"), [("passed", True), ("regression", False), ("undecided", None)]
)
def test_an_undecided_check_is_tried_again(verdict: str, passed: bool | None) -> None:
    found = {"verdict": verdict, "limits": [], "requests": [600, 600], "traffic_s": 60.0}
    outcome = outcome_of_check(found, "# report")
    assert (outcome.passed, outcome.report) == (passed, "# report")
    assert outcome.message == f"{verdict} on 600 requests in 1 min: no limits."


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
