"""Arithmetic of a replay in numbers of 63 bits."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.workload.trace_source import PRIME, product

BELOW = st.integers(0, PRIME - 1) | st.sampled_from([PRIME - 1, (1 << 31) - 1, 1 << 60])


@given(BELOW, BELOW)
def test_a_product_in_the_field_is_that_of_whole_numbers(a: int, b: int) -> None:
    assert product(a, b) == a * b % PRIME
