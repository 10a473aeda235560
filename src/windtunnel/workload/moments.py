"""Mean of a distribution of lengths before and after clamping to its bounds.

Closed forms, from the limited mean L(b) = E[min(X, b)]: a draw clamped to low and high has the mean
low + L(high) - L(low). Rounding draws to whole tokens changes this by less than half a token.
"""

import math
from collections.abc import Sequence

from windtunnel.workload.distributions import Lengths

NO_SPREAD = 1e-9

_ROOT_2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 * math.pi)


def asked_mean(lengths: Lengths) -> float:
    """The mean before clamping; infinity if the Pareto tail has no finite mean."""
    if lengths.distribution == "empirical":
        return _weighted(lengths.values, lengths.weights)
    if lengths.distribution != "pareto-lognormal":
        return lengths.mean
    alpha, start = lengths.tail_alpha, lengths.tail_start
    tail = start * alpha / (alpha - 1.0) if alpha > 1.0 else math.inf
    return (1.0 - lengths.tail_share) * lengths.mean + lengths.tail_share * tail


def drawn_mean(lengths: Lengths) -> float:
    """The mean of the draws after clamping to the bounds."""
    low, high = float(lengths.low), float(lengths.high)
    if lengths.distribution in ("constant", "uniform"):
        return (low + high) / 2
    if lengths.distribution == "empirical":
        held = [min(max(value, lengths.low), lengths.high) for value in lengths.values]
        return _weighted(held, lengths.weights)
    return low + _limited_mean(lengths, high) - _limited_mean(lengths, low)


def _weighted(values: Sequence[int], weights: Sequence[float]) -> float:
    pairs = zip(values, weights, strict=True)
    return math.fsum(value * weight for value, weight in pairs) / math.fsum(weights)


def _limited_mean(lengths: Lengths, bound: float) -> float:
    mean, cv = lengths.mean, lengths.cv
    if lengths.distribution == "exponential":
        return -mean * math.expm1(-bound / mean)
    if cv < NO_SPREAD:
        rest = min(mean, bound)
    elif lengths.distribution == "normal":
        rest = _limited_normal(mean, mean * cv, bound)
    else:
        rest = _limited_lognormal(mean, cv, bound)
    if lengths.distribution != "pareto-lognormal":
        return rest
    tail = _limited_pareto(lengths.tail_alpha, lengths.tail_start, bound)
    return (1.0 - lengths.tail_share) * rest + lengths.tail_share * tail


def _limited_normal(mean: float, stddev: float, bound: float) -> float:
    at = (bound - mean) / stddev
    density = math.exp(-at * at / 2.0) / _ROOT_2_PI
    return mean * _below(at) - stddev * density + bound * _below(-at)


def _limited_lognormal(mean: float, cv: float, bound: float) -> float:
    variance = math.log1p(cv * cv)
    spread = math.sqrt(variance)
    at = (math.log(bound) - math.log(mean) + variance / 2.0) / spread
    return mean * _below(at - spread) + bound * _below(-at)


def _limited_pareto(alpha: float, start: float, bound: float) -> float:
    if bound <= start:
        return bound
    if alpha == 1.0:
        return start * (1.0 + math.log(bound / start))
    return start + start / (alpha - 1.0) * -math.expm1((1.0 - alpha) * math.log(bound / start))


def _below(at: float) -> float:
    """The standard normal cumulative distribution function."""
    return 0.5 * math.erfc(-at / _ROOT_2)
