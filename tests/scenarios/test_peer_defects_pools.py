"""Defects of other simulators' pools that must not be here, each by its name."""

from tests.twin.runs import run
from tests.twin.scaled import Script, scaled
from tests.twin.test_lifecycle import elastic

# Two servers are idle for 20 s before anybody comes.
IDLE_FIRST = elastic(count=50, rate="20/s", replicas=2, slots=8, load="500ms", interval="1s")
LATE = "workload.0.rate_curve=[[0s, 0], [20s, 0], [20.001s, 1], [1h, 1]]"


def test_a_pool_that_went_to_zero_serves_who_comes_later() -> None:
    """Where nothing scales from zero, every later request is rejected."""
    asleep = [{"main": 0}] * 20
    result, _ = scaled(IDLE_FIRST, Script(*asleep, {"main": 1}), LATE)
    assert result["requests"]["completed"] == result["requests"]["arrived"] == 50
    assert result["pools"]["main"]["replicas"]["drained"] == 2


def test_a_policy_of_our_own_wakes_a_pool_up() -> None:
    window = "scaling.stabilization={up: 0s, down: 5s}"
    result = run(IDLE_FIRST, LATE, window, "scaling.zero_after=5s")
    sizes = [row[1] for row in result["scaling"]["pools"]["main"]["sizes"]]
    assert 0 in sizes
    assert result["requests"]["completed"] == 50


def test_a_server_that_loads_costs_money_before_it_serves() -> None:
    """Elsewhere neither a start-up nor a machine costs anything."""
    text = elastic(count=1, replicas=0, load="10s")
    result, _ = scaled(text, Script({"main": 1}))
    pool = result["pools"]["main"]
    assert pool["replica_seconds"] - pool["ready_seconds"] == 10.0
    assert pool["cost"] > 10.0


def test_ticks_do_not_keep_a_run_alive() -> None:
    """A run without a duration ended only because ticks looked for what remained."""
    result, _ = scaled(elastic(count=1, rate="1000/s", interval="1h"), Script({}))
    assert result["simulated_seconds"] < 1.0
    assert result["scaling"]["ticks"] == 0
