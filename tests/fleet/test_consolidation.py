"""Cheaper machines come before dearer ones go, within a budget, and nobody is worse off."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.worlds import SAME_RACK, idle, needs, quota, shape_of, shapes
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Loop
from windtunnel.core.random import Streams
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.orders import CONFIGURE, DRAIN
from windtunnel.fleet.planner.actions import BOOTSTRAP, PROVISION, CyclePlan
from windtunnel.fleet.planner.consolidation import REASON, ConsolidationLimits, Consolidator
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.shape import shape
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, IDLE
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider

CHEAP = ConsolidationLimits(cooldown_s=60.0)


class Fleet:
    def __init__(self, machines: list[Machine], limits: ConsolidationLimits | None = CHEAP) -> None:
        self.provider = SimulatedProvider(Delays(), Streams(3))
        for machine in machines:
            self.provider.add(machine)
        self.shard = Shard("s", consolidation=limits)
        self.short = 0
        self.driver = FleetDriver(self.provider, [self.shard], Streams(3)["fetch"])
        self.loop = Loop(self.driver)

    def want(self, *wanted: Need) -> None:
        self.shard.want(wanted[0].cluster, wanted)

    def held(self) -> list[str]:
        return [one.id for one in self.provider.records() if one.state == CONFIGURED]

    def note(self, _: Shard, plan: CyclePlan, __: float) -> None:
        self.short = len(plan.shortfalls)

    def cost(self) -> float:
        """Effective dollars per hour of all that is held."""
        found = 0.0
        for one in self.provider.records():
            if one.state == CONFIGURED and one.holder is not None:
                like = one.shape
                bucket = one.holder.interruption_bucket()
                found += effective_cost(like.price_per_hour, like.interruption_probability, bucket)
        return found


def cpu(amount: int, unit: int = 1, penalty: int = 1, cluster: str = "east") -> Need:
    wish = profile(reclamation_bucket=penalty, interruption_bucket=1)
    return need(cluster, wish, {"cpu": amount}, {"cpu": unit})


def bound(name: str, holder: Need, kind: str) -> Machine:
    return Machine(name, shape_of(kind), CONFIGURED, f"h-{name}", holder.cluster, holder.key())


def test_a_need_that_shrank_moves_to_a_machine_of_its_size() -> None:
    fleet = Fleet([idle("l1", shape_of("large"))])
    fleet.want(cpu(8))
    fleet.loop.run(60.0)
    assert fleet.held() == ["l1"]
    fleet.provider.add(idle("m1"))
    fleet.want(cpu(2))
    fleet.loop.run(65.0)
    assert sorted(fleet.held()) == ["l1"]  # the small one comes first
    fleet.loop.run(300.0)
    assert fleet.held() == ["m1"]
    consolidator = fleet.shard.consolidator
    assert consolidator is not None
    assert consolidator.begun == 1
    assert consolidator.saving == pytest.approx(0.25)


def test_nothing_is_drained_before_its_replacement_is_there() -> None:
    fleet = Fleet([bound("l1", cpu(2), "large"), quota("m1")])
    fleet.want(cpu(2))
    while not fleet.provider.begun[DRAIN]:
        assert fleet.loop.step(600.0)
        assert "l1" in fleet.held() or fleet.held() == ["m1"] or fleet.provider.begun[DRAIN]
    assert fleet.held() == ["m1"]
    fleet.loop.run(2000.0)
    assert fleet.provider.begun[CONFIGURE] == 1  # once, and no way back


def test_a_saving_that_is_too_small_or_does_not_pay_is_left() -> None:
    machines = [bound("l1", cpu(8), "large"), *(idle(f"m{n}") for n in range(4))]
    fleet = Fleet(machines)  # four small ones cost more than a large one
    fleet.want(cpu(8))
    fleet.loop.run(300.0)
    assert fleet.provider.begun[CONFIGURE] == 0
    dear = cpu(2, penalty=11)  # 256 dollars to move what saves a quarter of a dollar per hour
    fleet = Fleet([bound("l1", dear, "large"), idle("m1")])
    fleet.want(dear)
    fleet.loop.run(300.0)
    assert fleet.held() == ["l1"]
    fleet = Fleet(
        [bound("l1", dear, "large"), idle("m1")],
        ConsolidationLimits(payback_h=1100.0),
    )
    fleet.want(dear)
    fleet.loop.run(300.0)
    assert fleet.held() == ["m1"]


def test_units_that_must_fit_as_a_whole_still_do() -> None:
    """Three units of 3 cores: two machines of 5 have enough in sum, and room for two units."""
    wish = need("east", profile(), {"cpu": 9}, {"cpu": 3})
    middle = shape("middle", "a", {"cpu": 5}, price_per_hour=0.2)
    large = [bound(name, wish, "large") for name in ("l1", "l2")]
    fleet = Fleet([*large, *(idle(f"m{n}", middle) for n in range(4))])
    fleet.want(wish)
    fleet.loop.run(900.0)
    assert sorted(one[0] for one in fleet.held()) == ["l", "m"]


def test_a_large_machine_takes_the_place_of_many_small_ones() -> None:
    wish = cpu(8)
    small = [bound(f"m{n}", wish, "small") for n in range(4)]
    cheap = shape("huge", "a", {"cpu": 8, "memory": 32}, price_per_hour=0.2)
    fleet = Fleet([*small, idle("h1", cheap)])
    fleet.want(wish)
    while not fleet.provider.begun[DRAIN]:
        assert fleet.loop.step(600.0)
    assert "h1" in fleet.held()  # nothing leaves before the large one is there
    fleet.loop.run(900.0)
    assert fleet.held() == ["h1"]
    consolidator = fleet.shard.consolidator
    assert consolidator is not None
    assert consolidator.begun == 1
    assert consolidator.saving == pytest.approx(0.2)


def test_a_gang_stays_in_its_domain() -> None:
    gang = need("east", profile([SAME_RACK]), {"cpu": 12}, {"cpu": 1}, group="g")
    large = [bound(name, gang, "large") for name in ("l1", "l2")]
    elsewhere = [idle(name, shape_of(rack="r2")) for name in ("m1", "m2")]
    fleet = Fleet([*large, *elsewhere])
    fleet.want(gang)
    fleet.loop.run(300.0)
    assert fleet.held() == ["l1", "l2"]
    for name in ("m3", "m4"):
        fleet.provider.add(idle(name))
    fleet.loop.run(600.0)
    assert fleet.held() == ["l1", "m3", "m4"]


def test_no_more_leave_at_once_than_the_budget() -> None:
    wanted = [need("east", profile(priority=n), {"cpu": 2}, {"cpu": 1}) for n in range(20)]
    machines = [bound(f"l{n:02}", one, "large") for n, one in enumerate(wanted)]
    fleet = Fleet(machines + [idle(f"m{n:02}") for n in range(20)])
    fleet.want(*wanted)
    fleet.loop.step()
    first = [one for one in fleet.shard.planner.inventory.entries.values() if one.id[0] == "m"]
    assert sum(one.row is not None for one in first) == 2  # a tenth of twenty
    fleet.loop.run(3000.0)
    assert all(name.startswith("m") for name in fleet.held())
    assert fleet.provider.begun[CONFIGURE] == 20


def test_two_needs_do_not_get_the_same_machine() -> None:
    wanted = [cpu(2, cluster=name) for name in ("a", "b")]
    machines = [bound(f"l{one.cluster}", one, "large") for one in wanted]
    fleet = Fleet([*machines, idle("m1")])
    for one in wanted:
        fleet.want(one)
    fleet.loop.run(600.0)
    assert sorted(fleet.held()) in (["la", "m1"], ["lb", "m1"])
    assert fleet.provider.begun[CONFIGURE] == 1


def test_actions_say_why() -> None:
    planner = Planner()
    wish = cpu(2)
    planner.inventory.load([bound("l1", wish, "large"), idle("m1"), quota("q1")])
    planner.needs.replace("east", [wish])
    planner.cycle(0.0)
    (action,) = Consolidator(planner).propose(0.0)
    assert (action.kind, action.machine, action.reason) == (BOOTSTRAP, "m1", REASON)
    assert Consolidator(planner).propose(0.0) == []  # it is planned already


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_whatever_is_replaced_needs_stay_satisfied_and_it_gets_cheaper(
    data: st.DataObject,
) -> None:
    kinds = data.draw(st.lists(shapes, min_size=1, max_size=4))
    machines = [
        Machine(f"m{n:02}", data.draw(st.sampled_from(kinds)), IDLE, host=f"h{n}")
        for n in range(data.draw(st.integers(4, 12)))
    ]
    wanted = data.draw(st.lists(needs(), min_size=1, max_size=4))
    runs = []
    for limits in (None, ConsolidationLimits(cooldown_s=30.0, budget_share=1.0)):
        fleet = Fleet(machines, limits)
        fleet.driver.after_cycle = fleet.note
        for cluster in ("east", "west"):
            fleet.shard.want(cluster, [one for one in wanted if one.cluster == cluster])
        fleet.loop.run(500.0)
        runs.append(fleet)
    plain, saving = runs
    if not plain.short:
        assert not saving.short
        begun = saving.shard.consolidator
        assert begun is not None
        if begun.begun:
            assert saving.cost() < plain.cost()
    saving.loop.run(1500.0)
    before = saving.provider.begun[CONFIGURE]
    saving.loop.run(2500.0)
    assert saving.provider.begun[CONFIGURE] == before  # it comes to rest


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (ConsolidationLimits(least_saving=math.nan), "least_saving is nan; allowed: 0 to 1"),
        (ConsolidationLimits(payback_h=-1.0), "payback_h is -1.0; allowed: 0 or more"),
        (ConsolidationLimits(budget_machines=0), "budget_machines is 0; allowed: 1 or more"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: ConsolidationLimits, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Consolidator(Planner(), limits)


def test_places_in_a_quota_serve_as_well() -> None:
    planner = Planner()
    wish = cpu(2)
    planner.inventory.load([bound("l1", wish, "large"), quota("q1")])
    planner.needs.replace("east", [wish])
    planner.cycle(0.0)
    (action,) = Consolidator(planner).propose(0.0)
    assert (action.kind, action.machine) == (PROVISION, "q1")
