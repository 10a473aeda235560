"""Two roles in a ratio: the vectors of the reference, and the whole grid by brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.scaling.policies.kthena.ratio import RoleBounds, exact, shipped
from windtunnel.scaling.policies.kthena.settings import Ratio


def band(low: float, high: float) -> Ratio:
    return Ratio(numerator="prefill", denominator="decode", min=low, max=high)


QUARTER_TO_ONE = band(0.25, 1.0)


@pytest.mark.parametrize("rule", [shipped, exact])
@pytest.mark.parametrize(
    ("numerator", "denominator", "most", "expected"),
    [
        (1, 8, (8, 16), (2, 8)),
        (6, 2, (8, 16), (6, 6)),
        (2, 20, (3, 20), (3, 12)),
        (0, 4, (8, 16), (1, 4)),
        (4, 0, (8, 16), (4, 4)),
        (0, 0, (8, 16), (0, 0)),
        (2, 4, (8, 16), (2, 4)),
    ],
)
def test_29_the_vectors_hold_for_both_rules(
    rule: object, numerator: int, denominator: int, most: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert rule in (shipped, exact)
    keep = shipped if rule is shipped else exact
    bounds = RoleBounds(0, most[0]), RoleBounds(0, most[1])
    found = keep(QUARTER_TO_ONE, numerator, denominator, *bounds)
    assert found.sizes == expected
    assert bool(found.reason) == (found.sizes != (numerator, denominator))
    assert found.held


def test_28_a_prefill_load_of_six_lifts_decode() -> None:
    found = exact(band(0.25, 1.0), 6, 2, RoleBounds(1, 8), RoleBounds(2, 16))
    assert found.sizes == (6, 6)
    assert found.reason == "prefill/decode must be 0.25 to 1: decode was raised."


def outside(low: float, high: float) -> int:
    """How many of 128 inputs the shipped rule leaves outside the band."""
    ratio, num, den = band(low, high), RoleBounds(1, 8), RoleBounds(1, 16)
    pairs = [(n, d) for n in range(1, 9) for d in range(1, 17)]
    return sum(not shipped(ratio, n, d, num, den).held for n, d in pairs)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.5, 0.5, 28), (0.4, 0.5, 1), (0.25, 0.5, 0), (0.5, 1.0, 0), (0.25, 1.0, 0)],
)
def test_30_rounding_leaves_a_narrow_band_as_shipped(
    low: float, high: float, expected: int
) -> None:
    assert outside(low, high) == expected


BANDS = st.tuples(st.integers(1, 20), st.integers(0, 20)).map(
    lambda drawn: (drawn[0] / 10, (drawn[0] + drawn[1]) / 10)
)
BOUNDS = st.tuples(st.integers(1, 4), st.integers(0, 9)).map(
    lambda drawn: RoleBounds(drawn[0], drawn[0] + drawn[1])
)


@given(BANDS, BOUNDS, BOUNDS, st.integers(0, 14), st.integers(0, 14))
def test_30_the_exact_rule_finds_the_best_pair_of_the_grid(
    limits: tuple[float, float], num: RoleBounds, den: RoleBounds, n: int, d: int
) -> None:
    tenths = round(limits[0] * 10), round(limits[1] * 10)
    grid = [
        (i, j)
        for i in range(num.minimum, num.maximum + 1)
        for j in range(den.minimum, den.maximum + 1)
        if tenths[0] * j <= 10 * i <= tenths[1] * j
    ]
    found = exact(band(*limits), n, d, num, den)
    n, d = num.clamp(n), den.clamp(d)
    if not grid:
        assert not found.held
        assert found.sizes == (n, d)
        assert found.reason.startswith("No whole numbers")
        return
    assert found.held
    assert found.sizes in grid
    above = [pair for pair in grid if pair[0] >= n and pair[1] >= d]
    if above:
        assert found.sizes in above
        assert sum(found.sizes) == min(map(sum, above))
    else:
        short = [max(n - i, 0) + max(d - j, 0) for i, j in grid]
        assert max(n - found.numerator, 0) + max(d - found.denominator, 0) == min(short)


def test_a_band_without_whole_numbers_is_said() -> None:
    found = exact(band(0.6, 0.65), 1, 2, RoleBounds(1, 2), RoleBounds(1, 2))
    assert (found.sizes, found.held) == ((1, 2), False)
    assert shipped(band(0.6, 0.65), 1, 1, RoleBounds(1, 2), RoleBounds(1, 2)).sizes == (1, 2)
    assert shipped(band(0.6, 0.65), 1, 2, RoleBounds(1, 2), RoleBounds(1, 2)).sizes == (2, 2)


def test_a_tenth_is_a_tenth() -> None:
    """0.1 * 30 is a little more than 3 in floats, which is no reason for a fourth replica."""
    assert exact(band(0.1, 0.1), 3, 30, RoleBounds(1, 9), RoleBounds(1, 90)).sizes == (3, 30)


def test_bounds_of_a_million_take_no_time() -> None:
    wide = RoleBounds(1, 1_000_000)
    assert exact(band(0.25, 1.0), 900_000, 3, wide, wide).sizes == (900_000, 900_000)
