"""The page of a running shadow: the forecast, and what other policies would have done."""

from collections.abc import Mapping
from typing import Any

from windtunnel.analysis.figures import NOTHING, share_text, text_of
from windtunnel.analysis.shadow.forecasts import AS_IT_IS
from windtunnel.core.units import format_duration
from windtunnel.report.page.document import document
from windtunnel.report.terminal.shadow import LABELS, cell_of, counts_of, present_rows


def shadow_page(data: Mapping[str, Any]) -> str:
    """The page, as HTML; `data` is the content of `/forecast`."""
    policies = [(AS_IT_IS, data), *data["others"].items()]
    regret = data["regret"]
    values = {
        "kind": "shadow",
        "data": data,
        "is_ready": bool(data["forecast"]),
        "tiles": _tiles(data),
        "stretches": list(data["forecast"]),
        "figures": _figures(data),
        "policies": [_policy(name, one, regret.get(name)) for name, one in policies],
        "has_regret": bool(regret),
        "decisions": [(name, _kinds(one), _control(one)) for name, one in policies],
        "present": present_rows(data["cluster"]) if data["cluster"] is not None else [],
        "counts": counts_of(data),
    }
    return document(
        "shadow.html",
        values,
        styles=("report.css", "shadow.css"),
        filters={},
        script="shadow.js",
        asks_itself=True,
    )


def _count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _tiles(data: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Label, value, and the note below it."""
    scale, ahead = data["step_scale"], f"up to {_count(data['replicas'])} ahead"
    return [
        ("requests in flight", _count(data["in_flight"]), "now"),
        ("healthy servers", _count(data["servers"]), "now"),
        ("replicas wanted", _count(data["replicas_now"]), ahead),
        ("machines", _count(data["machines"]), "the most ahead"),
        ("SLO attainment", share_text(data["attained"]), "forecast"),
        ("cost", text_of("$", data["cost"]), "up to the horizon"),
        ("step times", f"{scale:.2f}x", "of the scenario's"),
    ]  # fmt: skip


def _figures(data: Mapping[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    """A row for each figure: its forecasts by time span."""
    rows = []
    for name, label in LABELS.items():
        cells = []
        for stretch, figures in data["forecast"].items():
            one, known = figures[name], data["accuracy"][stretch][name]
            ends = ""
            if one["low"] is not None:
                ends = f"{cell_of(name, one['low'])} to {cell_of(name, one['high'])}"
            error = known["median_error"]
            wrong = "" if error is None else f"usually off by {error:.0%}"
            cells.append({"value": cell_of(name, one["value"]), "ends": ends, "wrong": wrong})
        rows.append((label, cells))
    return rows


def _policy(name: str, one: Mapping[str, Any], regret: Mapping[str, Any] | None) -> dict[str, str]:
    last_hour = {"ratio": NOTHING, "attained": NOTHING, "cost": NOTHING}
    if regret is not None:
        last_hour = {
            "ratio": f"{regret['ratio']:.2f}x",
            "attained": share_text(regret["attained"]),
            "cost": text_of("$", regret["cost"]),
        }
    return {
        "name": name,
        "attained_lately": share_text(one["attained_lately"]),
        "cost_lately": text_of("$", one["cost_lately"]),
        "replicas_now": _count(one["replicas_now"]),
        "replicas": _count(one["replicas"]),
        "machines": _count(one["machines"]),
        "attained": share_text(one["attained"]),
        "cost": text_of("$", one["cost"]),
        **{f"regret_{key}": text for key, text in last_hour.items()},
    }


def _kinds(one: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """The kind of decision, how many were made, how many differ, and the first difference."""
    return [
        (kind, f"{count['decided']:,}", f"{count['share']:.0%}", count["first"] or NOTHING)
        for kind, count in one.get("decisions", {}).items()
    ]


def _control(one: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """The time of a decision, its subject, the decision, and its reason."""
    rows = []
    for made in one["control"]:
        at_s = round(made["at_s"])
        when = f"{format_duration(-at_s)} ago" if at_s <= 0 else f"in {format_duration(at_s)}"
        rows.append((when, made["subject"], made["decided"].replace("_", " "), made["reason"]))
    return rows
