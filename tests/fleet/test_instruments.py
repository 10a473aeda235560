"""Where the time of a cycle goes: it adds up, nothing saturates, and others can read it."""

import json

from tests.fleet.worlds import SAME_RACK, ask, idle, shape_of
from windtunnel.fleet.instruments import (
    CALLS_TOTAL,
    CYCLE,
    PHASE_1,
    PHASE_2,
    PHASE_3,
    POOL_BUILD,
    TAKE,
    TAKE_CO_LOCATED,
    TAKE_SPREAD,
    VERDICTS_TOTAL,
    Instruments,
)
from windtunnel.fleet.planner.cycle import Planner


class Ticks:
    """A clock that goes on by one whenever it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return float(self.reads)


def busy(instruments: Instruments) -> Planner:
    """A planner that has needs of every kind to look at."""
    planner = Planner(instruments)
    planner.inventory.load(
        idle(f"m{n:02}", shape_of(zone="ab"[n % 2], rack=f"r{n % 3}")) for n in range(30)
    )
    wishes = [ask(machines=2, group=f"plain{n}") for n in range(4)]
    wishes += [ask("east", 2, "small", SAME_RACK, group=f"gang{n}") for n in range(3)]
    wishes += [ask(machines=2, skew=1, group="even"), ask(kind="large")]
    planner.needs.replace("east", wishes)
    return planner


def test_the_parts_cover_the_time_of_a_cycle() -> None:
    told = Instruments(Ticks())
    planner = busy(told)
    for second in range(5):
        planner.cycle(float(second))
    assert 0.95 <= told.attributed() <= 1.0
    phases = sum(told.times[name].total for name in (PHASE_1, PHASE_2, PHASE_3))
    around = told.times["snapshot"].total
    assert phases == told.times[CYCLE].total - around


def test_calls_are_counted_by_path() -> None:
    told = Instruments(Ticks())
    busy(told).cycle(0.0)
    calls = [told.counted(CALLS_TOTAL, path) for path in (TAKE, TAKE_CO_LOCATED, TAKE_SPREAD)]
    assert calls == [5, 3, 1]
    assert [told.times[path].count for path in (TAKE, TAKE_CO_LOCATED, TAKE_SPREAD)] == calls
    assert told.times[POOL_BUILD].count == 4  # one for each kind of need, not for each need
    assert told.counted(VERDICTS_TOTAL, "NO_MATCHING_SUPPLY") == 1


def test_without_a_clock_nothing_is_timed_and_all_is_counted() -> None:
    told = Instruments()
    busy(told).cycle(0.0)
    assert told.times[CYCLE].count == 0
    assert told.counted(CALLS_TOTAL) == 9


def test_the_dump_is_plain_data() -> None:
    told = Instruments(Ticks())
    busy(told).cycle(0.0)
    dump = json.loads(json.dumps(told.as_json()))
    assert dump["counts"]["calls"] == {"take": 5, "take_co_located": 3, "take_spread": 1}
    assert dump["attributed"] >= 0.95
