"""Runs a soak of a fleet, and presents its verdict as a table or as plain data."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

import windtunnel
from windtunnel.cli.controllers.fleet_bench import reasons_in_words
from windtunnel.core.clock import cpu_s
from windtunnel.core.units import counted
from windtunnel.fleet.planner.buffer import BufferLimits
from windtunnel.fleet.planner.consolidation import ConsolidationLimits
from windtunnel.twin.fleet.bound import CostGap
from windtunnel.twin.fleet.soak import (
    DAY_S,
    FAULTS,
    Soak,
    SoakCheck,
    SoakFigures,
    SoakLimits,
    SoakSettings,
    has_passed,
    judge,
    profile_named,
)

GAP_CYCLES = 60
PROCESS_LOSSES_PER_HOUR = 6.0


def soak_fleet(
    name: str,
    *,
    minutes: float,
    churn: float,
    losses_per_day: float,
    seed: int,
    gap: bool,
    shards: int,
    process_losses_per_hour: float | None,
    cycle_limit_s: float,
    urgent: float,
    buffer: float | None,
    consolidate: bool,
    progress: Callable[[float], None],
) -> dict[str, Any]:
    """Runs one soak; all its figures and its verdict, as plain data."""
    envelope = SoakLimits(whole_s_p99=cycle_limit_s).check()  # before the work, not after it
    if process_losses_per_hour is None:
        process_losses_per_hour = PROCESS_LOSSES_PER_HOUR if shards > 1 else 0.0
    plan = SoakSettings(
        profile_named(name),
        soak_s=minutes * 60.0,
        churn_per_min=churn,
        faults=msgspec.structs.replace(FAULTS, losses_per_s=losses_per_day / DAY_S),
        gap_cycles=GAP_CYCLES if gap else 0,
        seed=seed,
        shards=shards,
        process_losses_per_hour=process_losses_per_hour,
        urgent_share=urgent,
        buffer=None if buffer is None else BufferLimits(share=buffer),
        consolidation=ConsolidationLimits() if consolidate else None,
    )
    soak = Soak(plan, cpu_s)
    seen = soak.run(progress)
    checks = judge(seen, envelope)
    return {
        "profile": name,
        "form": windtunnel.FORM,
        "seed": seed,
        "pass": has_passed(checks),
        "checks": [_plain(one) for one in checks],
        "figures": msgspec.to_builtins(seen),
        "instruments": soak.instruments.as_json(),
    }


def _plain(one: SoakCheck) -> dict[str, Any]:
    """A check as JSON-compatible data: null instead of NaN."""
    found: dict[str, Any] = msgspec.to_builtins(one)
    if math.isnan(one.value):
        found["value"] = None
    return found


def table(result: dict[str, Any]) -> str:
    """The verdict as text."""
    seen = msgspec.convert(result["figures"], SoakFigures)
    lines = [
        f"{seen.machines:,} machines, {seen.needs:,} needs in {seen.rows:,} rows, "
        f"{counted(seen.soak_s / 60, 'simulated minute')}, seed {result['seed']}, {result['form']}",
        "",
        _line("converged after", f"{seen.ramp_s:.0f} s; cold cycle {_ms(seen.cold_cycle_s)}"),
        _line(
            "planning",
            f"{seen.cycles} cycles: p50 {_ms(seen.cycle_s_p50)}, p99 {_ms(seen.cycle_s_p99)}, "
            f"longest {_ms(seen.cycle_s_max)}",
        ),
        _line(
            "whole cycles",
            f"p50 {_ms(seen.whole_s_p50)}, p99 {_ms(seen.whole_s_p99)}, "
            f"longest {_ms(seen.whole_s_max)}",
        ),
        _line(
            "of that, p99",
            f"lists {_ms(seen.reconcile_s_p99)}, roll-ups {_ms(seen.rollup_s_p99)}, "
            f"execution {_ms(seen.execute_s_p99)}",
        ),
        _line("units replaced", f"{seen.churned:,}"),
        _line("machines lost", _lost(seen)),
        _line(
            "actions",
            f"{seen.actions:,} ended, {seen.landed:,} succeeded, {seen.deferred:,} deferred",
        ),
        _line("deferred by", reasons_in_words(seen.deferral_reasons)),
        _line("join data", f"fetched within {seen.fetch_s_p99:.1f} s, p99"),
        _line("records rejected", f"{seen.records_rejected}, {seen.records_lied} of them injected"),
    ]
    if seen.shards > 1:
        lines += [_line("shards", _shards(seen))]
    lines += [_line("empty domain", one) for one in seen.empty_domains]
    lines += [_gap(one) for one in seen.gaps]
    lines += [""]
    lines += _verdicts(result["checks"])
    lines += ["", "PASS" if result["pass"] else "FAIL"]
    return "\n".join(lines)


def _lost(seen: SoakFigures) -> str:
    words = f"{seen.losses}, {seen.losses_expected:.1f} expected"
    with_domain = seen.lost_with_domain
    return f"{words}; {with_domain} more with their domain" if with_domain else words


def _shards(seen: SoakFigures) -> str:
    return (
        f"{seen.shards}, {seen.machines_moved} machines moved; {seen.takeovers} takeovers, "
        f"{seen.stale_refused} stale orders refused, coordinator restarted "
        f"{seen.coordinator_restarts} times"
    )


def _gap(one: CostGap) -> str:
    kind = f"{one.rows:,} needs, {'whole machines' if one.whole_machines else 'all of them'}"
    bound = f"${one.cost:,.2f}/h, at least ${one.bound:,.2f}: at most {one.gap:.1%} above it"
    return _line(kind, bound)


def _verdicts(checks: list[dict[str, Any]]) -> list[str]:
    """A line for each check, in aligned columns."""
    rows = []
    for one in checks:
        value = "nothing seen" if one["value"] is None else f"{one['value']:.4g}"
        limit = f"{'at most' if one['at_most'] else 'at least'} {one['limit']:g}"
        rows.append(("pass" if one["passed"] else "FAIL", one["name"], value, limit, one["words"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _line(name: str, value: str) -> str:
    return f"  {name:<27}{value}"
