"""Searches along the load against curves that are known: they find what solving would."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.search.plan.runs.bisection import (
    PRECISION,
    KneeSearch,
    LoadSearch,
    WantedLoad,
    knee_interval,
)
from windtunnel.search.plan.runs.trials import Rules, Stage, Trial

RULES = Rules(
    attained=0.95,
    confidence=0.95,
    stages=(Stage(0.1, (0,)), Stage(1.0, (0, 1, 2))),
    test=(3, 4, 5, 6, 7),
    max_runs=1e9,
)


def falling(limit: float, wish: WantedLoad) -> Trial:
    """Nearly all are in time up to the limit, and half as many at twice the load; seeds differ."""
    share = 0.99 if wish.load <= limit else 0.99 * limit / wish.load
    wobble = 0.002 * ((wish.seed * 7) % 5 - 2) / 2
    return Trial((min(1.0, share + wobble),), (5000,), 0.0)


def searched(limit: float, rules: Rules = RULES) -> LoadSearch:
    search = LoadSearch(rules)
    moves = search.moves()
    try:
        wishes = next(moves)
        while True:
            wishes = moves.send({wish: falling(limit, wish) for wish in wishes})
    except StopIteration:
        return search


@given(st.floats(1e-2, 1e2))
def test_the_load_that_is_carried(limit: float) -> None:
    """0.95 is reached at limit * 0.99 / 0.95; what is sure is a little less, never more."""
    ended = searched(limit).ended()
    true = limit * 0.99 / 0.95
    assert ended.carried is not None
    assert ended.missed is not None
    assert ended.sure is not None
    assert true * 0.95 <= ended.carried <= true * 1.002
    assert ended.missed >= true * 0.998
    assert ended.sure.low >= 0.95


def test_no_load_and_every_load() -> None:
    never = searched(1e-9).ended()
    assert never.carried is None
    assert never.missed == 2.0**-10
    always = searched(1e9).ended()
    assert always.carried == 2.0**10
    assert always.missed is None


def test_the_limit_of_runs_ends_it() -> None:
    ended = searched(3.0, RULES._replace(max_runs=5.0)).ended()
    assert ended.out_of_runs
    assert ended.carried is None


@given(st.lists(st.floats(0.05, 40.0), min_size=2, max_size=4))
def test_the_knee_of_a_queue(capacities: list[float]) -> None:
    """Latency 1 / (1 - load / capacity) has doubled at half the capacity of each seed."""
    search = KneeSearch(range(len(capacities)), 1e9)
    moves = search.moves()
    try:
        wishes = next(moves)
        while True:
            answers = {}
            for wish in wishes:
                busy = wish.load / capacities[wish.seed]
                answers[wish] = 1.0 / (1.0 - busy) if busy < 0.999 else 1000.0
            wishes = moves.send(answers)
    except StopIteration:
        pass
    knees = search.knees()
    assert [knee.seed for knee in knees] == list(range(len(capacities)))
    for knee, capacity in zip(knees, capacities, strict=True):
        assert knee.load is not None
        # "Light" still has up to a twentieth of a wait in it.
        assert capacity / 2 * 0.97 <= knee.load <= capacity / 2 * 1.08 * (1 + PRECISION)
        assert knee.light_load <= capacity / 8
    interval = knee_interval(knees, 0.95)
    assert interval is not None
    middle = math.exp(sum(math.log(knee.load or 1.0) for knee in knees) / len(knees))
    assert interval.middle == pytest.approx(middle)


def test_no_knee_where_latency_stays() -> None:
    search = KneeSearch([0], 1e9)
    moves = search.moves()
    try:
        wishes = next(moves)
        while True:
            wishes = moves.send(dict.fromkeys(wishes, 0.05))
    except StopIteration:
        pass
    (knee,) = search.knees()
    assert knee.load is None
    assert knee_interval([knee], 0.95) is None
