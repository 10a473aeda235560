"""What clusters are told they could get more of."""

from tests.fleet.worlds import ask, idle, quota
from windtunnel.fleet.planner.actions import CONFIDENCE, CyclePlan
from windtunnel.fleet.planner.cycle import Planner


def told(plan: CyclePlan) -> list[tuple[str, str, float]]:
    return [(one.cluster, CONFIDENCE[one.confidence], one.price_per_hour) for one in plan.hints]


def test_hints_say_what_is_left_and_only_when_it_changed() -> None:
    planner = Planner()
    planner.inventory.load([idle("m1"), idle("m2"), quota("m3")])
    planner.needs.replace("east", [ask(group="g1")])
    assert told(planner.cycle(0.0)) == [("east", "high", 0.1)]
    planner.needs.replace("east", [ask(group="g1"), ask(group="g2")])
    assert told(planner.cycle(4.0)) == []  # too soon after the last time
    assert told(planner.cycle(5.0)) == [("east", "medium", 0.1)]
    assert told(planner.cycle(10.0)) == []  # nothing changed
    planner.needs.replace("west", [ask("west", 2)])
    assert sorted(told(planner.cycle(20.0))) == [("east", "none", 0.0), ("west", "none", 0.0)]
