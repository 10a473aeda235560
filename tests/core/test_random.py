"""Streams repeat exactly, everywhere, and do not disturb each other."""

import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.core.random import Stream, Streams

DRAWS: dict[str, Callable[[Stream], float]] = {
    "uniform": lambda stream: stream.uniform(),
    "between": lambda stream: stream.between(-1.0, 3.0),
    "integer": lambda stream: stream.integer(1, 100),
    "exponential": lambda stream: stream.exponential(2.0),
    "normal": lambda stream: stream.normal(10.0, 3.0),
    "lognormal": lambda stream: stream.lognormal(900.0, 0.9),
    "weibull": lambda stream: stream.weibull(1.5, 2.0),
}
REJECTING: dict[str, Callable[[Stream], float]] = {"gamma": lambda stream: stream.gamma(0.25, 8.0)}
FIRST_VALUES = {
    "uniform": [0.6722971909739816, 0.9410809051036039, 0.9928902727577169],
    "integer": [68, 95, 100],
    "exponential": [2.2312963027403994, 5.663180098147983, 9.892582796901875],
    "normal": [14.177675176625119, 6.900286723902964, 7.180584226574853],
    "lognormal": [1955.4726576088754, 301.82637449951477, 324.3492447306767],
    "gamma": [0.5163360472320674, 0.29021420246465585, 0.016400593977911108],
    "weibull": [2.151368617061886, 4.002981478147343, 5.806081500488675],
}
MEANS = {
    "uniform": 0.5,
    "between": 1.0,
    "integer": 50.5,
    "exponential": 2.0,
    "normal": 10.0,
    "lognormal": 900.0,
    "weibull": 2.0 * math.gamma(1 + 1 / 1.5),
    "gamma": 2.0,
}


@pytest.mark.parametrize("draw", sorted(FIRST_VALUES))
def test_the_first_values_never_change(draw: str) -> None:
    """Results on disk were made with these; a change here changes every result ever published."""
    stream = Stream(7, "workload.chat")
    drawn = (DRAWS | REJECTING)[draw]
    assert [drawn(stream) for _ in range(3)] == FIRST_VALUES[draw]


@pytest.mark.parametrize("python", ["this", "python3.11", "python3.12", "python3.13", "python3.14"])
def test_other_processes_and_pythons_draw_the_same(python: str) -> None:
    executable = sys.executable if python == "this" else shutil.which(python)
    if (
        executable is None
        or subprocess.run([executable, "-V"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{python} is not installed here")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from windtunnel.core.random import Stream\n"
        "stream = Stream(7, 'workload.chat')\n"
        "print([stream.exponential(2.0) for _ in range(3)])"
    )
    command = [executable, "-c", script, str(Path(windtunnel.__file__).parents[1])]
    environment = os.environ | {"PYTHONHASHSEED": "77", "WINDTUNNEL_FORM": "interpreted"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == str(FIRST_VALUES["exponential"]), done.stderr


@given(
    st.integers(),
    st.text(max_size=20),
    st.sampled_from(sorted(DRAWS)),
    st.sampled_from(sorted(DRAWS)),
)
def test_every_draw_takes_a_fixed_number_of_uniforms(
    seed: int, name: str, first: str, second: str
) -> None:
    mixed, plain = Stream(seed, name), Stream(seed, name)
    DRAWS[first](mixed)
    for _ in range(2 if "normal" in first else 1):
        plain.uniform()
    assert DRAWS[second](mixed) == DRAWS[second](plain)


@given(st.integers(), st.lists(st.text(max_size=8), unique=True, min_size=2, max_size=5))
def test_a_stream_does_not_feel_its_neighbours(seed: int, names: list[str]) -> None:
    alone, crowd = Streams(seed)[names[0]], Streams(seed)
    values = []
    for _ in range(3):
        for name in reversed(names):
            value = crowd[name].uniform()
        values.append(value)
    assert values == [alone.uniform() for _ in range(3)]


@given(st.integers(), st.integers())
def test_another_seed_is_another_stream(seed: int, other: int) -> None:
    same = [Stream(seed, "x").uniform() == Stream(other, "x").uniform()]
    assert same == [seed == other]


@pytest.mark.parametrize("draw", sorted(DRAWS))
def test_draws_have_the_mean_they_were_asked_for(draw: str) -> None:
    stream = Stream(3, draw)
    values = [(DRAWS | REJECTING)[draw](stream) for _ in range(20_000)]
    tolerance = 5 * statistics.stdev(values) / math.sqrt(len(values))
    assert statistics.fmean(values) == pytest.approx(MEANS[draw], abs=tolerance)


@given(st.integers(), st.integers(-1000, 1000), st.integers(0, 50))
def test_integers_stay_in_their_range(seed: int, low: int, width: int) -> None:
    stream = Stream(seed, "n")
    assert all(low <= stream.integer(low, low + width) <= low + width for _ in range(50))


def test_every_integer_comes_up() -> None:
    stream = Stream(1, "die")
    assert {stream.integer(1, 6) for _ in range(200)} == {1, 2, 3, 4, 5, 6}
