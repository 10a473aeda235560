"""What `--vary` says, and which points of a space are run."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.search.sweep.axes import Axis, axes_of, axis_of
from windtunnel.search.sweep.designs import MOST_POINTS, settings_of


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("2..6", (2, 3, 4, 5, 6)),
        ("2..7:2", (2, 4, 6)),
        ("-1..1", (-1, 0, 1)),
        ("0.1..0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("16..256:x2", (16, 32, 64, 128, 256)),
        ("10..30/s:10", ("10/s", "20/s", "30/s")),
        ("100ms..500ms:200ms", ("100ms", "300ms", "500ms")),
        ("true,false", (True, False)),
        ("1,2.5,a,'b,c'", (1, 2.5, "a", "b,c")),
        ("{policy: a},{policy: b, x: [1, 2]}", ({"policy": "a"}, {"policy": "b", "x": [1, 2]})),
    ],
)
def test_values_are_listed_or_a_range(text: str, levels: tuple[object, ...]) -> None:
    axis = axis_of(f"a.b={text}")
    assert axis.path == "a.b"
    assert axis.levels == levels
    assert [type(level) for level in axis.levels or ()] == [type(level) for level in levels]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "there is no '=' after the path"),
        ("=1,2", "there is no path before the '='"),
        ("a=", "there is no value after the '='"),
        ("a=1,,2", "a value is empty"),
        ("a=7", "a single value cannot be varied"),
        ("a=1..x", "'1..x' is not a range of numbers"),
        ("a=low..high", "'low..high' is not a range of numbers"),
        ("low..high", "there is no '=' after the path"),
        ("a=1,2,1", "the value 1 is listed twice"),
        ("a=16..2", "the range is empty"),
        ("a=2..2", "the range is empty"),
        ("a=1s..4ms", "the range begins in s and ends in ms; allowed: 1..4ms"),
        ("a=1..4:fast", "'fast' is not a step"),
        ("a=1..4:0", "a step must be above 0"),
        ("a=1..4:9", "its step is larger than the range"),
        ("a=0..8:x2", "must begin above 0"),
        ("a=0..8:log", "must begin above 0"),
        ("a=0..9:0.001", "these are 9,001 values; allowed: up to 1,000"),
        ("seed=1..4", "the seed cannot be varied"),
        ("name=a,b", "varying the name changes nothing"),
    ],
)
def test_what_is_wrong_with_it_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        axis_of(text)
    assert str(raised.value).startswith(f"--vary {text}: ")
    assert sentence in str(raised.value)


def test_a_path_is_varied_once_and_something_is() -> None:
    with pytest.raises(InputError, match="varied twice"):
        axes_of(["a=1,2", "b=1,2", "a=3,4"])
    with pytest.raises(InputError, match="nothing is varied"):
        axes_of([])


def test_a_grid_is_every_combination_the_last_axis_fastest() -> None:
    grid = settings_of(axes_of(["a=1..2", "b=x,y"]))
    assert grid == [
        (("a", 1), ("b", "x")),
        (("a", 1), ("b", "y")),
        (("a", 2), ("b", "x")),
        (("a", 2), ("b", "y")),
    ]


@pytest.mark.parametrize(
    ("varied", "design", "points", "sentence"),
    [
        (["a=0.1..2"], "grid", None, "--vary a=0.1..2: a grid needs to know which values"),
        (["a=1..5000"], "grid", None, "--vary a=1..5000: a grid needs to know which values"),
        (["a=1..4"], "grid", 3, "--points: a grid has all combinations of its values as points"),
        (["a=1..500", "b=1..500"], "grid", None, "--vary: the grid has 250,000 points"),
        (["a=1..4", "b=x,y"], "sobol", 9, "--points: 9 points are more than the 8 that exist"),
        (["a=0.5..4"], "random", MOST_POINTS + 1, "--points: 10,001 points cannot be run"),
    ],
)
def test_a_space_that_no_design_fits_is_a_sentence(
    varied: list[str], design: str, points: int | None, sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        settings_of(axes_of(varied), design, points)
    assert str(raised.value).startswith(sentence)


AXES = {
    "whole": "whole=3..9",
    "long": "long=1..100000",
    "real": "real=0.5..2",
    "unit": "unit=1..60s:log",
    "word": "word=x,y,z",
}


@given(
    names=st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=4, unique=True),
    design=st.sampled_from(["random", "sobol"]),
    seed=st.integers(0, 5),
    points=st.integers(1, 20),
)
def test_drawn_points_are_distinct_within_range_and_the_same_again(
    names: list[str], design: str, seed: int, points: int
) -> None:
    axes = axes_of([AXES[name] for name in names])
    sizes = [len(axis.levels) if axis.levels is not None else 1000 for axis in axes]
    count = min(points, math.prod(sizes))
    found = settings_of(axes, design, count, seed)
    assert found == settings_of(axes, design, count, seed)
    assert len(set(found)) == len(found) == count
    for settings in found:
        for (path, value), axis in zip(settings, axes, strict=True):
            assert path == axis.path
            if axis.levels is not None:
                assert value in axis.levels
                continue
            number = float(str(value).removesuffix("s"))
            assert axis.low <= number <= axis.high
            assert not axis.whole or number == int(number)


def test_both_ends_of_a_range_of_whole_numbers_are_as_likely_as_the_middle() -> None:
    axis = Axis("a", None, 1.0, 4.0, whole=True)
    drawn = [axis.at((number + 0.5) / 400) for number in range(400)]
    assert [drawn.count(value) for value in (1, 2, 3, 4)] == [100] * 4


def test_sobol_spreads_more_evenly_than_chance() -> None:
    """Of sixteen points, each sixteenth of either axis has one."""
    axes = axes_of(["a=0.0..1.0", "b=0.0..1.0"])
    for place in (0, 1):
        cells = [int(16 * float(str(one[place][1]))) % 16 for one in settings_of(axes, "sobol", 16)]
        assert len(set(cells)) >= 15  # a shift may put two into the first and the last
        drawn = settings_of(axes, "random", 16)
        assert len({int(16 * float(str(one[place][1]))) for one in drawn}) < 15
