"""A tree that grows node by node is the tree that is built of all nodes at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gangs.placement.clusters import GPU
from tests.gangs.placement.test_all_or_nothing import check_counts
from windtunnel.gangs.placement import space as space_module
from windtunnel.gangs.placement.space import CHILDREN, NODES, Place, Room, Space, Tree

LEVELS = ["zone", "rack"]
Shown = tuple[str, int, list[int], int, list["Shown"]]

labels = st.fixed_dictionaries(
    {}, optional={"zone": st.sampled_from("ab"), "rack": st.sampled_from(["r1", "r2", "r10"])}
)


def shown(place: Place, room: Room) -> Shown:
    """A place and those within it, in order, with what is counted there."""
    inside = [shown(child, room) for child in place.children]
    return (place.name, place.level, place.total, room.slots[place.number], inside)


def check_numbers(tree: Tree) -> None:
    """Numbers go up in the order of the places, and those within one are a range."""
    ordered: list[Place] = []

    def walk(place: Place) -> None:
        start = len(ordered)
        ordered.append(place)
        for child in place.children:
            assert child.parent is place
            walk(child)
        assert place.last == ordered[-1].number
        assert [other for other in ordered if place.holds(other)] == ordered[start:]

    walk(tree.root)
    numbers = [place.number for place in ordered]
    assert numbers == sorted(set(numbers))
    assert {place.number: place for place in ordered} == tree.places


def ring_names(tree: Tree, room: Room, place: Place, level: int) -> dict[int, list[str]]:
    members = room.ring(place, level).members
    return {count: [tree.places[one].name for one in row] for count, row in members.items()}


def check_equal(grown: Space, room: Room) -> None:
    tree = grown.tree("t", [])
    fresh = Tree(LEVELS, grown.nodes, len(grown.resource_names))
    fresh_room = grown.room(fresh, room.shape)
    assert shown(tree.root, grown.room(tree, room.shape)) == shown(fresh.root, fresh_room)
    assert [leaf.name for leaf in tree.leaves] == [leaf.name for leaf in fresh.leaves]
    assert [tree.has_level(level) for level in (0, 1)] == [fresh.has_level(n) for n in (0, 1)]
    for one, other in zip(sorted(tree.places.items()), sorted(fresh.places.items()), strict=True):
        for level in (CHILDREN, 0, 1, NODES):
            names = [place.name for place in tree.within(one[1], level)]
            assert names == [place.name for place in fresh.within(other[1], level)]
            grown_ring = ring_names(tree, grown.room(tree, room.shape), one[1], level)
            assert grown_ring == ring_names(fresh, fresh_room, other[1], level)
    check_numbers(tree)
    check_numbers(fresh)


@given(st.data())
@pytest.mark.parametrize("tight", [False, True])
def test_a_tree_grows_to_what_building_it_anew_gives(tight: bool, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if tight:  # numbers run out again and again (where constants are not compiled in)
            patch.setattr(space_module, "APART", 4)
            patch.setattr(space_module, "NEXT", 2)
        space = Space()
        space.add_topology("t", LEVELS)
        shape = space.shape({GPU: 2})
        for number in data.draw(st.permutations(range(data.draw(st.integers(1, 12))))):
            gpus = data.draw(st.integers(0, 5))
            node = space.add_node(f"n{number}", {GPU: gpus}, data.draw(labels))
            if gpus >= 2 and data.draw(st.booleans()):
                space.shift(node, shape, -1)
            if data.draw(st.booleans()):
                space.set_usable(node, usable=False)
            check_equal(space, space.room(space.tree("t", []), shape))
            check_counts(space)


def test_a_shape_that_fits_nowhere_fits_when_a_large_node_comes() -> None:
    space = Space()
    shape = space.shape({GPU: 4})
    space.add_node("small", {GPU: 2}, {})
    assert not space.fits_empty(shape)
    space.add_node("large", {GPU: 4}, {})
    assert space.fits_empty(shape)
    space.add_node("another", {GPU: 2}, {})
    assert space.fits_empty(shape)
