"""Who makes way for a gang: enough, nobody without need, and never part of a minimum."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gangs.placement.clusters import cluster, free_gpus, group, running
from tests.gangs.placement.reference import can_be_placed
from tests.gangs.placement.test_all_or_nothing import check_counts
from windtunnel.gangs.placement.placer import GangPlacer, Member, Victim
from windtunnel.gangs.placement.requests import GangRequest, PackConstraint
from windtunnel.gangs.placement.space import Space

LEVELS = [None, "rack", "host"]


def without(space: Space, members: list[Member], gang: GangRequest) -> bool:
    """Whether a gang could be placed if these pods were not there."""
    for member in members:
        space.give(space.by_name[member.node], member.shape)
    possible = can_be_placed(space, gang)
    for member in members:
        space.shift(space.by_name[member.node], member.shape, -1)
    return possible


@given(st.data())
@settings(max_examples=2 * settings().max_examples)
def test_as_few_make_way_as_are_needed(data: st.DataObject) -> None:
    space = cluster(*data.draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2),
                                        min_size=1, max_size=3)))  # fmt: skip
    placer = GangPlacer(space)
    lower = []
    for number in range(data.draw(st.integers(1, 4))):
        minimum = data.draw(st.integers(1, 2))
        pods = minimum + data.draw(st.integers(0, 2))
        one = group(space, f"g{number}", minimum, data.draw(st.integers(1, 2)), pods=pods)
        lower.append(
            GangRequest(f"g{number}", [one], priority=data.draw(st.integers(0, 2)), order=number)
        )
    done = placer.plan(lower)
    victims = [running(space, gang, done) for gang in lower]
    pack = data.draw(st.sampled_from(LEVELS))
    asked = group(space, "new", data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    new = GangRequest(
        "new",
        [asked],
        priority=2,
        order=9,
        pack=PackConstraint(pack) if pack else None,
        topology="t",
    )

    def below(priority: int) -> list[Victim]:
        return [one for one in victims if one.members and one.priority < priority]

    everybody = [member for one in below(2) for member in one.members]
    before = free_gpus(space)
    fits, fits_then = can_be_placed(space, new), without(space, everybody, new)
    found = GangPlacer(space).plan([new], below)
    gone = {eviction.pod for eviction in found.evictions}
    if fits or not fits_then:
        assert not gone
        assert bool(found.bindings) == fits
        return
    assert free_gpus(space) == before, "nothing moves before they have ended"
    check_counts(space)
    evicted = [member for member in everybody if member.pod in gone]
    assert without(space, evicted, new)
    for victim in below(2):
        needed = {member.pod for member in victim.members if not member.extra}
        assert not needed & gone or {member.pod for member in victim.members} <= gone
        rest = [member for member in evicted if member not in victim.members]
        if any(member.pod in gone for member in victim.members):
            assert not without(space, rest, new), f"{victim.name} need not have gone"
