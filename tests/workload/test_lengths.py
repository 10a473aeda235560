"""Lengths have the moments that were asked for, and the mean that closed forms say."""

import math
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.workload.plans import any_lengths
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.workload.distributions import Lengths, Times
from windtunnel.workload.empirical import read_lengths
from windtunnel.workload.lengths import LengthDraw, TimeDraw
from windtunnel.workload.moments import asked_mean, drawn_mean

MANY = 30_000
FAR = 10**7


def drawn(lengths: Lengths, count: int = MANY) -> list[int]:
    draw, stream = LengthDraw(lengths), Stream(3, "lengths")
    return [draw.draw(stream) for _ in range(count)]


def moments(values: list[int] | list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


@pytest.mark.parametrize(
    "lengths",
    [
        Lengths("normal", 500.0, 0.2, 1, FAR),
        Lengths("lognormal", 900.0, 0.9, 1, FAR),
        Lengths("exponential", 250.0, 1.0, 1, FAR),
        Lengths("uniform", 200.0, math.sqrt((201**2 - 1) / 12) / 200, 100, 300),
    ],
    ids=lambda lengths: lengths.distribution,
)
def test_far_from_their_bounds_lengths_have_the_moments_that_were_asked_for(
    lengths: Lengths,
) -> None:
    mean, cv = moments(drawn(lengths))
    assert mean == pytest.approx(lengths.mean, rel=0.02)
    assert cv == pytest.approx(lengths.cv, rel=0.04)


@given(any_lengths())
@settings(max_examples=60)
def test_what_is_drawn_has_the_mean_that_closed_forms_say(lengths: Lengths) -> None:
    values = drawn(lengths, 4000)
    mean, cv = moments(values)
    assert min(values) >= lengths.low
    assert max(values) <= lengths.high
    # Whole tokens instead of real ones make half a token of difference at most.
    error = 5 * mean * max(cv, 0.001) / math.sqrt(len(values)) + 0.5
    assert abs(drawn_mean(lengths) - mean) < error


@given(any_lengths(), st.integers(1, 300), st.integers(1, 4000))
def test_the_closed_form_is_the_sum_of_what_lies_above(
    lengths: Lengths, low: int, width: int
) -> None:
    """E[held X] = low + the integral of P(X > x) from low to high, here summed up."""
    assume(lengths.distribution in ("normal", "lognormal", "exponential") and lengths.cv > 0.1)
    import numpy as np

    from windtunnel.workload.traces.fitting.lengths import cdf

    held = Lengths(lengths.distribution, lengths.mean, lengths.cv, low, low + width)
    grid = np.linspace(low, low + width, 20_001)
    summed = low + float(np.trapezoid(1.0 - cdf(held, grid), grid))
    assert drawn_mean(held) == pytest.approx(summed, rel=1e-3, abs=0.02)


def test_a_tail_makes_the_few_very_long_ones() -> None:
    plain = Lengths("lognormal", 500.0, 0.5, 1, FAR)
    tailed = Lengths(
        "pareto-lognormal", 500.0, 0.5, 1, FAR, tail_alpha=2.0, tail_start=4000.0, tail_share=0.1
    )
    assert asked_mean(tailed) == 0.9 * 500 + 0.1 * 8000
    values = drawn(tailed, 60_000)
    assert sum(value >= 4000 for value in values) / len(values) == pytest.approx(0.1, abs=0.005)
    # Twice as long is four times as rare.
    assert sum(value >= 8000 for value in values) / len(values) == pytest.approx(0.025, abs=0.003)
    assert max(drawn(plain)) < 10_000 < max(values)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_tail_without_a_mean_has_one_below_a_bound(alpha: float) -> None:
    tailed = Lengths(
        "pareto-lognormal", 10.0, 0.5, 1, 10_000, tail_alpha=alpha, tail_start=10.0, tail_share=1.0
    )
    assert asked_mean(tailed) == math.inf
    expected = 10 * (1 + math.log(1000)) if alpha == 1.0 else 2 * math.sqrt(10 * 10_000) - 10
    assert drawn_mean(tailed) == pytest.approx(expected)
    assert moments(drawn(tailed))[0] == pytest.approx(expected, rel=0.1)


def test_lengths_that_were_seen_come_as_often_as_they_did() -> None:
    seen = Lengths("empirical", 0.0, 0.0, 1, FAR, values=(10, 20, 90), weights=(1.0, 0.0, 3.0))
    values = drawn(seen)
    assert set(values) == {10, 90}
    assert values.count(90) / len(values) == pytest.approx(0.75, abs=0.02)
    assert drawn_mean(seen) == asked_mean(seen) == 70.0


@pytest.mark.parametrize(
    ("times", "mean_s"),
    [
        (Times("constant", 8.0, 0.0, 8.0, 8.0), 8.0),
        (Times("uniform", 2.0, 0.3, 1.0, 3.0), 2.0),
        (Times("exponential", 5.0, 1.0, 0.0, 1e4), 5.0),
        (Times("lognormal", 5.0, 1.5, 0.0, 1e4), 5.0),
        (Times("exponential", 5.0, 1.0, 5.0, 5.0), 5.0),
    ],
)
def test_pauses(times: Times, mean_s: float) -> None:
    draw, stream = TimeDraw(times), Stream(3, "pauses")
    values = [draw.draw(stream) for _ in range(MANY)]
    assert sum(values) / len(values) == pytest.approx(mean_s, rel=0.03)
    assert times.low_s <= min(values) <= max(values) <= times.high_s


GOOD = {
    "one a line": "5\n9\n5\n",
    "with weights": "5,2\n9,1\n",
    "named columns": "tokens,weight\n5,2\n9,1\n",
    "comments and blank lines": "# seen in May\n\n 5 , 2\n\n9,1.0\n",
    "JSON pairs": "[5, 2]\n[9, 1]\n",
    "JSON objects": '{"tokens": 5, "weight": 2}\n{"tokens": 9}\n',
    "no last newline": "5,2\n9,1",
    "windows": "tokens,weight\r\n5,2\r\n9,1\r\n",
}


@pytest.mark.parametrize("case", GOOD)
def test_files_of_lengths(tmp_path: Path, case: str) -> None:
    path = tmp_path / "seen.csv"
    path.write_text(GOOD[case], newline="")
    assert read_lengths(str(path)) == ([5, 9], [2.0, 1.0])


BAD = {
    "": (None, "no value with a weight"),
    "tokens\n": (None, "no value with a weight"),
    "5,0\n": (None, "no value with a weight"),
    "5\nnine\n": (2, "'nine' is not a number"),
    "5\n\n1.5\n": (3, "'1.5' is not a whole number"),
    "5\nnan\n": (2, "'nan' is not a number"),
    "5\n-3\n": (2, "the value is -3, not 1 to 10000000"),
    "0\n": (1, "the value is 0"),
    "5,1\n6,-1\n": (2, "the weight is -1"),
    "5,inf\n": (1, "'inf' is not a number"),
    "5,1,1\n": (1, "'1,1' is not a number"),
    "prompt_tokens,output_tokens\n5,6\n": (1, "'output_tokens' is not a name for weights"),
    "weight,tokens\n5,6\n": (1, "'weight' is a name for weights"),
    "a,b,c\n": (1, "3 columns"),
    "[5\n": (1, "not JSON"),
    "[5, 1, 1]\n": (1, "a length, or a length and its weight"),
    '{"value": 5}\n': (1, "a length, or a length and its weight"),
    '[5, 1]\n{"tokens": 4, "weight": "x"}\n': (2, "the weight is 'x'"),
    "\x00\x01": (1, "NUL"),
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_a_file_of_lengths_has_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.csv"
    path.write_text(text)
    line, sentence = BAD[text]
    with pytest.raises(InputError) as caught:
        read_lengths(str(path))
    assert sentence in caught.value.what
    assert caught.value.where == (str(path) if line is None else f"{path}:{line}")


def test_a_file_of_lengths_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_lengths(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="this is a folder"):
        read_lengths(str(tmp_path))
