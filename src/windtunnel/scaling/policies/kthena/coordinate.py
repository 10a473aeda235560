"""Moves replicas between the targets of a heterogeneous policy towards those under pressure.

The total is given and does not change. Half of a target's share comes from its cost, as split by
blocks, half from its pressure: queue depth, KV-cache use and TTFT. The total is divided in
proportion to the shares, within the preferred bands and the bounds of the targets, in whole
replicas. So the sizes add up to the total if the bounds allow it, every band is met if all can be
met at once, and otherwise as few replicas as possible are outside.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from windtunnel.scaling.policies.kthena.blocks import ReplicaKind
from windtunnel.scaling.policies.kthena.settings import PREFERRED, Band, Coordination
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context

PRESSURES: Final = ("queue_depth", "kv_cache_utilization", "ttft")
PRESSURE_WEIGHT: Final = 0.5


class Coordinated(NamedTuple):
    """The sizes of all targets, the reason, and inputs that were not used."""

    sizes: dict[str, int]
    reason: str
    ignored: list[str]
    """A sentence for each unused value and each band that could not be met."""
    shares: dict[str, float]
    """Empty if the split by cost is unchanged."""


def coordination_faults(
    coordination: Coordination, where: Context, names: Sequence[str]
) -> Iterator[Fault]:
    """Yields the faults in a section, for targets of these names."""
    for name, band in coordination.preferredRatio.items():
        what = _name_fault(name, names)
        if what:
            allowed = ", ".join(sorted(set(names)))
            yield where.fault(("preferredRatio", name), what, allowed)
        if band.min > band.max:
            what = f"min {band.min:g} is above max {band.max:g}"
            yield where.fault(("preferredRatio", name, "min"), what, "at most max")
    for what, allowed in _sum_faults(coordination.preferredRatio, names):
        yield where.fault("preferredRatio", what, allowed)
    if coordination.mode != PREFERRED and coordination.preferredRatio:
        yield where.note("preferredRatio", "coordination is off", "write mode: Preferred")


def coordinate(
    coordination: Coordination,
    backends: Sequence[ReplicaKind],
    baseline: Mapping[str, int],
    pressures: Mapping[str, Mapping[str, float]],
    *,
    panic: bool,
) -> Coordinated:
    """Adjusts the split of a total; `pressures` are by target, then by name."""
    stands = {backend.name: max(baseline.get(backend.name, 0), 0) for backend in backends}
    total = sum(stands.values())
    if coordination.mode != PREFERRED:
        return Coordinated(stands, "coordination is off", [], {})
    if panic:
        return Coordinated(stands, "in panic the split is by cost alone", [], {})
    if total <= 0:
        return Coordinated(stands, "there is nothing to split", [], {})
    names = [backend.name for backend in backends]
    ignored: list[str] = []
    bands = _usable_bands(coordination, names, ignored)
    by_cost = {name: stands[name] / total for name in names}
    by_pressure = _pressure_shares(names, pressures, ignored) or by_cost
    raw = {
        name: (1 - PRESSURE_WEIGHT) * by_cost[name] + PRESSURE_WEIGHT * by_pressure[name]
        for name in names
    }
    low = [bands[name].min / 100 if name in bands else 0.0 for name in names]
    high = [bands[name].max / 100 if name in bands else 1.0 for name in names]
    filled = fill(1.0, list(raw.values()), low, high)
    shares = dict(zip(names, filled, strict=True))
    sizes = apportion(total, raw, backends, bands)
    for name, band in bands.items():
        if not band.min <= 100 * sizes[name] / total <= band.max:
            ignored.append(f"{name} cannot have {band.min:g} to {band.max:g}% of {total} replicas.")
    reported = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return Coordinated(sizes, f"preferred shares: {reported}", ignored, shares)


def apportion(
    total: int,
    shares: Mapping[str, float],
    backends: Sequence[ReplicaKind],
    bands: Mapping[str, Band] | None = None,
) -> dict[str, int]:
    """Whole numbers in proportion to the shares, within bands and bounds.

    They add up to the total if the bounds allow it. If the bands do not, as few replicas as
    possible are outside them.
    """
    limits = [_limits(total, backend, (bands or {}).get(backend.name)) for backend in backends]
    low, high = [one for one, _ in limits], [one for _, one in limits]
    weights = [shares[backend.name] for backend in backends]
    if sum(low) > total:
        weights, low, high = list(low), [backend.minimum for backend in backends], low
    elif sum(high) < total:
        weights, low, high = list(high), high, [backend.maximum for backend in backends]
    amounts = fill(total, weights, low, high)
    sizes = [math.floor(amount) for amount in amounts]
    left = min(total, sum(high)) - sum(sizes)
    # Digits beyond the ninth are rounding errors, which would break ties arbitrarily.
    by_remainder = sorted(
        (number for number, amount in enumerate(amounts) if amount > sizes[number]),
        key=lambda number: (-round(amounts[number] - sizes[number], 9), backends[number].name),
    )
    for number in by_remainder[: max(left, 0)]:
        sizes[number] += 1
    return {backend.name: size for backend, size in zip(backends, sizes, strict=True)}


def _limits(total: int, backend: ReplicaKind, band: Band | None) -> tuple[int, int]:
    """The fewest and the most replicas for a target: its band within its bounds.

    A band that contains no whole number may be missed on either side.
    """
    if band is None:
        return backend.minimum, backend.maximum
    low = math.ceil(Fraction(repr(band.min)) * total / 100)
    high = math.floor(Fraction(repr(band.max)) * total / 100)
    near = sorted((low, high))
    return (
        min(max(near[0], backend.minimum), backend.maximum),
        min(max(near[1], backend.minimum), backend.maximum),
    )


def fill(
    total: float, weights: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> list[float]:
    """Amounts in proportion to their weights, clamped to their limits.

    They add up to the total if the limits allow it: `clamp(level * weight)` at the one level where
    they do. If all remaining weights are 0, the amounts are equal.
    """
    fixed: dict[int, float] = {}
    free = list(range(len(weights)))
    while free:
        left = total - math.fsum(fixed.values())
        weight = math.fsum(weights[number] for number in free)
        amounts = {
            number: left * weights[number] / weight if weight > 0 else left / len(free)
            for number in free
        }
        below = [number for number in free if amounts[number] < low[number]]
        above = [number for number in free if amounts[number] > high[number]]
        if not below and not above:
            fixed |= amounts
            break
        lack = math.fsum(low[number] - amounts[number] for number in below)
        excess = math.fsum(amounts[number] - high[number] for number in above)
        # Only the side that is further off is sure to stay at its limit as the others move.
        held, limits = (below, low) if lack >= excess else (above, high)
        fixed |= {number: float(limits[number]) for number in held}
        free = [number for number in free if number not in fixed]
    return [fixed[number] for number in range(len(weights))]


def _pressure_shares(
    names: Sequence[str], pressures: Mapping[str, Mapping[str, float]], ignored: list[str]
) -> dict[str, float] | None:
    """Each target's share of the pressure; None if there is no pressure."""
    parts = dict.fromkeys(names, 0.0)
    for metric in PRESSURES:
        values: dict[str, float] = {}
        for name in names:
            value = pressures.get(name, {}).get(metric)
            if value is None or value == 0:
                continue
            if not math.isfinite(value) or value < 0:
                ignored.append(f"{metric} of {name} is {value}, and was not used.")
                continue
            values[name] = value
        whole = math.fsum(values.values())
        for name, value in values.items():
            parts[name] += value / whole
    whole = math.fsum(parts.values())
    return {name: part / whole for name, part in parts.items()} if whole > 0 else None


def _usable_bands(
    coordination: Coordination, names: Sequence[str], ignored: list[str]
) -> dict[str, Band]:
    """The bands without those that validation would have refused."""
    bands: dict[str, Band] = {}
    for name, band in coordination.preferredRatio.items():
        what = _name_fault(name, names)
        if what:
            ignored.append(f"preferredRatio.{name}: {what}.")
        elif band.min > band.max:
            text = f"{band.min} to {band.max}"
            ignored.append(f"preferredRatio.{name}: {text} is not a band within 0 to 100 percent.")
        else:
            bands[name] = band
    for what, _ in _sum_faults(bands, names):
        ignored.append(f"preferredRatio: {what}.")
        return {}
    return bands


def _sum_faults(bands: Mapping[str, Band], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Faults of bands that the shares of these targets cannot all meet, and what is allowed."""
    least = math.fsum(band.min for band in bands.values())
    if least > 100:
        yield f"the minimum ratios add up to {least:g} percent", "at most 100 percent"
    most = math.fsum(band.max for band in bands.values())
    if most < 100 and all(name in bands for name in names):
        yield f"the maximum ratios add up to {most:g} percent", "at least 100 percent"


def _name_fault(name: str, names: Sequence[str]) -> str:
    if not name.strip():
        return "the name of the target is empty"
    if names.count(name) == 0:
        return f"there is no target {name!r}"
    return f"{names.count(name)} targets have this name" if names.count(name) > 1 else ""
