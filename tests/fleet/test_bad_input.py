"""Bad input is a sentence, a verdict, or a record that is kept: never a crash or a silent drop."""

import math
from typing import Any

import msgspec
import pytest

from tests.fleet.worlds import ask, idle, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.fleet.instruments import REJECTED_TOTAL
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, NeedKey, need, profile
from windtunnel.fleet.provider import Page
from windtunnel.fleet.requirements import requirement, spread
from windtunnel.fleet.shape import RACK, ZONE, MachineShape
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, DRAINING, IDLE
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider
from windtunnel.twin.fleet.workloads import world

JUNK = NeedKey("east", "junk")
FAR = NeedKey("west", ask().key().fingerprint)
NO_BUCKET = NeedKey("east", ask().key().fingerprint.replace("ipb=1", "ipb=99"))


def shaped(**changes: Any) -> MachineShape:
    return msgspec.structs.replace(shape_of(), **changes)


def listed(*records: Machine) -> Shard:
    shard = Shard("s")
    shard.fold(Page(list(records), [], 1), 0.0)
    return shard


BAD_RECORDS = [
    (Machine("m", shaped(price_per_hour=math.nan), IDLE, "h"), "the price per hour is nan"),
    (Machine("m", shaped(price_per_hour=-1.0), IDLE, "h"), "the price per hour is -1.0"),
    (Machine("m", shaped(interruption_probability=1.5), IDLE, "h"), "probability is 1.5"),
    (Machine("m", shaped(resources=(("cpu", math.nan),)), IDLE, "h"), "'cpu' is nan"),
    (Machine("m", shaped(resources=(("cpu", 2.5),)), IDLE, "h"), "'cpu' is 2.5"),
    (Machine("m", shaped(resources=(("cpu", 1), ("cpu", 2))), IDLE, "h"), "is there twice"),
    (Machine("m", shape_of(), CONFIGURED, "h", "east", JUNK), "'junk' is not the fingerprint"),
    (Machine("m", shape_of(), CONFIGURED, "h", "east", NO_BUCKET), "is not the fingerprint"),
    (Machine("m", shape_of(), DRAINING, "h", "east", ask().key(), JUNK), "'junk' is not"),
    (Machine("m", shape_of(), CONFIGURED, "h", "east", FAR), "and to a need of 'west'"),
    (Machine("m", shape_of(), IDLE, "h", since_s=math.nan), "since nan"),
    (Machine("m", shape_of(), IDLE, "h", planned=99), "action 99 does not exist"),
    (Machine("m", shape_of(), 9, "h"), "state 9 does not exist"),
    (Machine("", shape_of(), IDLE, "h"), "a machine has no id"),
]


@pytest.mark.parametrize(("record", "sentence"), BAD_RECORDS)
def test_a_record_that_cannot_be_is_rejected_counted_and_kept(
    record: Machine, sentence: str
) -> None:
    shard = listed(record, idle("good"))
    shard.want("east", [ask()])
    plan, _ = shard.cycle(0.0)
    assert [one.machine for one in plan.actions] == ["good"]
    assert shard.instruments.counted(REJECTED_TOTAL, "impossible_record") == 1
    kept, why = shard.reconciler.rejected[record.id]
    assert kept is record
    assert sentence in why


@pytest.mark.parametrize(("record", "sentence"), BAD_RECORDS)
def test_a_fake_provider_does_not_take_what_cannot_be(record: Machine, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SimulatedProvider(Delays(), Streams(1)).add(record)


def test_what_others_plan_does_not_keep_a_machine_from_us() -> None:
    shard = listed(Machine("m", shape_of(), IDLE, "h", planned=1))
    shard.want("east", [ask()])
    assert len(shard.cycle(0.0)[0].actions) == 1


def amount(cpu: int, unit: int, *wishes: Any, **more: Any) -> Need:
    return need("east", profile(wishes, **more), {"cpu": cpu}, {"cpu": unit})


NOTHING_MATCHES = (
    "no machine that exists or can be created now matches and can host the smallest unit"
)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (amount(99, 99), f"short of 99 cpu: {NOTHING_MATCHES}"),
        (
            amount(99, 1),
            "short of 99 cpu: the quota is too small: all machines that match",
        ),
        (need("east", profile(), {"tpu": 1}, {"tpu": 1}), f"short of 1 tpu: {NOTHING_MATCHES}"),
        (
            amount(1, 1, requirement(ZONE, "In", ["a"]), requirement(ZONE, "NotIn", ["a"])),
            NOTHING_MATCHES,
        ),
        (amount(1, 1, requirement(ZONE, "DoesNotExist")), NOTHING_MATCHES),
        (amount(3, 1, requirement(RACK, "Same", ["nowhere"])), NOTHING_MATCHES),
        (amount(3, 1, requirement("no-such-key", "Same")), NOTHING_MATCHES),
        (amount(3, 1, spread=[spread("no-such-key")]), NOTHING_MATCHES),
    ],
)
def test_what_cannot_be_satisfied_has_a_verdict_in_words(asked: Need, sentence: str) -> None:
    shard = listed(idle("m"))
    shard.want("east", [asked, ask(priority=9999)])
    plan, _ = shard.cycle(0.0)
    (verdict,) = plan.shortfalls
    assert sentence in verdict.reason
    assert len(plan.actions) == 1  # the other need is served all the same


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"arrival_s": math.nan}, "it arrived at nan; allowed: seconds"),
        ({"aggregate": {"cpu": math.nan}}, "the sum is nan; allowed: whole amounts"),
        ({"aggregate": {"cpu": 1.5}}, "the sum is 1.5; allowed: whole amounts"),
        ({"min_unit": {"cpu": 0}}, "the smallest unit is 0"),
        ({"min_unit": {}}, "the smallest unit names nothing"),
    ],
)
def test_a_need_that_makes_no_sense_is_refused(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"aggregate": {"cpu": 2}, "min_unit": {"cpu": 1}}
    with pytest.raises(InputError, match=sentence):
        need("east", profile(), **(given | change))


def test_a_priority_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="the priority is nan"):
        profile(priority=math.nan)  # type: ignore[arg-type]


def test_a_roll_up_speaks_for_its_own_cluster_only() -> None:
    sentence = "roll-up of cluster 'east': it has a need of cluster 'west'"
    for shard in (Shard("s"), listed(idle("m"))):
        with pytest.raises(InputError, match=sentence):
            shard.want("east", [ask("west")])


@pytest.mark.parametrize(("machines", "needs"), [(5, 0), (0, 5), (-3, 3)])
def test_a_fleet_of_nothing_is_refused(machines: int, needs: int) -> None:
    with pytest.raises(InputError, match="is too small to measure; allowed: 1 or more of both"):
        world(machines, needs, Streams(1)["world"])
