"""The points of a space to run: a whole grid, or the requested number, drawn or evenly spread.

A design depends only on its axes and a seed. Every point runs with the same traffic seeds, so that
points differ by their settings and not by chance.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.random import Stream
from windtunnel.search.point import Settings, written
from windtunnel.search.sweep.axes import Axis

GRID, RANDOM, SOBOL = "grid", "random", "sobol"
DESIGNS = (GRID, RANDOM, SOBOL)
MOST_POINTS = 10_000
MOST_RUNS = 20_000
"""Limit on points times seeds."""
MOST_AXES = 50
DRAWS_PER_POINT = 64
"""Draws per point after which the search for distinct points is abandoned."""
USUAL_POINTS = 64


def settings_of(
    axes: Sequence[Axis], design: str = GRID, points: int | None = None, seed: int = 0
) -> list[Settings]:
    """The settings of all points, in the order of the design."""
    if design not in DESIGNS:
        what, allowed = f"{design!r} is not a design", ", ".join(DESIGNS)
        raise InputError(what, where="design", allowed=allowed, hint=nearest(str(design), DESIGNS))
    if len(axes) > MOST_AXES:
        raise InputError(f"{len(axes)} settings are varied", allowed=f"up to {MOST_AXES}")
    if design == GRID:
        return _grid(axes, points)
    count = USUAL_POINTS if points is None else points
    if not 1 <= count <= MOST_POINTS:
        what = f"{count:,} points cannot be run"
        raise InputError(what, where="--points", allowed=f"1 to {MOST_POINTS:,}")
    sizes = [len(axis.levels) for axis in axes if axis.levels is not None]
    whole = math.prod(sizes) if len(sizes) == len(axes) else None
    if whole is not None and count > whole:
        if points is not None:
            what = f"{count:,} points are more than the {whole:,} that exist"
            raise InputError(what, where="--points", hint="--design grid runs all of them")
        count = whole
    shares = _drawn(len(axes), seed) if design == RANDOM else _spread(len(axes), count, seed)
    return _distinct(axes, shares, count)


def _grid(axes: Sequence[Axis], points: int | None) -> list[Settings]:
    if points is not None:
        what = "a grid has all combinations of its values as points"
        raise InputError(what, where="--points", hint="add --design random or --design sobol")
    levels = []
    for axis in axes:
        if axis.levels is None:
            step = "x2" if axis.log else f"{(axis.high - axis.low) / 8:g}"
            raise InputError(
                "a grid needs to know which values of the range to take",
                where=f"--vary {axis.path}={axis.range}",
                allowed=f"a step, as in {axis.path}={axis.range}:{step}",
                hint="or --design sobol, which draws them",
            )
        levels.append(axis.levels)
    count = math.prod(len(values) for values in levels)
    if count > MOST_POINTS:
        what = f"the grid has {count:,} points"
        hint = f"--design sobol --points {USUAL_POINTS} spreads a few over it"
        raise InputError(what, where="--vary", allowed=f"up to {MOST_POINTS:,}", hint=hint)
    paths = [axis.path for axis in axes]
    return [tuple(zip(paths, values, strict=True)) for values in itertools.product(*levels)]


def _drawn(dimensions: int, seed: int) -> Iterator[list[float]]:
    stream = Stream(seed, "search.design")
    while True:
        yield [stream.uniform() for _ in range(dimensions)]


def _spread(dimensions: int, count: int, seed: int) -> Iterable[Sequence[float]]:
    """A Sobol sequence with a random shift: its own first point is a corner of the space."""
    from scipy.stats import qmc

    stream = Stream(seed, "search.design")
    shift = [stream.uniform() for _ in range(dimensions)]
    # Drawn in powers of two, for which the sequence is balanced.
    most = math.ceil(math.log2(count * DRAWS_PER_POINT))
    sequence = qmc.Sobol(dimensions, scramble=False, bits=30)
    drawn = 0
    for power in range(most + 1):
        size = max(1, 2**power - drawn)
        for row in sequence.random(size):
            yield [(float(share) + move) % 1.0 for share, move in zip(row, shift, strict=True)]
        drawn += size


def settings_at(axes: Sequence[Axis], shares: Sequence[float]) -> tuple[str, Settings]:
    """The settings at positions of the axes, and a key that identifies them."""
    values = [axis.at(share) for axis, share in zip(axes, shares, strict=True)]
    settings = tuple((axis.path, value) for axis, value in zip(axes, values, strict=True))
    return repr([written(value) for value in values]), settings


def _distinct(
    axes: Sequence[Axis], shares: Iterable[Sequence[float]], count: int
) -> list[Settings]:
    """The first distinct points; fewer if the draws yield too few."""
    found: dict[str, Settings] = {}
    for row in itertools.islice(shares, count * DRAWS_PER_POINT):
        key, settings = settings_at(axes, row)
        found.setdefault(key, settings)
        if len(found) == count:
            break
    return list(found.values())
