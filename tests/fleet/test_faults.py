"""What goes wrong goes wrong as often as it should, and a shard lives with all of it."""

import math

import pytest
from scipy import stats

from tests.fleet.worlds import ask, idle, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Loop
from windtunnel.core.random import Stream, Streams
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.execution import LOST, STALE
from windtunnel.fleet.instruments import ACTIONS_TOTAL, REJECTED_TOTAL
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import CONFIGURE
from windtunnel.fleet.provider import Completion
from windtunnel.fleet.shape import RACK, ZONE
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, FAILED, SPECULATIVE
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider
from windtunnel.twin.fleet.unreliable import (
    DomainOutage,
    FlappingPeriod,
    ProviderFaults,
    SlowPeriod,
    UnreliableProvider,
    poisson,
)


def configured(count: int, rack: str = "r1") -> list[Machine]:
    held = ask(machines=count).key()
    return [
        Machine(f"c{n:04}-{rack}", shape_of(rack=rack), CONFIGURED, f"h{n}", "east", held)
        for n in range(count)
    ]


def unreliable(
    machines: list[Machine], faults: ProviderFaults, seed: int = 3
) -> tuple[SimulatedProvider, UnreliableProvider]:
    provider = SimulatedProvider(Delays(), Streams(seed))
    for machine in machines:
        provider.add(machine)
    return provider, UnreliableProvider(provider, faults, Streams(seed))


class Fleet:
    """A shard on an unreliable provider."""

    def __init__(self, machines: list[Machine], faults: ProviderFaults, want: int) -> None:
        self.provider, self.unreliable = unreliable(machines, faults)
        self.shard = Shard("s")
        self.driver = FleetDriver(self.unreliable, [self.shard], Streams(4)["fetch"])
        self.loop = Loop(self.driver)
        self.driver.before_cycle = self.unreliable.tick
        self.shard.want("east", [ask(machines=want)])

    def states(self) -> list[int]:
        return [int(entry.state) for entry in self.shard.planner.inventory.entries.values()]

    def counted(self, *labels: str) -> int:
        return self.shard.instruments.counted(ACTIONS_TOTAL, *labels)


@pytest.mark.parametrize("mean", [0.3, 2.5, 12.0])
def test_draws_are_poisson(mean: float) -> None:
    stream, draws = Stream(11, "poisson"), 4000
    seen = [poisson(mean, stream) for _ in range(draws)]
    top = max(seen)
    found = [seen.count(value) for value in range(top + 1)] + [0]
    wanted = [draws * float(stats.poisson.pmf(value, mean)) for value in range(top + 1)]
    wanted.append(draws - sum(wanted))
    statistic = sum(
        (one - other) ** 2 / other for one, other in zip(found, wanted, strict=True) if other > 1e-3
    )
    assert statistic < float(stats.chi2.ppf(0.9999, len(found) - 1))


def test_losses_over_a_soak_are_as_many_as_are_expected() -> None:
    """Half an hour of 400 machines at 2e-5 a second: 14.4 losses; a chi-square over 30 seeds."""
    machines, statistic, total, seeds = configured(400), 0.0, 0, 30
    for seed in range(seeds):
        _, faulty = unreliable(machines, ProviderFaults(losses_per_s=2e-5), seed)
        for tick in range(1, 181):
            faulty.tick(tick * 10.0)
        assert faulty.expected == pytest.approx(400 * 2e-5 * 1800, rel=0.06)  # fewer are left
        statistic += (faulty.lost - faulty.expected) ** 2 / faulty.expected
        total += faulty.lost
    low, high = (float(stats.chi2.ppf(share, seeds)) for share in (0.001, 0.999))
    assert low < statistic < high
    assert total == pytest.approx(seeds * 14.2, rel=0.15)


def test_losses_in_short_and_in_long_ticks_are_as_many() -> None:
    for tick_s in (1.0, 60.0):
        _, faulty = unreliable(configured(100), ProviderFaults(losses_per_s=1e-4))
        for tick in range(1, int(1800 / tick_s) + 1):
            faulty.tick(tick * tick_s)
        assert faulty.expected == pytest.approx(17, abs=1.5)


def test_a_lost_machine_is_replaced_and_nothing_else_happens() -> None:
    machines = [*configured(20), *(idle(f"m{n}") for n in range(20))]
    fleet = Fleet(machines, ProviderFaults(losses_per_s=2e-4), want=20)
    fleet.loop.run(1800.0)
    fleet.unreliable.tick(1800.0)
    lost = fleet.unreliable.lost
    assert 2 <= lost <= 14
    assert fleet.provider.begun[CONFIGURE] == pytest.approx(lost, abs=1)  # the last one may be new
    assert fleet.counted("reclaim") == 0
    assert sum(fleet.provider.repeated.values()) == 0


def test_a_failed_machine_is_replaced_on_the_list() -> None:
    faults = ProviderFaults(losses_per_s=1e-3, vanishing=0.0, replaced_after_s=300.0)
    provider, faulty = unreliable(configured(10), faults)
    for tick in range(1, 30):
        faulty.tick(tick * 10.0)
    failed = sum(one.state == FAILED for one in provider.records())
    assert failed == faulty.lost > 0
    faulty.tick(10_000.0)
    assert len(provider) == 10
    assert sum(one.state == SPECULATIVE for one in provider.records()) == failed


def test_a_rack_goes_as_a_whole_and_its_machines_are_replaced() -> None:
    spare = [idle(f"m{n}", shape_of(rack="r2")) for n in range(8)]
    places = [quota("q1"), quota("q2", shape_of(rack="r2"))]
    loss = DomainOutage(100.0, RACK, "a-r1")
    fleet = Fleet([*configured(6), *spare, *places], ProviderFaults(domains=(loss,)), want=6)
    fleet.loop.run(99.0)
    assert fleet.unreliable.lost_with_domain == 0
    fleet.loop.run(300.0)
    assert fleet.unreliable.lost_with_domain == 6
    assert fleet.states().count(CONFIGURED) == 6
    assert fleet.provider.get("q1") is None  # nothing can be made there either
    assert fleet.provider.get("q2") is not None


def test_a_lost_zone_leaves_a_verdict_and_no_crash() -> None:
    fleet = Fleet(configured(4), ProviderFaults(domains=(DomainOutage(50.0, ZONE, "a"),)), want=4)
    verdicts: list[str] = []
    fleet.driver.after_cycle = lambda _, plan, __: verdicts.extend(
        one.reason for one in plan.shortfalls
    )
    fleet.loop.run(100.0)
    assert set(verdicts) == {
        "short of 8 cpu, 32 memory: no machine that exists or can be created now matches and can "
        "host the smallest unit"
    }


def test_a_slow_provider_is_asked_again_but_begins_nothing_twice() -> None:
    faults = ProviderFaults(slow=(SlowPeriod(0.0, 50.0, 12.0),))
    fleet = Fleet([idle(f"m{n}") for n in range(5)], faults, want=5)
    fleet.loop.run(400.0)
    assert fleet.states() == [CONFIGURED] * 5
    assert fleet.provider.begun[CONFIGURE] == 5
    assert fleet.provider.repeated[CONFIGURE] == len(fleet.shard.reasked) > 0


def test_a_flapping_provider_is_waited_for() -> None:
    faults = ProviderFaults(flapping=(FlappingPeriod(5.0, 600.0, period_s=40.0, up_s=15.0),))
    fleet = Fleet([idle(f"m{n}") for n in range(5)], faults, want=1)
    fleet.loop.run(21.0)
    fleet.shard.want("east", [ask(machines=5)])
    fleet.loop.run(800.0)
    assert fleet.unreliable.unheard > 0
    assert fleet.states() == [CONFIGURED] * 5
    assert fleet.provider.begun[CONFIGURE] == 5


def test_machines_that_cannot_be_listed_now_are_not_gone() -> None:
    faults = ProviderFaults(flapping=(FlappingPeriod(50.0, 1000.0, period_s=2000.0, up_s=0.0),))
    fleet = Fleet(configured(3), faults, want=3)
    fleet.loop.run(900.0)  # everything is listed again in between
    assert fleet.states() == [CONFIGURED] * 3
    assert fleet.counted() == 0


def test_a_provider_that_forgets_orders_is_reminded() -> None:
    fleet = Fleet([idle(f"m{n}") for n in range(12)], ProviderFaults(forgets=0.3), want=12)
    fleet.loop.run(300.0)
    assert fleet.unreliable.forgotten > 0
    assert fleet.states().count(CONFIGURED) == fleet.provider.begun[CONFIGURE] >= 11
    assert sum(fleet.provider.repeated.values()) == 0


def test_answers_that_come_twice_are_stale_the_second_time() -> None:
    fleet = Fleet([idle(f"m{n}") for n in range(12)], ProviderFaults(doubles=1.0), want=12)
    fleet.loop.run(300.0)
    assert fleet.unreliable.doubled == 12
    assert fleet.counted("answer", STALE) == 12
    assert fleet.states() == [CONFIGURED] * 12


def test_lies_are_rejected_counted_and_kept_and_the_truth_is_found_later() -> None:
    faults = ProviderFaults(lies=0.4, losses_per_s=1e-3)
    fleet = Fleet([*configured(6), *(idle(f"m{n}") for n in range(60))], faults, want=6)
    fleet.loop.run(1200.0)
    faulty, shard = fleet.unreliable, fleet.shard
    assert faulty.lied == shard.instruments.counted(REJECTED_TOTAL) > 10
    assert shard.instruments.counted(REJECTED_TOTAL, "illegal_transition") > 0
    for name, (record, sentence) in shard.reconciler.rejected.items():
        assert record.id == name
        assert sentence
    told = {one.id: one.state for one in fleet.provider.records()}
    for name, entry in shard.planner.inventory.entries.items():
        if not shard.executor.is_running(name) and name in told:
            hidden = entry.state == CONFIGURED and told[name] == FAILED  # until it is listed again
            assert entry.state == told[name] or hidden


def test_a_machine_that_is_lost_while_it_is_configured_counts_as_lost() -> None:
    provider, faulty = unreliable([idle("m1")], ProviderFaults())
    shard = Shard("s")
    shard.fold(faulty.list_since("s", 1, 0), 0.0)
    shard.want("east", [ask()])
    _, (fetch,) = shard.cycle(0.0)
    (order,) = shard.answer(Completion("m1", fetch.token), 1.0)
    faulty.begin("s", order, 1.0)
    provider.lose("m1", "it burnt", 2.0)
    shard.fold(faulty.list_since("s", 1, shard.cursor), 3.0)
    assert shard.instruments.counted(ACTIONS_TOTAL, "bootstrap", LOST) == 1
    assert faulty.advance(100.0) == []
    assert shard.planner.inventory.errors["m1"] == "lost: it burnt"


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (ProviderFaults(lies=math.nan), "lies is nan; allowed: 0 to 1"),
        (ProviderFaults(losses_per_s=-1.0), "losses_per_s is -1.0; allowed: 0 or more"),
        (ProviderFaults(replaced_after_s=math.nan), "replaced_after_s is nan"),
        (
            ProviderFaults(slow=(SlowPeriod(0, 1, 0.5),)),
            "a slowness has factor 0.5; allowed: 1 or more",
        ),
        (ProviderFaults(flapping=(FlappingPeriod(0, 1, 10, 11),)), "is up for 11 s of 10 s"),
        (
            ProviderFaults(domains=(DomainOutage(math.nan, RACK, "r"),)),
            "'r' is lost at nan s; allowed: 0",
        ),
        (ProviderFaults(slow=(SlowPeriod(5, 5, 2),)), "is slow from 5 s until 5 s"),
        (
            ProviderFaults(flapping=(FlappingPeriod(math.nan, 1, 10, 5),)),
            "is flapping from nan s until 1 s",
        ),
    ],
)
def test_faults_that_make_no_sense_are_refused(faults: ProviderFaults, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        unreliable([], faults)
