"""A trial tells apart what can be wrong with a scenario or with the run of one."""

from typing import Any

import pytest

from windtunnel.core.errors import InvariantBroken
from windtunnel.fuzz import trial
from windtunnel.fuzz.documents import FILES
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import attempt, loaded, probe, with_limits
from windtunnel.twin.progress import NO_PROGRESS
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.plan import ScenarioPlan

SMALL: dict[str, Any] = {
    "name": "small",
    "workload": [
        {
            "name": "chat",
            "count": 3,
            "arrivals": {"process": "constant", "rate": "2/s"},
            "prompt_tokens": 20,
            "output_tokens": 5,
        }
    ],
    "serving": {
        "pools": [
            {
                "name": "main",
                "engine": {"kv_blocks": 20},
                "step_time": {"model": "linear", "fixed": "10ms"},
            }
        ]
    },
}


def test_all_is_well() -> None:
    assert attempt(SMALL, twice=True) is None


def test_a_refusal_is_told_by_its_path() -> None:
    breach = attempt({**SMALL, "duration": -1})
    assert breach is not None
    assert (breach.what, breach.name.split(":")[0]) == ("refused", "duration")
    assert breach.sentence.startswith("scenario.yaml:18: duration")


def test_a_scenario_that_must_be_refused_is_probed_alone() -> None:
    assert probe({**SMALL, "duration": -1}) is None
    assert probe({}) is None


def test_a_livelock_is_a_breach_unless_the_scenario_asks_for_it() -> None:
    """An autoscaler that counts waiting requests, and takes the server as soon as one runs.

    By default the last server stays while there is work. With `wake: false` it goes.
    """
    trigger = {"serverAddress": "http://p:9090", "threshold": "4"}
    trigger["query"] = 'sum(vllm:num_requests_waiting{app="main"})'
    scaled = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "main"},
        "spec": {
            "scaleTargetRef": {"name": "main"},
            "minReplicaCount": 0,
            "maxReplicaCount": 2,
            "cooldownPeriod": 0,
            "triggers": [{"type": "prometheus", "metadata": trigger}],
        },
    }
    serving = {
        **SMALL["serving"],
        "drain": {"policy": "immediate"},
        "startup": {"load": {"mean": "5s"}},
    }
    scaling = {"manifests": ["keda.yml"], "interval": "100ms", "wake": False}
    endless = {**SMALL, "serving": serving, "scaling": scaling, FILES: {"keda.yml": [scaled]}}
    endless["workload"] = [{**SMALL["workload"][0], "count": 1, "output_tokens": 200}]
    with loaded(with_limits(endless)) as plan:
        result = run(plan).result
    assert result["ended_by"] == NO_PROGRESS
    assert "request 0 was restarted 101 times" in result["partial"]
    assert attempt(endless) is None
    endless["scaling"] = {**scaling, "wake": True}
    with loaded(endless) as plan:
        assert run(plan).result["requests"]["completed"] == 1


@pytest.mark.once
def test_an_invariant_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: ScenarioPlan, **_: object) -> Run:
        raise InvariantBroken("invariant 'sums-match' is broken: it is odd; saw 3", where="here")

    monkeypatch.setattr(trial, "run", broken)
    breach = attempt(SMALL)
    assert breach is not None
    assert breach.cause == ("invariant", "sums-match")


@pytest.mark.once
def test_an_exception_is_told_by_its_kind_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: ScenarioPlan, **_: object) -> Run:
        raise ZeroDivisionError

    monkeypatch.setattr(trial, "run", broken)
    breach = attempt(SMALL)
    assert breach is not None
    assert breach.cause == ("error", "ZeroDivisionError in fuzz/trial:_run")
    assert "Traceback" in breach.sentence


def test_a_livelock_is_told_by_its_limit() -> None:
    crashing = {
        **SMALL,
        "workload": [{**SMALL["workload"][0], "count": 1, "output_tokens": 200}],
        "serving": {**SMALL["serving"], "retries": {"attempts": 1000}},
        "faults": [{"kind": "engine-crash", "every": {"mean": 0.05}}],
        "progress": {"losses": 20},
    }
    breach = attempt(crashing)
    assert breach is not None
    assert breach.cause == ("endless", "progress.losses")
    assert "pool main lost a server 21 times, every " in breach.sentence


@pytest.mark.once
def test_a_long_run_whose_requests_finish_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ENOUGH_EVENTS", 100)
    document = {**SMALL, "workload": [{**SMALL["workload"][0], "count": 20_000}]}
    assert attempt(document, twice=True) is None


@pytest.mark.once
def test_a_second_run_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    true_run = run

    def drifting(plan: ScenarioPlan, *, check: bool = False, **options: Any) -> Run:
        done = true_run(plan, check=check, **options)
        if not check:
            done.result["tokens"]["output"] += 1
        return done

    monkeypatch.setattr(trial, "run", drifting)
    breach = attempt(draw(0), twice=True)
    assert breach is not None
    assert (breach.what, breach.sentence) == (
        "differs",
        "a second run gives other values under tokens",
    )
