"""Renders the report: one file that loads nothing, with all names given by users escaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.analysis.explain.overview import losses_in_words, slowest_in_words
from windtunnel.analysis.explain.request import SlowRequest, slow_requests
from windtunnel.analysis.explain.steps import moment
from windtunnel.analysis.figures import LATENCIES, NOTHING, OUTCOMES
from windtunnel.analysis.phases import NAMES, PHASES, Owner
from windtunnel.analysis.run import AnalyzedRun, read_run
from windtunnel.analysis.run_folder import whole
from windtunnel.analysis.saturation import (
    KV_FULL,
    LEAST_SAMPLES,
    LEAST_SHARE,
    bandwidth_of,
    link_full_s,
    slots_of,
    stretches_of,
)
from windtunnel.analysis.slowest import FINISHED, FIRST_TOKEN
from windtunnel.core.units import format_duration
from windtunnel.report.page import tables
from windtunnel.report.page.axes import ACROSS, brief, time_ticks
from windtunnel.report.page.distributions import BOTTOM, TOP, views
from windtunnel.report.page.document import document
from windtunnel.report.page.headline import attainments, settings, tiles, trust_box, verdict
from windtunnel.report.page.heat import heat_map
from windtunnel.report.page.layers import fleet_size, layer_charts
from windtunnel.report.page.marks import troubles
from windtunnel.report.page.series import HEIGHT, bands, charts, hover_data
from windtunnel.report.terminal.run import latencies_of, measured_text

STYLES = ("report.css", "trust.css")
MOST_STRETCHES = 8


def report_page(folder: Path) -> str:
    """The report of the run in a folder, as HTML."""
    from jinja2 import UndefinedError

    with whole(folder):
        try:
            return render(read_run(folder))
        except UndefinedError as error:
            raise LookupError(error.message) from error


def render(run: AnalyzedRun) -> str:
    """The report of a loaded run, as HTML."""
    values = _values(run)
    hover = values.pop("hover")
    filters: dict[str, Callable[..., str]] = {
        "duration": format_duration,
        "brief": brief,
        "moment": moment,
        "server": _server,
    }
    return document(
        "report.html", values, styles=STYLES, filters=filters, script="report.js", hover=hover
    )


def _values(run: AnalyzedRun) -> dict[str, Any]:
    result, scenario, series = run.result, run.scenario, run.series
    slots = slots_of(series, scenario)
    found = stretches_of(result)
    bandwidth = bandwidth_of(scenario)
    groups = run.shares.groups()
    end_s = float(series.times[-1])
    drawn = charts(series, slots, bandwidth, run.first_tokens.lines())
    heat = heat_map(series, slots) if drawn and series.names else None
    accounts = tables.accounts(result)
    others = (
        tables.decisions(result),
        tables.conversations(result),
        tables.transfers(result),
        tables.tiers(result),
    )
    accounts += [table for table in others if table is not None]
    if drawn:
        drawn += layer_charts(result, run.history, series, end_s)
    faults = troubles(run.history.faults.values(), end_s) if drawn else []
    return {
        "result": result,
        "verdict": verdict(
            result,
            found,
            link_full_s(series, bandwidth),
            slowest_in_words(run, run.slowest),
            losses_in_words(run, run.lost),
        ),
        "trust": trust_box(result, scenario),
        "tiles": tiles(result),
        "attainments": attainments(result, scenario),
        "views": views(run),
        "shares": groups,
        "share_phases": _seen({part.phase for group in groups for part in group.shares}),
        "accounts": accounts,
        "pools": tables.pools(result, scenario),
        "choices": tables.choices(result),
        "machines": tables.servers(result),
        "latency": latencies_of(result),
        "latency_names": LATENCIES,
        "top": TOP,
        "bottom": BOTTOM,
        "charts": drawn,
        "height": HEIGHT,
        "across": ACROSS,
        "bands": bands(found, end_s) if drawn else [],
        "troubles": faults,
        "stretches": found[:MOST_STRETCHES],
        "more_stretches": len(found) - MOST_STRETCHES,
        "rule": {"kv": KV_FULL, "samples": LEAST_SAMPLES, "share": LEAST_SHARE},
        "interval": format_duration(float(series.whole["interval"].max())),
        "ticks": time_ticks(end_s),
        "servers": len(series.names),
        "fleet": fleet_size(series),
        "serves": tables.serves(scenario),
        "measured": measured_text(result),
        "heat": heat,
        "worst": [
            _slowest(title, slow_requests(run, run.slowest.requests(upto), upto))
            for title, upto in (("to the first token", FIRST_TOKEN), ("to the end", FINISHED))
        ],
        "phase_names": NAMES,
        "endings": run.endings.most(),
        "ending_names": OUTCOMES,
        "settings": settings(scenario, result),
        "hover": {
            "end": end_s,
            "charts": hover_data(drawn),
            "faults": [[one.x, one.width, one.says] for one in faults],
            "heat": heat.values if heat is not None else None,
        },
    }


def _slowest(title: str, requests: list[SlowRequest]) -> dict[str, Any]:
    """A list of slow requests, with the phases that occur in it, and the scale in percent per
    second."""
    longest = max((one.took_s for one in requests), default=0.0)
    return {
        "title": title,
        "requests": requests,
        "phases": _seen({phase.name for one in requests for phase in one.phases}),
        "scale": 100.0 / (longest or 1.0),
    }


def _seen(phases: set[str]) -> list[str]:
    return [name for name in PHASES if name in phases]


def _server(owner: Owner) -> str:
    pool, replica = owner
    return NOTHING if pool is None else f"{pool} {replica}"
