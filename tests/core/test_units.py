"""Quantities read back as they were written, and nonsense gets a sentence."""

import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.core.units import (
    DURATION_UNITS,
    RATE_UNITS,
    SIZE_UNITS,
    counted,
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)

amounts = st.floats(min_value=0, max_value=1e9, allow_nan=False)


@given(amounts, st.sampled_from(sorted(DURATION_UNITS)))
def test_a_duration_is_its_number_times_its_unit(amount: float, unit: str) -> None:
    assert parse_duration(f"{amount!r}{unit}") == amount * DURATION_UNITS[unit]


@given(amounts, st.sampled_from(sorted(RATE_UNITS)))
def test_a_rate_is_its_number_per_its_unit(amount: float, unit: str) -> None:
    assert parse_rate(f"{amount!r}/{unit}") == amount * RATE_UNITS[unit]


@given(st.integers(0, 1000), st.sampled_from(sorted(SIZE_UNITS)))
def test_a_size_is_a_whole_number_of_bytes(amount: int, unit: str) -> None:
    assert parse_size(f"{amount}{unit}") == amount * SIZE_UNITS[unit]
    assert parse_bandwidth(f"{amount}{unit}/s") == amount * SIZE_UNITS[unit]


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d{hours}h {minutes}m {seconds}s"
    assert parse_duration(text) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@given(st.floats(min_value=1e-9, max_value=59.0))
def test_a_printed_duration_reads_back_to_three_digits(seconds: float) -> None:
    text = format_duration(seconds).replace(" ", "")
    assert parse_duration(text) == pytest.approx(seconds, rel=0.006)


@given(st.integers(60, 10**8))
def test_a_long_duration_prints_its_two_largest_parts(seconds: int) -> None:
    text = format_duration(seconds)
    assert len(text.split()) in (2, 4)
    back = parse_duration(text.replace(" ", ""))
    assert 0 <= seconds - back <= 0.04 * seconds


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_printed_rate_reads_back(per_second: float) -> None:
    assert parse_rate(format_rate(per_second)) == pytest.approx(per_second, rel=0.006)


@given(st.integers(0, 2**55))
def test_a_printed_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == pytest.approx(size_bytes, rel=0.006)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("1h30m", 5400.0),
        ("5min", 300.0),
        ("1h 5 min 2s", 3902.0),
        ("30", 30.0),
        (30, 30.0),
        ("2 us", 2e-6),
        ("3µs", 3e-6),
        ("1e3s", 1e3),
    ],
)
def test_durations_as_people_write_them(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.25, "1.25 s"),
        (4.8e-4, "480 us"),
        (9000, "2 h 30 min"),
        (math.inf, "never"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_counts_as_people_read_them() -> None:
    assert [format_count(n) for n in (0, 999, 1250, 1_250_000, 2e9)] == [
        "0",
        "999",
        "1.25 k",
        "1.25 M",
        "2 G",
    ]


@pytest.mark.parametrize(
    "nonsense",
    ["", "fast", "10 parsecs", "1h30", "--3s", "1e999s", "9" * 100, True, math.nan, math.inf],
)
def test_nonsense_is_an_error_that_shows_what_is_right(nonsense: str | float) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(nonsense)
    assert "250ms" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("parse", "text", "unit", "known"),
    [
        (parse_duration, "5 parsec", "parsec", "ns, us, ms, s, m, min, h, d"),
        (parse_duration, "500 msec", "msec", "ns, us, ms, s, m, min, h, d"),
        (parse_rate, "6rps", "rps", "/s, /m, /min, /h, /d"),
    ],
)
def test_an_unknown_unit_is_told_the_known_ones(
    parse: Callable[[str], float], text: str, unit: str, known: str
) -> None:
    with pytest.raises(InputError, match=f"unknown unit '{unit}', known are {known};"):
        parse(text)


def test_zeros_at_the_end_stay_where_times_are_compared() -> None:
    assert format_duration(7.0) == "7 s"
    assert [format_duration(t, even=True) for t in (7.0, 0.018, 0.48, 0)] == [
        "7.00 s",
        "18.0 ms",
        "480 ms",
        "0 s",
    ]


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_an_input_error(text: str) -> None:
    assume(text.strip())
    try:
        assert math.isfinite(parse_duration(text))
    except InputError as error:
        assert "duration" in str(error)  # noqa: PT017 - both outcomes are right, each in its way


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), (1, 1)]
)
def test_shares_are_percents_or_fractions(text: str | float, share: float) -> None:
    assert parse_share(text) == share


@given(st.integers(0, 100_000))
def test_a_percentage_is_the_same_number_as_the_fraction(thousandths: int) -> None:
    assert parse_share(f"{thousandths / 1000}%") == thousandths / 100_000


@pytest.mark.parametrize("text", ["5 ms", "%", "nan", ""])
def test_what_is_no_share_is_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a share.*allowed: 5%, or a fraction"):
        parse_share(text)


def test_a_count_agrees_with_its_noun() -> None:
    counts = (0, 1, 1.0, 1.5, 2, 12_345_678)
    assert [counted(one, "run") for one in counts] == [
        "0 runs", "1 run", "1 run", "1.5 runs", "2 runs", "12,345,678 runs",
    ]  # fmt: skip
