"""Figures are declared once: labels, units and formats of what runs, tables and sweeps show."""

from typing import Any

import pytest

from tests.twin.runs import BUSY, run
from windtunnel.analysis.figures import (
    COLUMNS,
    FIGURES,
    HIGHER,
    LOWER,
    NOTHING,
    STATS,
    cells_of,
    figure,
    heads_of,
    text_of,
    title,
)
from windtunnel.search.measure import measure


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return run(BUSY)


@pytest.mark.parametrize(
    ("path", "label", "unit", "better"),
    [
        ("latency.ttft.p99", "TTFT p99", "s", LOWER),
        ("slo.critical.attained", "critical attained", "share", HIGHER),
        ("slo.a.b.attained_by.e2e", "a.b E2E attained", "share", HIGHER),
        ("slo.CLASS.ttft.p50", "TTFT p50", "s", LOWER),
        ("models.MODEL.latency.e2e.p99", "E2E p99", "s", LOWER),
        ("adapters.ADAPTER.attained", "attained", "share", HIGHER),
        ("adapters.ADAPTER.loads", "loads", "", LOWER),
        ("pools.main.utilization", "main busy", "share", None),
        ("disaggregation.transfer.p99", "KV transfer p99", "s", LOWER),
        ("no.such_figure", "no such figure", "", None),
    ],
)
def test_a_path_has_a_label_a_unit_and_a_direction(
    path: str, label: str, unit: str, better: str | None
) -> None:
    assert figure(path) == (label, unit, better)


def test_what_has_a_unit_has_a_label_unless_it_is_shown_nowhere() -> None:
    for one in FIGURES:
        assert one.label or not one.unit or one.path.startswith("trust."), one.path
        assert one.meaning
        assert one.unit == "s" or not one.stats
    assert title("latency.itl") == "inter-token latency"
    assert title("cost.total") == "cost"


def test_sweeps_keep_what_is_declared_to_be_kept(result: dict[str, Any]) -> None:
    declared = {one.path for one in FIGURES if one.kept and "." in one.path}
    names = set(measure(result))
    for path in declared:
        known = path.replace("CLASS", "critical").replace("POOL", next(iter(result["pools"])))
        found = {f"{known}.{stat}" for stat in STATS} & names if known not in names else {known}
        assert found, path


def test_every_column_is_a_figure_of_a_run(result: dict[str, Any]) -> None:
    entries = {
        "slo.CLASS": result["slo"]["critical"],
        "tenants.TENANT": next(iter(result["tenants"].values())),
        "sources.SOURCE": next(iter(result["sources"].values())),
        "pools.POOL": next(iter(result["pools"].values())),
        "servers[]": result["servers"][0],
    }
    for part, entry in entries.items():
        cells, heads = cells_of(part, entry), heads_of(part)
        assert len(cells) == len(heads) == len(COLUMNS[part]) == len(set(heads))
        assert all("." not in head for head in heads), heads


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("s", 0.0123, "12.3 ms"),
        ("share", 0.99996, "99.99%"),
        ("$", 0.0, "$0.00"),
        ("$", 0.0123, "$0.0123"),
        ("$", 0.105, "$0.105"),
        ("$", 0.1134, "$0.113"),
        ("$", 0.9, "$0.90"),
        ("$", 12.3, "$12.30"),
        ("requests/s", 1234.4, "1,234/s"),
        ("tokens/s", 12_340.0, "12.3 k/s"),
        ("tokens", 1_250_000, "1.25 M"),
        ("requests", 1234, "1,234"),
        ("s", None, NOTHING),
    ],
)
def test_values_are_formatted_by_their_unit(unit: str, value: float | None, text: str) -> None:
    assert text_of(unit, value) == text
