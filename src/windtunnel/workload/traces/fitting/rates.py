"""Fits the arrivals of a trace: their rate over time, and the process of their gaps."""

import math
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.workload.arrivals import weibull_shape
from windtunnel.workload.distributions import Arrivals, Curve
from windtunnel.workload.traces.fitting.lengths import LARGEST_CV, rounded

SMALLEST_CV = 0.01
POISSON_WITHIN = 0.05
MOST_WINDOWS = 500
USUAL_WINDOWS = 100
FEWEST_IN_WINDOW = 30
"""Mean requests per window; with fewer, a rate curve would follow noise."""
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200,
            86400)  # fmt: skip
SHARED_INSTANTS = 0.05
"""Share of requests that arrive at the same instant as another, from which rounding is assumed."""
NEAR_MULTIPLE = 0.02


class RateSteps(msgspec.Struct, frozen=True):
    """A rate that is constant within windows of equal width; the last window may be shorter."""

    width_s: float
    factors: tuple[float, ...]
    """Rate over mean rate, per window."""

    def curve(self) -> Curve:
        """The steps as a curve of points, two at the same time for each jump."""
        points: list[tuple[float, float]] = []
        for at, factor in enumerate(self.factors):
            start_s = at * self.width_s
            if points:
                points.append((start_s, points[-1][1]))
            points.append((start_s, factor))
        return Curve(points=tuple(points))

    def even(self, times: Any) -> Any:
        """The times rescaled by the integral of the factors, so that their rate is constant."""
        import numpy as np

        upto = np.concatenate([[0.0], np.cumsum(self.factors)]) * self.width_s
        window = np.minimum((times / self.width_s).astype(int), len(self.factors) - 1)
        inside = times - window * self.width_s
        return upto[window] + inside * np.array(self.factors)[window]


def rate_steps(times: Any, width_s: float | None) -> RateSteps:
    """The rate over time; the default width follows from the number of requests and their span."""
    import numpy as np

    span_s = float(times[-1])
    if width_s is None:
        least_s = max(span_s / USUAL_WINDOWS, FEWEST_IN_WINDOW * span_s / len(times))
        width_s = next((float(one) for one in WIDTHS_S if one >= least_s), least_s)
    windows = max(math.ceil(span_s / width_s), 1)
    if windows > MOST_WINDOWS:
        what = f"a window of {width_s:g} s makes {windows} of them"
        raise InputError(f"--window: {what}", allowed=f"up to {MOST_WINDOWS}")
    at = np.minimum((times / width_s).astype(int), windows - 1)
    counts = np.bincount(at, minlength=windows).astype(float)
    lengths = np.full(windows, width_s)
    lengths[-1] = span_s - (windows - 1) * width_s
    factors = counts / lengths * (span_s / len(times))
    return RateSteps(width_s, tuple(float(f"{factor:.4g}") for factor in factors))


def step_of(times: Any) -> float | None:
    """The step to which times are rounded, if many share an instant; None if no step is found."""
    import numpy as np

    gaps = np.diff(times)
    apart = gaps[gaps > 0]
    if len(apart) < 2 or 1.0 - len(apart) / len(gaps) < SHARED_INSTANTS:
        return None
    step_s = float(np.quantile(apart, 0.05))
    multiples = apart / step_s
    near = np.abs(multiples - np.round(multiples)) <= NEAR_MULTIPLE * np.round(multiples)
    return step_s if near.mean() > 0.95 else None


def spread_out(times: Any, step_s: float, seed: int) -> Any:
    """Spreads times that share an instant at random over the rounding step after it."""
    import numpy as np

    stream = Stream(seed, "trace.spread")
    draws = np.array([stream.uniform() for _ in range(len(times))])
    _, first = np.unique(times, return_index=True)
    after = np.append(times[first[1:]], math.inf)
    room = np.minimum(after - times[first], step_s)
    rooms = np.repeat(room, np.diff(np.append(first, len(times))))
    moved = np.sort(times + draws * rooms)
    return moved - moved[0]


def fit_arrivals(gaps: Any, rate_per_s: float) -> tuple[Arrivals, float]:
    """The closest process with the mean and cv of the gaps, and its Kolmogorov-Smirnov distance."""
    rate = rounded(rate_per_s)
    cv = float(gaps.std() / gaps.mean())
    if cv < SMALLEST_CV:
        return Arrivals("constant", rate, 0.0), 0.0
    cv = rounded(min(cv, LARGEST_CV))
    near_poisson = abs(cv - 1.0) <= POISSON_WITHIN
    processes = ("poisson",) if near_poisson else ("gamma", "weibull")
    fits = [Arrivals(process, rate, 1.0 if near_poisson else cv) for process in processes]
    judged = [(gap_distance(gaps, fit), at) for at, fit in enumerate(fits)]
    distance, best = min(judged)
    return fits[best], distance


def gap_distance(gaps: Any, arrivals: Arrivals) -> float:
    """The Kolmogorov-Smirnov distance between gaps and a process with the same mean."""
    import numpy as np
    from scipy.special import gammainc

    values = np.sort(gaps) / gaps.mean()
    if arrivals.process == "weibull":
        shape = weibull_shape(arrivals.cv)
        model = -np.expm1(-((values * math.gamma(1 + 1 / shape)) ** shape))
    else:
        shape = 1.0 / arrivals.cv**2
        model = gammainc(shape, values * shape)
    ranks = np.arange(len(values) + 1) / len(values)
    return float(max((ranks[1:] - model).max(), (model - ranks[:-1]).max()))


def dispersion(times: Any, width_s: float) -> float | None:
    """Variance over mean of the counts in whole windows; None with fewer than two windows."""
    import numpy as np

    windows = int(times[-1] / width_s)
    if windows < 2:
        return None
    counts = np.bincount((times / width_s).astype(int), minlength=windows)[:windows]
    return float(counts.var() / counts.mean())
