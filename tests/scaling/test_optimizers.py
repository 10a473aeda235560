"""Which variant grows and which shrinks: the cheapest and the dearest, within what is free."""

from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.worlds import fleet, variant
from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.optimizers import Allocation, CostOrdered
from windtunnel.scaling.snapshot import Variant


def finding(required: float, spare: float, *per_replica: float) -> Finding:
    return Finding(
        demand=0.0,
        supply=0.0,
        required=required,
        spare=spare,
        per_replica=list(per_replica),
        evidence={},
        sentence="",
    )


def allocated(
    optimizer: CostOrdered, variants: list[Variant], *known: Finding, free: int | None = None
) -> list[int]:
    model = fleet(*variants).models[0]
    group = Group(model, "both", variants, "m/both")
    there = None if free is None else {"h100": free, "l40s": free}
    (allocation,) = optimizer.allocate([group], [list(known)], there)
    total = allocation.total
    if free is not None:
        total = min(total, allocation.reachable())
    return allocation.counts_at(min(max(total, group.minimum), group.maximum))


def two(minimum: int = 0, maximum: int = 100) -> list[Variant]:
    """A cheap one that can do little, and a dear one that can do more for its price."""
    cheap = variant(
        "cheap", ready=2, price=2.0, accelerator="l40s", minimum=minimum, maximum=maximum
    )
    dear = variant("dear", ready=2, price=6.0)
    return [cheap, dear]


def test_it_grows_where_capacity_is_cheapest() -> None:
    need = finding(250.0, 0.0, 20.0, 100.0)
    assert allocated(CostOrdered(order="price"), two(), need) == [15, 2]
    assert allocated(CostOrdered(), two(), need) == [2, 5]


def test_the_next_variant_takes_what_the_first_has_no_room_for() -> None:
    need = finding(150.0, 0.0, 20.0, 100.0)
    assert allocated(CostOrdered(order="price"), two(maximum=4), need) == [4, 4]


def test_greedy_minds_what_is_free() -> None:
    need = finding(250.0, 0.0, 20.0, 100.0)
    assert allocated(CostOrdered(), two(), need, free=1) == [3, 3]
    unlimited = CostOrdered(engine="unlimited")
    (allocation,) = unlimited.allocate(
        [Group(fleet(*two()).models[0], "both", two(), "m/both")], [[need]], {"h100": 0}
    )
    assert allocation.reachable() == -1
    assert allocation.counts_at(allocation.total) == [2, 5]


def test_it_shrinks_where_capacity_is_dearest() -> None:
    spare = finding(0.0, 130.0, 20.0, 100.0)
    assert allocated(CostOrdered(order="price"), two(), spare) == [1, 1]
    assert allocated(CostOrdered(), two(), spare) == [0, 2]
    assert allocated(CostOrdered(), two(minimum=2), spare) == [2, 1]


def test_one_variant_takes_it_all_as_blis_has_it() -> None:
    blis = CostOrdered(order="price", one_variant=True)
    assert allocated(blis, two(), finding(250.0, 0.0, 20.0, 100.0)) == [15, 2]
    assert allocated(blis, two(), finding(0.0, 130.0, 20.0, 100.0)) == [2, 1]
    assert allocated(blis, two(), finding(0.0, 30.0, 20.0, 100.0)) == [2, 1]  # at least one


def test_any_analyzer_may_ask_for_more_and_all_must_agree_to_fewer() -> None:
    more, fewer = finding(100.0, 0.0, 100.0, 100.0), finding(0.0, 500.0, 100.0, 100.0)
    none = finding(0.0, 0.0, 100.0, 100.0)
    cheap_first = CostOrdered(order="price")
    assert allocated(cheap_first, two(), more, fewer) == [3, 2]
    assert allocated(cheap_first, two(), none, fewer) == [2, 2]
    assert allocated(cheap_first, two(), fewer, fewer) == [0, 0]


def test_capacity_that_nobody_knows_grows_by_one_and_never_shrinks() -> None:
    assert allocated(CostOrdered(order="price"), two(), finding(9.0, 0.0, 0.0, 0.0)) == [3, 2]
    assert allocated(CostOrdered(order="price"), two(), finding(0.0, 9.0, 0.0, 0.0)) == [2, 2]


SIZES = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 4))


@given(st.lists(SIZES, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_total_is_spread_evenly_ordered_and_adds_up(
    drawn: list[tuple[int, int, int]], random: object
) -> None:
    variants = [
        variant(str(number), ready=ready, minimum=minimum, maximum=minimum + room)
        for number, (ready, minimum, room) in enumerate(drawn)
    ]
    order = list(range(len(variants)))
    random.shuffle(order)  # type: ignore[attr-defined]
    group = Group(fleet(*variants).models[0], "both", variants, "m/both")
    cuts = [total % 3 for total in order]
    allocation = Allocation(group, 0, up=order, down=order[::-1], cuts=cuts)
    before = [0] * len(variants)
    for total in range(group.maximum + 3):
        counts = allocation.counts_at(total)
        assert sum(counts) == total
        assert all(now >= then for now, then in zip(counts, before, strict=True))
        if group.minimum <= total <= group.maximum:
            for one, count in zip(variants, counts, strict=True):
                assert one.minimum <= count <= one.maximum
        before = counts
