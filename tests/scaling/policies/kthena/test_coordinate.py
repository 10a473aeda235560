"""Soft coordination: the vectors of its draft, and the promises that the draft did not keep."""

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.scaling.policies.kthena.blocks import ReplicaKind
from windtunnel.scaling.policies.kthena.coordinate import (
    Coordinated,
    apportion,
    coordinate,
    coordination_faults,
    fill,
)
from windtunnel.scaling.policies.kthena.settings import PREFERRED, Band, Coordination
from windtunnel.settings.section import Context

PRESSURES = {
    "p": {"queue_depth": 30.0, "kv_cache_utilization": 0.2, "ttft": 2.0},
    "d": {"queue_depth": 10.0, "kv_cache_utilization": 0.8},
}


HERE = Context(None, Path(), ("coordination",))


def band(low: float, high: float) -> Band:
    return Band(min=low, max=high)


def section(bands: dict[str, Band], mode: str = PREFERRED) -> Coordination:
    return Coordination(mode=mode, preferredRatio=bands)


def split(
    baseline: dict[str, int],
    bands: dict[str, Band] | None = None,
    pressures: dict[str, dict[str, float]] | None = None,
    *,
    mode: str = PREFERRED,
    panic: bool = False,
    bounds: dict[str, tuple[int, int]] | None = None,
) -> Coordinated:
    backends = [ReplicaKind(name, 1, *(bounds or {}).get(name, (0, 1000))) for name in baseline]
    return coordinate(section(bands or {}, mode), backends, baseline, pressures or {}, panic=panic)


def test_37_the_vector_with_pressure() -> None:
    bands = {"p": band(20, 40), "d": band(60, 80)}
    found = split({"p": 3, "d": 7}, bands, PRESSURES)
    assert found.sizes == {"p": 4, "d": 6}
    assert found.shares == pytest.approx({"p": 0.4, "d": 0.6})
    assert found.reason == "preferred shares: p 40.0%, d 60.0%"
    free = split({"p": 3, "d": 7}, {}, PRESSURES)
    assert free.shares == pytest.approx({"p": 0.475, "d": 0.525})


def test_37_the_vectors_without_pressure() -> None:
    assert split({"p": 3, "d": 7}, {"p": band(40, 50), "d": band(50, 60)}).sizes == {"p": 4, "d": 6}
    # The draft clips, and makes shares sum to one again, which leaves the band: 35.7%, 4 and 6.
    alone = split({"a": 1, "b": 9}, {"a": band(50, 60)})
    assert alone.sizes == {"a": 5, "b": 5}
    assert alone.shares == pytest.approx({"a": 0.5, "b": 0.5})
    prefill = split({"prefill": 2, "decode": 18}, {"prefill": band(40, 60)})
    assert prefill.sizes == {"prefill": 8, "decode": 12}
    assert prefill.ignored == []


def test_a_band_that_whole_replicas_cannot_meet_is_named() -> None:
    found = split({"a": 1, "b": 2}, {"a": band(40, 60)})
    assert found.sizes == {"a": 1, "b": 2}
    assert found.ignored == ["a cannot have 40 to 60% of 3 replicas."]


def test_37_values_that_are_no_pressure_are_ignored_and_named() -> None:
    bad = {
        "p": {"queue_depth": math.nan, "kv_cache_utilization": -1.0, "ttft": 0.0},
        "d": {"queue_depth": math.inf},
    }
    found = split({"p": 3, "d": 7}, {}, bad)
    assert found.sizes == {"p": 3, "d": 7}
    assert found.ignored == [
        "queue_depth of p is nan, and was not used.",
        "queue_depth of d is inf, and was not used.",
        "kv_cache_utilization of p is -1.0, and was not used.",
    ]


@pytest.mark.parametrize(("mode", "panic"), [("Off", False), (PREFERRED, True)])
def test_36_off_and_in_panic_the_split_by_cost_stands(mode: str, panic: bool) -> None:
    bands = {"p": band(90, 100)}
    found = split({"p": 3, "d": 7}, bands, PRESSURES, mode=mode, panic=panic)
    assert found.sizes == {"p": 3, "d": 7}
    assert found.shares == {}


def test_36_without_pressure_or_bands_the_split_by_cost_stands() -> None:
    assert split({"p": 3, "d": 7}).sizes == {"p": 3, "d": 7}
    assert split({"p": 0, "d": 0}, {"p": band(50, 60)}, PRESSURES).sizes == {"p": 0, "d": 0}


def test_ties_go_by_name() -> None:
    backends = [ReplicaKind("b", 1, 0, 9), ReplicaKind("a", 1, 0, 9)]
    assert apportion(3, {"b": 0.5, "a": 0.5}, backends) == {"b": 1, "a": 2}


def test_bounds_are_part_of_the_distribution() -> None:
    """A clamp after the split would have lost two replicas here."""
    bounds = {"p": (0, 2), "d": (0, 100)}
    assert split({"p": 2, "d": 8}, {"p": band(40, 60)}, bounds=bounds).sizes == {"p": 2, "d": 8}
    bounds = {"p": (6, 10), "d": (0, 100)}
    assert split({"p": 6, "d": 4}, {"p": band(0, 10)}, bounds=bounds).sizes == {"p": 6, "d": 4}


VALUES = st.one_of(
    st.floats(0, 100), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 150.0])
)
PERCENT = st.floats(0, 100)
TARGETS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4
)


@given(TARGETS, st.data())
def test_sizes_add_up_within_bounds_whatever_is_written(
    targets: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    names = [f"t{index}" for index in range(len(targets))]
    backends = [
        ReplicaKind(name, 1, low, low + room)
        for name, (low, room, _) in zip(names, targets, strict=True)
    ]
    baseline = {
        name: low + min(extra, room)
        for name, (low, room, extra) in zip(names, targets, strict=True)
    }
    known = st.sampled_from([*names, "nobody", ""])
    bands = data.draw(st.dictionaries(known, st.builds(band, PERCENT, PERCENT), max_size=4))
    metrics = st.sampled_from(["queue_depth", "kv_cache_utilization", "ttft", "other"])
    pressures = data.draw(st.dictionaries(known, st.dictionaries(metrics, VALUES), max_size=4))
    found = coordinate(section(bands), backends, baseline, pressures, panic=False)
    assert sum(found.sizes.values()) == sum(baseline.values())
    for backend in backends:
        assert backend.minimum <= found.sizes[backend.name] <= backend.maximum
    if list(coordination_faults(section(bands), HERE, names)):
        assert found.ignored or not sum(baseline.values())


@given(TARGETS, st.integers(0, 60), st.data())
def test_the_nearest_whole_numbers_are_taken(
    targets: list[tuple[int, int, int]], total: int, data: st.DataObject
) -> None:
    """Where no bound holds, every size is its share rounded up or down."""
    backends = [ReplicaKind(f"t{index}", 1, 0, 1000) for index in range(len(targets))]
    shares = {
        backend.name: data.draw(st.integers(1, 20), label=backend.name) for backend in backends
    }
    whole = sum(shares.values())
    sizes = apportion(total, {name: share / whole for name, share in shares.items()}, backends)
    assert sum(sizes.values()) == total
    for name, share in shares.items():
        assert share * total // whole <= sizes[name] <= -(-share * total // whole)


Target = tuple[int, int, int, int, int]
"""Minimum and room, the lower end and the width of the band, and the weight."""
BANDED = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 6),
        st.integers(0, 60),
        st.integers(0, 60),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=3,
)


def outside(size: int, total: int, of: Band) -> int:
    """Replicas that a size is away from the whole numbers of a band, or next to it."""
    inside = [n for n in range(total + 1) if of.min * total <= 100 * n <= of.max * total]
    below = [n for n in range(total + 1) if 100 * n < of.min * total][-1:]
    above = [n for n in range(total + 1) if 100 * n > of.max * total][:1]
    return min(abs(size - n) for n in inside or [*below, *above])


@given(BANDED, st.integers(1, 14))
def test_as_few_replicas_as_possible_are_outside_of_their_bands(
    targets: list[Target], total: int
) -> None:
    """Held to all ways to split a total; so bands that can be met at once are met."""
    backends = [
        ReplicaKind(f"t{number}", 1, low, low + room)
        for number, (low, room, *_) in enumerate(targets)
    ]
    bands = {
        backend.name: band(float(start), float(min(100, start + width)))
        for backend, (_, _, start, width, _) in zip(backends, targets, strict=True)
    }
    ranges = [range(one.minimum, one.maximum + 1) for one in backends]
    splits = [sizes for sizes in itertools.product(*ranges) if sum(sizes) == total]
    assume(splits)
    shares = {backend.name: one[4] / 5 for backend, one in zip(backends, targets, strict=True)}
    found = apportion(total, shares, backends, bands)
    assert tuple(found.values()) in splits

    def missed(sizes: Iterable[int]) -> int:
        return sum(outside(size, total, of) for size, of in zip(sizes, bands.values(), strict=True))

    assert missed(found.values()) == min(map(missed, splits))


@given(
    st.lists(
        st.tuples(st.floats(0.01, 9.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0)),
        min_size=1,
        max_size=5,
    ),
    st.floats(0.0, 1.0),
)
def test_filling_is_one_level_for_all(
    limits: list[tuple[float, float, float]], part: float
) -> None:
    """Held to a search for the level at which the clamped amounts add up."""
    weights = [weight for weight, _, _ in limits]
    low = [start for _, start, _ in limits]
    high = [start + room for _, start, room in limits]
    total = sum(low) + part * (sum(high) - sum(low))

    def at(level: float) -> list[float]:
        bounds = zip(weights, low, high, strict=True)
        return [min(max(level * weight, least), most) for weight, least, most in bounds]

    below, above = 0.0, 10.0 / min(weights) + 1.0
    for _ in range(200):
        level = (below + above) / 2
        below, above = (level, above) if sum(at(level)) < total else (below, level)
    assert fill(total, weights, low, high) == pytest.approx(at(above), abs=1e-6)


def test_bands_that_no_shares_could_be_in_are_refused() -> None:
    short = section({"p": band(10, 30), "d": band(20, 60)})
    (found,) = coordination_faults(short, HERE, ["p", "d"])
    assert (found.what, found.allowed) == (
        "the maximum ratios add up to 90 percent",
        "at least 100 percent",
    )
    assert not list(coordination_faults(short, HERE, ["p", "d", "another"]))
    assert split({"p": 3, "d": 7}, dict(short.preferredRatio)).ignored == [
        "preferredRatio: the maximum ratios add up to 90 percent."
    ]


def test_faults_have_the_path_of_the_field() -> None:
    bands = {
        "p": band(60, 40),
        "d": band(50, 100),
        "x": band(0, 10),
        "": Band(),
        "twice": Band(),
    }
    found = list(coordination_faults(section(bands), HERE, ["p", "d", "twice", "twice"]))
    here = ("coordination", "preferredRatio")
    assert [(fault.path, fault.what) for fault in found] == [
        ((*here, "p", "min"), "min 60 is above max 40"),
        ((*here, "x"), "there is no target 'x'"),
        ((*here, ""), "the name of the target is empty"),
        ((*here, "twice"), "2 targets have this name"),
        (here, "the minimum ratios add up to 110 percent"),
    ]
    assert found[1].allowed == "d, p, twice"
    assert not list(coordination_faults(section({"p": band(20, 40)}), HERE, ["p", "d"]))
