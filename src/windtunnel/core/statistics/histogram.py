"""A histogram with buckets one percent wide, no range limits, and an exact mean and extremes.

Buckets are powers of 1.01 in a list that grows at both ends, so no value is too small or too large
to be told apart from its neighbours, and two histograms merge by adding counts. An arithmetic
series, such as the inter-token times of a growing batch, is added as a whole.
"""

import math
from collections.abc import Iterable
from typing import Final

from mypy_extensions import i64

GROWTH: Final = 1.01
_LOG_GROWTH: Final = math.log(GROWTH)


class HistogramBuckets:
    """Counts by bucket, in a list that grows at both ends."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.lowest: i64 = 0  # the bucket of the first count

    def put(self, bucket: i64, times: i64) -> None:
        index = bucket - self.lowest
        if not 0 <= index < len(self.counts):
            self._grow(bucket)
            index = bucket - self.lowest
        count: i64 = self.counts[index]  # += would add them as objects
        self.counts[index] = count + times

    def _grow(self, bucket: i64) -> None:
        """Extends the list to cover a bucket, with spare buckets around it."""
        if not self.counts:
            self.lowest = bucket
        below = max(0, self.lowest - bucket + 16) if bucket < self.lowest else 0
        above = max(0, bucket + 16 - self.lowest - len(self.counts))
        self.counts = [0] * below + self.counts + [0] * above
        self.lowest -= below

    def by_bucket(self) -> dict[int, int]:
        """The counts that are not 0, by bucket."""
        lowest = int(self.lowest)
        return {lowest + i: times for i, times in enumerate(self.counts) if times}

    def take(self, other: "HistogramBuckets") -> None:
        """Adds the counts of other buckets."""
        for bucket, times in other.by_bucket().items():
            self.put(bucket, times)


class Histogram:
    """Counts of values by bucket, with exact count, sum, minimum and maximum.

    Several histograms may share one set of buckets: this takes the memory of one, and the bucket
    counts are known only for all of them together (`merged`).
    """

    def __init__(self, buckets: HistogramBuckets | None = None) -> None:
        self.bucket_counts: Final = buckets if buckets is not None else HistogramBuckets()
        self.zeros: i64 = 0
        self.count: i64 = 0
        self.total = 0.0
        self.low = math.inf
        self.high = -math.inf

    def add(self, value: float, times: i64) -> None:
        """Counts a value that was seen `times` times."""
        self.count += times
        self.total += value * float(times)
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        if value <= 0.0:
            self.zeros += times
            return
        buckets = self.bucket_counts
        bucket: i64 = math.floor(math.log(value) / _LOG_GROWTH)
        index = bucket - buckets.lowest
        if 0 <= index < len(buckets.counts):  # as `put` does, without a call
            count: i64 = buckets.counts[index]
            buckets.counts[index] = count + times
        else:
            buckets.put(bucket, times)

    @property
    def buckets(self) -> dict[int, int]:
        """The nonempty buckets: bucket b holds values from 1.01**b on."""
        return self.bucket_counts.by_bucket()

    def add_series(self, first: float, increase: float, terms: i64, times: i64) -> None:
        """Counts each of `terms` values `times` times: from `first` on, `increase` apart."""
        if first <= 0.0 < increase and terms > 1:
            self.add(first, times)
            first += increase
            terms -= 1
        if increase <= 0.0 or terms == 1:
            self.add(first, terms * times)
            return
        last = first + increase * float(terms - 1)
        bucket: i64 = math.floor(math.log(first) / _LOG_GROWTH)
        top: i64 = math.floor(math.log(last) / _LOG_GROWTH)
        done: i64 = 0
        while bucket < top:
            edge = math.exp(float(bucket + 1) * _LOG_GROWTH)
            upto = terms
            terms_below = (edge - first) / increase
            if terms_below < float(terms):
                upto = max(math.ceil(terms_below), done)
            if upto > done:
                self.bucket_counts.put(bucket, (upto - done) * times)
                done = upto
            bucket += 1
        if done < terms:
            self.bucket_counts.put(top, (terms - done) * times)
        self.count += terms * times
        self.total += (first + last) / 2.0 * float(terms) * float(times)
        if first < self.low:
            self.low = first
        if last > self.high:
            self.high = last

    def merge(self, other: "Histogram") -> None:
        """Adds the counts of another histogram."""
        self.bucket_counts.take(other.bucket_counts)
        self.take_sums(other)

    def take_sums(self, other: "Histogram") -> None:
        self.zeros += other.zeros
        self.count += other.count
        self.total += other.total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    def mean(self) -> float:
        return self.total / float(self.count) if self.count else math.nan

    def quantile(self, share: float) -> float:
        """The value below which `share` of the counts lie, to within half a percent.

        Interpolated linearly between ranks: among few values, neighbours may be far apart.
        """
        if not self.count:
            return math.nan
        rank = min(max(share, 0.0), 1.0) * float(self.count - 1)
        below = math.floor(rank)
        low = self._at(below)
        return low if rank == below else low + (rank - below) * (self._at(below + 1) - low)

    def _at(self, rank: int) -> float:
        """The value at a rank, from 0: exact at both ends, otherwise the middle of its bucket."""
        if rank >= self.count - 1:
            return self.high
        seen = self.zeros
        if rank == 0 or rank < seen:
            return self.low
        for index, times in enumerate(self.bucket_counts.counts):
            seen += times
            if rank < seen:
                middle = math.exp((float(self.bucket_counts.lowest) + index + 0.5) * _LOG_GROWTH)
                return min(max(middle, self.low), self.high)
        return self.high


def merged(parts: Iterable[Histogram]) -> Histogram:
    """Merges histograms into one; shared buckets are counted once."""
    whole = Histogram()
    known: dict[int, HistogramBuckets] = {}
    for part in parts:
        shared = part.bucket_counts
        known[id(shared)] = shared
        whole.take_sums(part)
    for shared in known.values():
        whole.bucket_counts.take(shared)
    return whole
