"""Intervals for latencies: a plan over several seeds, with step times off by their known error.

Every seed runs three times: as it is, with every step faster by the error of its model, and with
every step slower by it. That is the worst effect of errors of this size, all in one direction. An
interval reaches from what the next seed may show with fast steps to what it may show with slow ones
(19 times in 20). Assumed host times are halved with fast steps and doubled with slow ones, which
covers the range of published servers.

A few seeds that differ much have no interval: at 95%, two that differ by a factor of ten would
have one from microseconds to months.

Where nothing depends on chance, as in a replay, other seeds would repeat the same run: one seed
runs, and an interval reaches from fast steps to slow ones.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.analysis.figures import TARGETS
from windtunnel.analysis.trust import CAUTION, DOUBT, GOOD, TrustFinding, as_section
from windtunnel.core.statistics.distribution import PERCENTILES
from windtunnel.core.statistics.intervals import next_positive_interval
from windtunnel.core.units import format_duration
from windtunnel.search.repeats.runs import Repeat, RepeatProgress, run_all
from windtunnel.settings.limits import LARGEST_STEP_ERROR
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.settings import PoolSettings

FIGURES = ("mean", *(name for name, _ in PERCENTILES))

UNCHANGED = "Other seeds change nothing in this scenario"
FAST_HOST, SLOW_HOST = 0.5, 2.0
NARROW, WIDE = 1.5, 3.0  # the high end of an interval over its low end
UNMEASURED_ERROR = 0.5  # of `physics` on hardware without measurements

Latencies = dict[str, dict[str, float | None]]
Intervals = dict[str, dict[str, list[float] | None]]


def latencies_of(result: dict[str, Any]) -> Latencies:
    """The part of a result that repeats are run for."""
    latency: Latencies = result["latency"]
    return latency


def add_intervals(
    result: dict[str, Any],
    plan: ScenarioPlan,
    seeds: int,
    step_error: float | None,
    done: RepeatProgress,
    workers: int | None = None,
) -> None:
    """Repeats the run of a result, and adds the intervals to its `trust` section.

    `step_error`, if given, replaces the errors of all models.
    """
    trust = result["trust"]
    varies = draws(plan)
    seeds = seeds if varies else 1
    errors = {
        name: _error(pool["error"]["mape"], step_error, result["pools"][name]["step_time"]["model"])
        for name, pool in trust["pools"].items()
    }
    plans = [plan.changed(seed=plan.seed + number) for number in range(seeds)]
    groups = [[Repeat(one) for one in plans[1:]]]
    assumed = [pool.name for pool in plan.pools if pool.has_assumed_overheads]
    ends = ((-1.0, FAST_HOST), (1.0, SLOW_HOST))
    for sign, factor in ends if any(errors.values()) or assumed else ():
        scales = {name: 1.0 + sign * error for name, error in errors.items() if error}
        groups.append([Repeat(_with_hosts(one, factor), scales) for one in plans])
    repeats = [repeat for group in groups for repeat in group]
    found = run_all(repeats, latencies_of, done, workers)
    as_it_is, *scaled = _regrouped([latencies_of(result), *found], seeds)
    chance = _intervals(as_it_is) if varies else None
    model = _means(scaled) if scaled else None
    both = None
    if varies or scaled:
        both = _hull([_intervals(group) for group in (as_it_is, *scaled)])
    trust["latency_intervals"] = both
    trust["repeats"] = {
        "seeds": [one.seed for one in plans],
        "step_error": errors,
        "host_time": {name: [FAST_HOST, SLOW_HOST] for name in assumed},
        "by_chance": chance,
        "by_model": model,
    }
    findings = msgspec.convert(trust["findings"], list[TrustFinding])
    # Every run has the figure, but some group of runs has no interval for it.
    unlike = [
        kind for kind, ends in (both or {}).items() if kind in TARGETS and ends["p99"] is None
    ]
    unlike = [kind for kind in unlike if all(_values(g, kind, "p99") for g in (as_it_is, *scaled))]
    finding = _finding(both, chance, model, errors, seeds, unlike, has_hosts=bool(assumed))
    findings.insert(0, finding)
    trust.update(as_section(findings))


def _with_hosts(plan: ScenarioPlan, factor: float) -> ScenarioPlan:
    """A plan with its assumed host times scaled by a factor."""
    pools = [
        _with_host(pool, factor) if pool.has_assumed_overheads else pool for pool in plan.pools
    ]
    return plan.with_pools(pools)


def _with_host(pool: PoolSettings, factor: float) -> PoolSettings:
    own = pool.overheads
    names = ("queueing_s", "per_prompt_token_s")
    changed = own.with_defaults({name: factor * getattr(own, name) for name in names})
    return pool.model_copy(update={"overheads": changed})


def _error(mape: float | None, given: float | None, model: str) -> float | None:
    error = mape if given is None else given
    if error is None and model == "physics":
        error = UNMEASURED_ERROR
    return None if error is None else min(error, LARGEST_STEP_ERROR)


def _regrouped(found: Sequence[Latencies], seeds: int) -> list[Sequence[Latencies]]:
    return [found[first : first + seeds] for first in range(0, len(found), seeds)]


def _values(group: Sequence[Latencies], kind: str, figure: str) -> list[float] | None:
    """A figure of every run; None if a run has none."""
    values = [one[kind][figure] for one in group]
    present = [value for value in values if value is not None]
    return present if len(present) == len(values) else None


def _each(kinds: Iterable[str], ends: Callable[[str, str], list[float] | None]) -> Intervals:
    """Applies a function to every figure of the given kinds of latency."""
    return {kind: {figure: ends(kind, figure) for figure in FIGURES} for kind in kinds}


def _intervals(group: Sequence[Latencies]) -> Intervals:
    """Prediction intervals for one more run, by kind and figure."""
    return _each(group[0], lambda kind, figure: _ends(_values(group, kind, figure)))


def _ends(values: list[float] | None) -> list[float] | None:
    """The ends of the prediction interval, if it says anything; a single run, which no seed
    changes, is both ends."""
    if values is None or len(values) == 1:
        return None if values is None else values * 2
    interval = next_positive_interval(values)
    return None if interval.is_too_wide else [interval.low, interval.high]


def _means(scaled: Sequence[Sequence[Latencies]]) -> Intervals:
    """From the mean over seeds with fast steps to that with slow steps."""

    def means(kind: str, figure: str) -> list[float] | None:
        groups = [_values(group, kind, figure) for group in scaled]
        found = sorted(sum(values) / len(values) for values in groups if values is not None)
        return found if len(found) == len(groups) else None

    return _each(scaled[0][0], means)


def _hull(parts: Sequence[Intervals]) -> Intervals:
    """The smallest intervals that contain those of all parts."""

    def hull(kind: str, figure: str) -> list[float] | None:
        ends = [part[kind][figure] for part in parts]
        present = [end for end in ends if end is not None]
        if len(present) < len(ends):
            return None
        return [min(low for low, _ in present), max(high for _, high in present)]

    return _each(parts[0], hull)


def _ratio(interval: Sequence[float] | None) -> float:
    """The ratio of the high end to the low end."""
    if interval is None or interval[1] <= 0.0:
        return 1.0
    return interval[1] / interval[0] if interval[0] > 0.0 else math.inf


def _finding(
    both: Intervals | None,
    chance: Intervals | None,
    model: Intervals | None,
    errors: Mapping[str, float | None],
    seeds: int,
    unlike: Sequence[str],
    *,
    has_hosts: bool,
) -> TrustFinding:
    known = [error for error in errors.values() if error is not None]
    over = f"Over {seeds} seeds" if chance is not None else UNCHANGED
    if both is None:
        says = f"{UNCHANGED}, and no error of step times is known: one run is all there is, and it "
        says += "has no intervals. --step-error says how far step times may be off."
        return TrustFinding("latency-interval", CAUTION, says, {"seeds": seeds})
    if unlike:
        says = f"{over}, the p99 of {', '.join(TARGETS[kind] for kind in unlike)} differs too much "
        says += f"for an interval: more seeds (--seeds {2 * seeds + 1}) or longer runs would help."
        return TrustFinding("latency-interval", DOUBT, says, {"seeds": seeds})
    widest = max(TARGETS, key=lambda kind: _ratio(both[kind]["p99"]))
    ends, ratio = both[widest]["p99"], _ratio(both[widest]["p99"])
    if ends is None:
        says = f"{over}; not every run has latencies, so there are no intervals."
        return TrustFinding("latency-interval", DOUBT, says, {"seeds": seeds})
    severity = GOOD if ratio <= NARROW else CAUTION if ratio <= WIDE else DOUBT
    low, high = (format_duration(end) for end in ends)
    parts = [f"step times up to {max(known):.1%} off either way"] if known else []
    parts += ["host time by half or twice"] if has_hosts else []
    off = f"with {' and '.join(parts)}" if parts else ""
    joined = f"{over}; {off}" if chance is None else f"{over} and {off}" if off else over
    says = f"{joined}, the p99 of {TARGETS[widest]} is {low} to {high}."
    if model is not None and severity != GOOD:
        says += _cause(chance, model, widest, has_hosts=has_hosts)
    if len(known) < len(errors):
        says += " Unknown errors of step times are not included."
    figures = {
        "seeds": seeds,
        "step_error": max(known, default=None),
        "ratio": ratio if math.isfinite(ratio) else None,
    }
    return TrustFinding("latency-interval", severity, says, figures)


def _cause(chance: Intervals | None, model: Intervals, kind: str, *, has_hosts: bool) -> str:
    """The cause of a wide interval, and how to narrow it."""
    by_model = _ratio(model[kind]["p99"])
    if chance is not None and _ratio(chance[kind]["p99"]) >= by_model:
        return " Most of that is chance: a longer run, or more seeds, narrows it."
    whole = "All" if chance is None else "Most"
    what = "step times and host time" if has_hosts else "step times"
    return f" {whole} of that is the error of {what}: better ones narrow it."
