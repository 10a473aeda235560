"""Finds the distribution of token counts that is closest to a trace's."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.workload.distributions import Lengths
from windtunnel.workload.moments import drawn_mean
from windtunnel.workload.traces.record import MOST_TOKENS

LARGEST_CV = 100.0
AUTO, FORMULA, SEEN = "auto", "formula", "seen"
"""Which lengths to write: a formula if one fits closely, always a formula, or those observed."""
LIKE = 0.05
"""The largest Kolmogorov-Smirnov distance at which a formula counts as a close fit."""
CUTS = (*(step / 100 for step in range(1, 99)), *(0.99 + step / 1000 for step in range(10)))
"""Quantiles that divide the observed lengths into groups: finer for the rare, long ones."""
MOST_SEEN = len(CUTS) + 1
SEARCH_STEPS = 200
DIGITS = 6
"""Significant digits of every fitted number."""


class LengthFit(msgspec.Struct, frozen=True):
    """A distribution, its Kolmogorov-Smirnov distance, and the relative error of its mean."""

    lengths: Lengths
    ks: float
    mean_error: float

    @property
    def score(self) -> float:
        """Lower is better. Load is proportional to the mean, so it counts as much as the shape."""
        return self.ks + abs(self.mean_error)


def fit_lengths(counts: Mapping[int, int], kind: str = AUTO) -> LengthFit:
    """The best of constant, uniform, exponential, normal and lognormal for counts by value.

    If none of them fits closely, or `kind` asks for it, the observed counts themselves.
    """
    import numpy as np

    values = np.array(sorted(counts), dtype=float)
    weights = np.array([counts[int(value)] for value in values], dtype=float)
    low, high = int(values[0]), int(values[-1])
    if low == high:
        return LengthFit(Lengths("constant", float(low), 0.0, low, low), 0.0, 0.0)
    sample = _Sample(values, weights / weights.sum(), low, high)
    if kind == SEEN:
        return sample.seen()
    fits = [sample.judge(uniform(low, high))]
    fits += [sample.best(family) for family in ("exponential", "normal", "lognormal")]
    best = min(fits, key=lambda fit: fit.score)
    return sample.seen() if kind == AUTO and best.ks > LIKE else best


def uniform(low: int, high: int) -> Lengths:
    """A uniform distribution of the whole numbers from `low` to `high`."""
    mean = (low + high) / 2
    return Lengths("uniform", mean, math.sqrt(((high - low + 1) ** 2 - 1) / 12) / mean, low, high)


def rounded(number: float) -> float:
    """Rounds a number to the digits that are written to a file."""
    return float(f"{number:.{DIGITS}g}")


class _Sample:
    """The lengths of a trace, and the distance of a distribution from them."""

    def __init__(self, values: Any, shares: Any, low: int, high: int) -> None:
        import numpy as np

        self.values, self.shares, self.low, self.high = values, shares, low, high
        self.upto = np.cumsum(shares)
        self.below = self.upto - shares
        self.mean = float(values @ shares)
        spread = math.sqrt(max(float((values - self.mean) ** 2 @ shares), 0.0))
        self.cv = spread / self.mean
        self.log_mean = float(np.log(values) @ shares)
        self.log_variance = float((np.log(values) - self.log_mean) ** 2 @ shares)

    def judge(self, lengths: Lengths) -> LengthFit:
        import numpy as np

        upto = np.where(self.values >= self.high, 1.0, cdf(lengths, self.values + 0.5))
        below = np.where(self.values <= self.low, 0.0, cdf(lengths, self.values - 0.5))
        ks = max(np.abs(upto - self.upto).max(), np.abs(below - self.below).max())
        return LengthFit(lengths, float(ks), drawn_mean(lengths) / self.mean - 1.0)

    def seen(self) -> LengthFit:
        """The observed lengths themselves: all if they are few, else the mean of each group."""
        import numpy as np

        if len(self.values) <= MOST_SEEN:
            values, shares = self.values, self.shares
        else:
            group = np.searchsorted(CUTS, self.upto - self.shares / 2)
            shares = np.bincount(group, weights=self.shares)
            sums = np.bincount(group, weights=self.shares * self.values)
            values, shares = np.round(sums[shares > 0] / shares[shares > 0]), shares[shares > 0]
        weights = tuple(float(f"{share:.4g}") for share in shares)
        lengths = Lengths(
            "empirical", 0.0, 0.0, 1, MOST_TOKENS, values=tuple(map(int, values)), weights=weights
        )
        upto = np.cumsum(weights) / sum(weights)
        model = np.append(0.0, upto)[np.searchsorted(values, self.values, side="right")]
        under = np.append(0.0, upto)[np.searchsorted(values, self.values, side="left")]
        ks = max(np.abs(model - self.upto).max(), np.abs(under - self.below).max())
        return LengthFit(lengths, float(ks), drawn_mean(lengths) / self.mean - 1.0)

    def best(self, family: str) -> LengthFit:
        """The best parameters of a family, searched from the sample's moments or likelihood."""
        from scipy.optimize import minimize

        starts = [(self.mean, self.cv)]
        if family == "lognormal":
            likely = math.exp(self.log_mean + self.log_variance / 2)
            starts.append((likely, math.sqrt(math.expm1(min(self.log_variance, 9.0)))))

        def made(logs: Any) -> Lengths:
            mean = min(max(rounded(math.exp(min(logs[0], 700.0))), self.low), self.high)
            cv = 1.0 if family == "exponential" else min(math.exp(min(logs[1], 700.0)), LARGEST_CV)
            return Lengths(family, float(mean), rounded(cv), self.low, self.high)

        def score(logs: Any) -> float:
            return self.judge(made(logs)).score

        logs = ([math.log(mean), math.log(max(cv, 1e-3))] for mean, cv in starts)
        first = min(logs, key=score)
        found = minimize(score, first, method="Nelder-Mead", options={"maxiter": SEARCH_STEPS})
        return min((self.judge(made(logs)) for logs in (first, found.x)), key=lambda fit: fit.score)


def cdf(lengths: Lengths, at: Any) -> Any:
    """The cumulative distribution function at `at`, before clamping to the bounds."""
    import numpy as np
    from scipy.special import ndtr

    mean, cv = lengths.mean, max(lengths.cv, 1e-9)
    if lengths.distribution == "uniform":
        return np.clip((at - (lengths.low - 0.5)) / (lengths.high - lengths.low + 1), 0.0, 1.0)
    if lengths.distribution == "exponential":
        return -np.expm1(-np.maximum(at, 0.0) / mean)
    if lengths.distribution == "normal":
        return ndtr((at - mean) / (mean * cv))
    assert lengths.distribution == "lognormal"
    variance = math.log1p(cv * cv)
    logs = np.log(np.maximum(at, 1e-9))
    return ndtr((logs - math.log(mean) + variance / 2) / math.sqrt(variance))
