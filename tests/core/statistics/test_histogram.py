"""Histograms whose servers share a list of buckets say the same as those that have one each."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.statistics.histogram import Histogram, HistogramBuckets, merged

VALUES = st.tuples(st.integers(0, 3), st.floats(0.0, 1e3), st.floats(0.0, 1.0), st.integers(1, 50))


@given(st.lists(VALUES, max_size=40))
def test_shared_buckets_count_once_and_sums_stay_apart(
    added: list[tuple[int, float, float, int]],
) -> None:
    buckets = HistogramBuckets()
    apart = [Histogram() for _ in range(4)]
    sharing = [Histogram(buckets) for _ in range(4)]
    for number, first, increase, terms in added:
        for one in (apart[number], sharing[number]):
            one.add_series(first, increase, terms, 2)
    whole = Histogram()
    for one in apart:
        whole.merge(one)
    for found in (merged(apart), merged(sharing)):
        assert found.buckets == whole.buckets
        assert (found.count, found.zeros, found.total) == (whole.count, whole.zeros, whole.total)
        assert (found.low, found.high) == (whole.low, whole.high)
    for one, other in zip(apart, sharing, strict=True):
        assert (one.count, one.total, one.low) == (other.count, other.total, other.low)
