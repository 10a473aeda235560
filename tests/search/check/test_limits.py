"""Limits: what they say, and when a change is a regression."""

from typing import Any

import pytest

from windtunnel.core.errors import InputError
from windtunnel.search.check.limits import (
    ATTAINED,
    FAILED,
    PASSED,
    TOTAL_COST,
    UNCERTAIN,
    figure_limit,
    judge,
    limit_of,
    spread,
    unit_notes,
)


def metric(unit: str, base: float, changed: float, ends: tuple[float, float] | None) -> Any:
    """A figure of two runs; `ends` are those of the difference, of `$` those of the ratio."""
    low, high = ends if ends is not None else (None, None)
    apart = {"mean": changed - base, "low": low, "high": high}
    ratio = {"mean": changed / base, "low": low, "high": high} if unit == "$" else None
    designs = [
        {"values": [base], "mean": base},
        {"values": [changed], "mean": changed, "difference": {**apart, "ratio": ratio}},
    ]
    return {"name": "it", "unit": unit, "designs": designs}


@pytest.mark.parametrize(
    ("text", "changed", "ends", "verdict"),
    [
        ("+5%", 104.0, (1.03, 1.05), PASSED),
        ("+5%", 105.0, (1.04, 1.06), PASSED),
        ("+5%", 107.0, (1.06, 1.08), FAILED),
        ("+5%", 107.0, (1.01, 1.13), FAILED),
        ("+5%", 107.0, (0.98, 1.16), UNCERTAIN),
        ("+5%", 107.0, None, FAILED),
        ("106", 107.0, (0.98, 1.16), FAILED),
        ("107", 107.0, None, PASSED),
        ("-10%", 95.0, (0.94, 0.96), FAILED),
    ],
)
def test_a_cost_against_its_limit(
    text: str, changed: float, ends: tuple[float, float] | None, verdict: str
) -> None:
    limit = limit_of(TOTAL_COST, text, "--max-cost", is_most=True)
    assert judge(limit, metric("$", 100.0, changed, ends))["verdict"] == verdict


@pytest.mark.parametrize(
    ("text", "changed", "ends", "verdict", "says"),
    [
        ("99%", 0.985, (-0.02, 0.0), FAILED, "98.5%"),
        ("98.5%", 0.985, (-0.02, 0.0), PASSED, "98.5%"),
        ("-0.5%", 0.985, (-0.008, -0.002), PASSED, "-0.50 points"),
        ("-0.4%", 0.985, (-0.008, -0.002), FAILED, "-0.50 points"),
        ("-0.4%", 0.985, (-0.012, 0.002), UNCERTAIN, "-0.50 points"),
    ],
)
def test_changes_of_attainment_are_in_points(
    text: str, changed: float, ends: tuple[float, float], verdict: str, says: str
) -> None:
    limit = limit_of(ATTAINED, text, "--min-attainment", is_most=False)
    (own,) = spread([limit], ["chat"])
    assert own.path == "slo.chat.attained"
    found = judge(own, metric("share", 0.99, changed, ends))
    assert (found["verdict"], found["found_text"]) == (verdict, says)


def test_requests_that_were_never_rejected_before_are_any_percent_more() -> None:
    limit = figure_limit("requests.rejected=+50%", "--max", is_most=True)
    found = judge(limit, metric("requests", 0.0, 3.0, (1.0, 5.0)))
    assert (found["verdict"], found["found_text"]) == (FAILED, "from none to some")
    assert judge(limit, metric("requests", 0.0, 0.0, (0.0, 0.0)))["verdict"] == PASSED


@pytest.mark.parametrize(
    ("text", "unit", "says", "notes"),
    [
        ("latency.ttft.p99=800", "s", "at most 800 s", ["latency.ttft.p99: 800 has no unit"]),
        ("latency.ttft.p99=800ms", "s", "at most 800ms", []),
        ("latency.ttft.p99=+10%", "s", "at most +10%", []),
        ("slo.chat.attained=0.995", "share", "at most 99.5%", []),
        ("slo.chat.attained=+1%", "share", "at most +1 points", []),
        ("cost.total=12", "$", "at most $12", []),
        ("requests.rejected=3", "requests", "at most 3 requests", []),
    ],
)
def test_a_limit_is_shown_with_its_unit(text: str, unit: str, says: str, notes: list[str]) -> None:
    limit = figure_limit(text, "--max", is_most=True)
    assert judge(limit, metric(unit, 1.0, 1.0, None))["limit"] == says
    assert [note["says"].partition(" and ")[0] for note in unit_notes([limit])] == notes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "latency.ttft.p99",
        "latency.ttft.p99=",
        "=5",
        "cost.total=+5",
        "cost.total=nan",
        "slo.chat.attained=999%",
    ],
)
def test_what_is_not_a_limit_is_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="--max"):
        figure_limit(text, "--max", is_most=True)
