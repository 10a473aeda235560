"""Replicas that are not needed stay as long as a start takes."""

from windtunnel.scaling.analyzers import Group, replicas_wanted
from windtunnel.scaling.limiters import LimitContext
from windtunnel.scaling.optimizers import Allocation
from windtunnel.scaling.policies.predictive.keeping import SURGE, Keeping
from windtunnel.scaling.snapshot import Model, ReplicaCounts, ReplicaSpec, Variant


def context(now_s: float, current: int, surge: float = 0.0) -> LimitContext:
    variant = Variant("v", counts=ReplicaCounts(target=current), spec=ReplicaSpec(startup_s=60.0))
    group = Group(Model("m", [variant]), "both", [variant], "m/both")
    finding = replicas_wanted(group, current, {SURGE: surge}, "")  # a replica carries 1/s
    allocation = Allocation(group, current, up=[0], down=[0])
    return LimitContext(now_s, [group], [[finding]], [allocation], [False])


def decide(keeping: Keeping, now_s: float, current: int, wanted: int, surge: float = 0.0) -> int:
    now = context(now_s, current, surge)
    decided = keeping.limit([wanted], now)
    keeping.record([wanted], decided, now)
    return decided[0]


def test_what_was_needed_within_a_start_stays() -> None:
    keeping = Keeping()
    assert decide(keeping, 0.0, 2, 6) == 6
    assert decide(keeping, 30.0, 6, 3) == 6
    assert decide(keeping, 45.0, 6, 3) == 6
    assert decide(keeping, 60.0, 6, 3) == 3


def test_what_only_a_surge_asked_for_goes_when_it_is_over() -> None:
    keeping = Keeping()
    assert decide(keeping, 0.0, 2, 9, surge=4.5) == 9
    assert decide(keeping, 15.0, 9, 3) == 5


def test_a_replica_that_a_small_surge_rounds_up_to_goes_with_it() -> None:
    keeping = Keeping()
    assert decide(keeping, 0.0, 5, 6, surge=0.2) == 6
    assert decide(keeping, 15.0, 6, 5) == 6  # 5.8 were needed without it
    keeping = Keeping()
    assert decide(keeping, 0.0, 5, 6, surge=1.0) == 6
    assert decide(keeping, 15.0, 6, 5) == 5


def test_memory_survives_a_restart() -> None:
    keeping = Keeping()
    decide(keeping, 0.0, 2, 6)
    again = Keeping()
    again.restore(keeping.state())
    assert decide(again, 30.0, 6, 3) == 6
    assert "6 replicas were needed within the last 60 s" in again.why(3, 6, 0, context(30.0, 6))
