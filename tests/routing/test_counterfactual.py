"""Regret: what fresh signals would have said of a choice."""

import pytest

from tests.routing.fleet import Fleet, prompt
from tests.twin.runs import BUSY
from windtunnel.engine.views import probe
from windtunnel.routing.build import DEFAULT_SCORERS, build_counterfactual
from windtunnel.routing.counterfactual import Counterfactual, Judgement
from windtunnel.routing.settings import RouterSettings
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request


def judge(fleet: Fleet, *scorers: tuple[str, float], others: int = 2) -> Counterfactual:
    weights = dict(scorers) or DEFAULT_SCORERS
    settings = RouterSettings(policy="weighted", scorers=weights, counterfactual=others)
    return build_counterfactual(settings, fleet.everyone, fleet.inputs())


def judged_by(judging: Counterfactual, fleet: Fleet, request: Request, chosen: int) -> Judgement:
    """As a driver does it: the servers are probed, then the choice is judged."""
    probe(fleet.servers, judging.signals, 0.0)
    return judging.judge(request, chosen, 0.0)


def test_a_choice_is_judged_by_the_true_state() -> None:
    fleet = Fleet(3)
    judging = judge(fleet, ("kv-utilization", 1.0), others=1)
    for server in (0, 0, 1):
        fleet.servers[server].submit(prompt(tokens=80), 0.0)
        fleet.servers[server].advance(0.0)
    fleet.see(kv_used=[0.0, 0.9, 0.9])  # what the router was told; the truth is another
    used = [server.kv_used(0.0) for server in fleet.servers]
    assert used[0] > used[1] > used[2] == 0.0
    judged = judged_by(judging, fleet, prompt(), 0)
    assert judged.score == pytest.approx(1.0 - used[0])
    assert judged.others == [(2, 1.0)]
    assert judged.regret == pytest.approx(used[0])
    assert judged_by(judging, fleet, prompt(), 2).regret == 0.0
    summary = judging.summary()
    assert summary["requests"] == 2
    assert summary["better_elsewhere"] == 0.5
    assert summary["regret_max"] == pytest.approx(used[0])
    assert summary["regret_mean"] == pytest.approx(used[0] / 2)


def test_a_guess_is_judged_by_what_it_guesses_at() -> None:
    fleet = Fleet(2)
    judging = judge(fleet, ("prefix-affinity", 1.0), ("no-hit-lru", 5.0))
    fleet.servers[1].submit(prompt(tokens=160, keys=[1]), 0.0)
    fleet.servers[1].advance(0.0)
    judged = judged_by(judging, fleet, prompt(1, tokens=160, keys=[1]), 0)
    assert (judged.score, judged.others) == (0.0, [(1, 0.5)])


def test_without_requests_nothing_is_known() -> None:
    assert judge(Fleet(2)).summary()["regret_mean"] is None
    alone = Fleet(1)
    assert judged_by(judge(alone), alone, prompt(), 0).regret == 0.0


def regret(policy: str, *sets: str) -> dict[str, float | int | None]:
    sets = (f"serving.router.policy={policy}", "serving.router.counterfactual=3", *sets)
    simulation = compose(load_text(BUSY, sets=sets))
    simulation.run(breathe)
    assert simulation.services[0].counterfactual is not None
    return simulation.services[0].counterfactual.summary()


def test_fresh_signals_leave_nothing_to_regret_and_old_ones_do() -> None:
    fresh = regret("weighted", "serving.router.staleness=0s", "serving.router.cache_delay=0s")
    assert fresh["regret_max"] == 0.0
    assert fresh["better_elsewhere"] == 0.0
    old = regret("weighted", "serving.router.staleness=2s", "serving.router.cache_delay=2s")
    blind = regret("random")
    for some in (old, blind):
        assert isinstance(some["regret_mean"], float)
        assert some["regret_mean"] > 0.0
    assert old["regret_mean"] < blind["regret_mean"]  # type: ignore[operator]
