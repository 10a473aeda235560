"""Terminal output of a shadow: a forecast, two forecasts side by side, or their accuracy."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from windtunnel.analysis.figures import NOTHING, share_text, text_of
from windtunnel.analysis.shadow.forecasts import AS_IT_IS, PolicyRegret, TwinForecast, TwinForecasts
from windtunnel.analysis.shadow.shadow import SATURATED, ShadowTick
from windtunnel.analysis.shadow.window import UNITS
from windtunnel.report.terminal.layout import print_table, say

LABELS = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "tpot_p95": "TPOT p95",
    "waiting": "waiting",
    "rate": "arrivals",
}


COUNTS = {
    "restarts": "restarts of the gateway",
    "gaps": "gaps in the records",
    "bad_lines": "unreadable records",
    "late_records": "late records",
    "lost_requests": "requests whose end is missing",
}


def counts_of(data: Mapping[str, Any]) -> list[str]:
    """Problems with the records so far, each with its count."""
    return [f"{label}: {data[name]:,}" for name, label in COUNTS.items() if data[name]]


def cell_of(name: str, value: float | None) -> str:
    """A figure of a forecast, in its unit."""
    if value is None:
        return NOTHING
    return f"{value:.1f}" if name == "waiting" else text_of(UNITS[name], value)


def _count(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def show_tick(
    tick: ShadowTick, console: Console, regrets: Mapping[str, PolicyRegret] | None = None
) -> None:
    """Prints a forecast with its intervals, and the results of other settings."""
    known = regrets or {}
    assert tick.forecast is not None
    rows = []
    for stretch, figures in tick.figures.items():
        for name, one in figures.items():
            ends = NOTHING
            if one.low is not None:
                ends = f"{cell_of(name, one.low)} to {cell_of(name, one.high)}"
            rows.append((f"next {stretch}", LABELS[name], cell_of(name, one.value), ends))
    print_table(console, ("", "figure", "forecast", "90%"), rows, words=2)
    now = tick.forecast.now
    say(console, f"{tick.in_flight} requests in flight, {now.replicas} replicas")
    if tick.forecast.others or known:
        settings = []
        for name, twin in {AS_IT_IS: now, **tick.forecast.others}.items():
            row = [name, share_text(twin.attained), text_of("$", twin.cost)]
            row.append(_decisions(tick.forecast, name))
            settings.append([*row, f"{known[name].ratio:.2f}x"] if known else row)
        heads = ("settings", "attained", "cost", "other decisions", "regret")
        print_table(console, heads[: len(settings[0])], settings)
    if tick.says:
        say(console, tick.says)


def show_present(data: Mapping[str, Any], console: Console) -> None:
    """Prints what is known about the cluster, and what is not."""
    if data["cluster"] is not None:
        parts = [f"{label} {counts}" for label, counts in present_rows(data["cluster"])]
        say(console, f"ready in the cluster: {', '.join(parts) or 'nothing is known'}")
    for sentence in data["unknown"]:
        say(console, f"not known: {sentence}")


def present_rows(cluster: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The objects in a cluster, and how many of them are ready."""
    rows = [
        (f"replicas of {name}", f"{one['ready']} of {one['wanted']}")
        for name, one in cluster["replicas"].items()
    ]
    counted = {kind: cluster[kind] for kind in ("pods", "gangs") if cluster[kind] is not None}
    for name, one in (cluster["machines"] or {}).items():
        counted[f"machines of {name}" if name else "machines"] = one
    return rows + [(label, f"{one['ready']} of {one['total']}") for label, one in counted.items()]


def _decisions(forecasts: TwinForecasts, name: str) -> str:
    kinds = forecasts.decisions.get(name, {})
    return ", ".join(f"{kind} {count.share:.0%}" for kind, count in kinds.items()) or NOTHING


def show_question(now: TwinForecast, asked: TwinForecast, console: Console) -> None:
    """Prints the forecast with current and with hypothetical settings."""
    rows = [
        (
            f"next {stretch}",
            LABELS[name],
            cell_of(name, value),
            cell_of(name, asked.figures[stretch][name]),
        )
        for stretch, figures in now.figures.items()
        for name, value in figures.items()
    ]
    rows.append(("", "SLO attainment", share_text(now.attained), share_text(asked.attained)))
    rows.append(("", "cost", text_of("$", now.cost), text_of("$", asked.cost)))
    rows.append(("", "replicas", str(now.replicas), str(asked.replicas)))
    if now.machines is not None or asked.machines is not None:
        rows.append(("", "machines", _count(now.machines), _count(asked.machines)))
    print_table(console, ("", "figure", "as it is", "asked"), rows, words=2)
    for name, one in ((AS_IT_IS, now), ("asked", asked)):
        if one.is_saturated:
            what = "requests arrive faster than they are served, and waits grow until that ends"
            say(console, f"{name}: {SATURATED}: {what}")


def show_accuracy(measured: Mapping[str, Any], console: Console) -> None:
    """Prints how accurate forecasts were."""
    rows = [
        (
            f"next {stretch}",
            LABELS[name],
            str(one["measured"]),
            share_text(one["median_error"]),
            share_text(one["covered"]),
        )
        for stretch, figures in measured["accuracy"].items()
        for name, one in figures.items()
    ]
    heads = ("", "figure", "forecasts", "median error", "within 90%")
    print_table(console, heads, rows, words=2)
    say(console, f"{measured['ticks']} ticks, {measured['saturated_ticks']} saturated, "
        f"{measured['ticks_without_forecast']} without a forecast")  # fmt: skip
    if measured["says"]:
        say(console, measured["says"])
