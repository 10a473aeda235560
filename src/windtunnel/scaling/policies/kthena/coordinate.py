"""Moves replicas between the targets of a heterogeneous policy to where the pressure is.

The total is given, and is not touched. Half of a target's share comes from its cost, as the blocks
split the total, half from its pressure: queue depth, KV-cache use and time to the first token.
Shares are clipped to the band that was preferred, made to sum to one again, and turned into whole
replicas by largest remainder. The bounds of the targets are part of that, so that the sizes always
add up to the total when the bounds allow it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from windtunnel.scaling.policies.kthena.blocks import ReplicaKind
from windtunnel.scaling.policies.kthena.settings import PREFERRED, Band, Coordination
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context

PRESSURES: Final = ("queue_depth", "kv_cache_utilization", "ttft")
PRESSURE_WEIGHT: Final = 0.5


class Coordinated:
    """The sizes of all targets, what they come from, and what could not be used."""

    def __init__(
        self, sizes: dict[str, int], reason: str, ignored: list[str], shares: dict[str, float]
    ) -> None:
        self.sizes: Final = sizes
        self.reason: Final = reason
        self.ignored: Final = ignored  # a sentence for each value that was not used
        self.shares: Final = shares  # empty where the split by cost stands


def coordination_faults(
    coordination: Coordination, where: Context, names: Sequence[str]
) -> Iterator[Fault]:
    """What is wrong with a section, beside targets of these names."""
    for name, band in coordination.preferredRatio.items():
        what = _name_fault(name, names)
        if what:
            allowed = ", ".join(sorted(set(names)))
            yield where.fault(("preferredRatio", name), what, allowed)
        if band.min > band.max:
            what = f"min {band.min:g} is above max {band.max:g}"
            yield where.fault(("preferredRatio", name, "min"), what, "at most max")
    least = math.fsum(band.min for band in coordination.preferredRatio.values())
    if least > 100:
        what = f"the minimum ratios add up to {least:g} percent"
        yield where.fault("preferredRatio", what, "at most 100 percent")
    if coordination.mode != PREFERRED and coordination.preferredRatio:
        yield where.fault("preferredRatio", "coordination is off", hint="write mode: Preferred")


def coordinate(
    coordination: Coordination,
    backends: Sequence[ReplicaKind],
    baseline: Mapping[str, int],
    pressures: Mapping[str, Mapping[str, float]],
    *,
    panic: bool,
) -> Coordinated:
    """The split of a total; `pressures` are by target, and then by name."""
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
    for name, band in bands.items():
        raw[name] = min(max(raw[name], band.min / 100), band.max / 100)
    whole = math.fsum(raw.values())
    if whole <= 0:
        return Coordinated(stands, "every band is empty: the split is by cost", ignored, {})
    shares = {name: share / whole for name, share in raw.items()}
    sizes = apportion(total, shares, backends)
    told = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return Coordinated(sizes, f"preferred shares: {told}", ignored, shares)


def apportion(
    total: int, shares: Mapping[str, float], backends: Sequence[ReplicaKind]
) -> dict[str, int]:
    """Whole numbers near the shares, within the bounds, that add up to the total if they can."""
    amounts = _within_bounds(total, shares, backends)
    sizes = {name: math.floor(amount) for name, amount in amounts.items()}
    left = min(total, sum(backend.maximum for backend in backends)) - sum(sizes.values())
    # Digits beyond the ninth are the rounding of floats, and would break ties by chance.
    by_remainder = sorted(
        (name for name, amount in amounts.items() if amount > sizes[name]),
        key=lambda name: (-round(amounts[name] - sizes[name], 9), name),
    )
    for name in by_remainder[: max(left, 0)]:
        sizes[name] += 1
    return sizes


def _within_bounds(
    total: int, shares: Mapping[str, float], backends: Sequence[ReplicaKind]
) -> dict[str, float]:
    """Real amounts in the proportion of the shares, save for those that a bound holds."""
    fixed: dict[str, float] = {}
    free = list(backends)
    while free:
        left = total - math.fsum(fixed.values())
        weight = math.fsum(shares[backend.name] for backend in free)
        amounts = {
            backend.name: left * shares[backend.name] / weight if weight > 0 else left / len(free)
            for backend in free
        }
        low = [backend for backend in free if amounts[backend.name] < backend.minimum]
        high = [backend for backend in free if amounts[backend.name] > backend.maximum]
        if not low and not high:
            return _snapped(fixed | amounts, shares)
        lack = math.fsum(backend.minimum - amounts[backend.name] for backend in low)
        excess = math.fsum(amounts[backend.name] - backend.maximum for backend in high)
        # Only the side that is further off is sure to stay at its bound when the rest moves.
        if lack >= excess:
            held = {backend.name: float(backend.minimum) for backend in low}
        else:
            held = {backend.name: float(backend.maximum) for backend in high}
        fixed |= held
        free = [backend for backend in free if backend.name not in held]
    return _snapped(fixed, shares)


def _snapped(amounts: Mapping[str, float], order: Mapping[str, float]) -> dict[str, float]:
    """Without the rounding of floats around whole numbers, in the order of the targets."""
    snapped: dict[str, float] = {}
    for name in order:
        near = round(amounts[name])
        snapped[name] = float(near) if abs(amounts[name] - near) < 1e-9 else amounts[name]
    return snapped


def _pressure_shares(
    names: Sequence[str], pressures: Mapping[str, Mapping[str, float]], ignored: list[str]
) -> dict[str, float] | None:
    """Each target's part of the pressure; None when nobody has any."""
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
    """The bands without what validation would have refused, had it been asked."""
    bands: dict[str, Band] = {}
    for name, band in coordination.preferredRatio.items():
        what = _name_fault(name, names)
        if what:
            ignored.append(f"preferredRatio.{name}: {what}.")
        elif band.min > band.max:
            text = f"{band.min} to {band.max}"
            ignored.append(f"preferredRatio.{name}: {text} is no band within 0 to 100 percent.")
        else:
            bands[name] = band
    least = math.fsum(band.min for band in bands.values())
    if least > 100:
        ignored.append(f"preferredRatio: the minimum ratios add up to {least:g} percent.")
        return {}
    return bands


def _name_fault(name: str, names: Sequence[str]) -> str:
    if not name.strip():
        return "the name of the target is empty"
    if names.count(name) == 0:
        return f"there is no target {name!r}"
    return f"{names.count(name)} targets have this name" if names.count(name) > 1 else ""
