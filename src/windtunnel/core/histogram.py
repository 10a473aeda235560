"""A histogram with one percent wide buckets, no limits, and an exact mean and extremes.

Buckets are powers of 1.01 in a list that grows at both ends, so no value is too small or too large
to be told apart from its neighbours, and two histograms merge by adding counts. Arithmetic series,
which is what the gaps between tokens of a growing batch are, go in as a whole.
"""

import math
from typing import Final

GROWTH: Final = 1.01
_LOG_GROWTH: Final = math.log(GROWTH)


class Histogram:
    """Counts of values by bucket, with count, sum, minimum and maximum kept exactly."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._lowest = 0  # the bucket of the first count
        self.zeros = 0
        self.count = 0
        self.total = 0.0
        self.low = math.inf
        self.high = -math.inf

    def add(self, value: float, times: int) -> None:
        """Counts a value that was seen `times` times."""
        self.count += times
        self.total += value * times
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        if value <= 0.0:
            self.zeros += times
            return
        self._put(math.floor(math.log(value) / _LOG_GROWTH), times)

    def _put(self, bucket: int, times: int) -> None:
        index = bucket - self._lowest
        if not 0 <= index < len(self._counts):
            self._grow(bucket)
            index = bucket - self._lowest
        self._counts[index] += times

    def _grow(self, bucket: int) -> None:
        """Makes room for a bucket, and some around it."""
        if not self._counts:
            self._lowest = bucket
        below = max(0, self._lowest - bucket + 16) if bucket < self._lowest else 0
        above = max(0, bucket + 16 - self._lowest - len(self._counts))
        self._counts = [0] * below + self._counts + [0] * above
        self._lowest -= below

    @property
    def buckets(self) -> dict[int, int]:
        """The buckets that have counts: bucket b holds values from 1.01**b on."""
        return {self._lowest + i: times for i, times in enumerate(self._counts) if times}

    def add_series(self, first: float, increase: float, terms: int, times: int) -> None:
        """Counts `times` times each of `terms` values from `first` on, `increase` apart."""
        if first <= 0.0 < increase and terms > 1:
            self.add(first, times)
            first += increase
            terms -= 1
        if increase <= 0.0 or terms == 1:
            self.add(first, terms * times)
            return
        last = first + increase * (terms - 1)
        bucket = math.floor(math.log(first) / _LOG_GROWTH)
        top = math.floor(math.log(last) / _LOG_GROWTH)
        done = 0
        while bucket < top:
            edge = math.exp((bucket + 1) * _LOG_GROWTH)
            upto = min(max(math.ceil((edge - first) / increase), done), terms)
            if upto > done:
                self._put(bucket, (upto - done) * times)
                done = upto
            bucket += 1
        if done < terms:
            self._put(top, (terms - done) * times)
        self.count += terms * times
        self.total += (first + last) / 2 * terms * times
        self.low = min(self.low, first)
        self.high = max(self.high, last)

    def merge(self, other: "Histogram") -> None:
        """Adds all that another histogram has counted."""
        for bucket, times in other.buckets.items():
            self._put(bucket, times)
        self.zeros += other.zeros
        self.count += other.count
        self.total += other.total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def quantile(self, share: float) -> float:
        """The value below which `share` of the counts lie, to within half a percent.

        Linear between ranks: of few values, two that follow each other may be far apart.
        """
        if not self.count:
            return math.nan
        rank = min(max(share, 0.0), 1.0) * (self.count - 1)
        below = math.floor(rank)
        low = self._at(below)
        return low if rank == below else low + (rank - below) * (self._at(below + 1) - low)

    def _at(self, rank: int) -> float:
        """The value of a rank, from 0: exactly at both ends, else the middle of its bucket."""
        if rank >= self.count - 1:
            return self.high
        seen = self.zeros
        if rank == 0 or rank < seen:
            return self.low
        for index, times in enumerate(self._counts):
            seen += times
            if rank < seen:
                middle = math.exp((self._lowest + index + 0.5) * _LOG_GROWTH)
                return min(max(middle, self.low), self.high)
        return self.high
