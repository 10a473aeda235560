"""The text and the page of a comparison: what they say, that they fit, that they are harmless."""

import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.page.browser import CHROMIUM, Browser
from tests.search.test_comparison import LEAST, SHARED, compared, replay
from windtunnel.analysis.figures import text_of
from windtunnel.report.page.searches.comparison import _listed, comparison_page
from windtunnel.report.terminal.layout import several, table_of
from windtunnel.report.terminal.searches.comparison import (
    broken,
    difference_cell,
    show,
    shown_metrics,
    signed,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return compared(SHARED, (), (LEAST,), ("serving.pools.0.replicas=1",), seeds=3)


def text(comparison: dict[str, Any], width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, _environ={})
    show(comparison, Path("runs/x"), console)
    return file.getvalue()


@pytest.mark.parametrize(
    ("value", "said"),
    [(12.34, "+12.3"), (-0.06, "-0.1"), (0.004, "+0.004"), (0.0, "0"), (1363.6, "+1,364")],
)
def test_something_is_never_nothing(value: float, said: str) -> None:
    assert signed(value) == said


@pytest.mark.parametrize(
    ("unit", "value", "said"),
    [
        ("s", 0.0123, "12.3 ms"),
        ("share", 0.9876, "98.8%"),
        ("$", 12.345, "$12.35"),
        ("$", 0.00123, "$0.00123"),
        ("requests/s", 38.04, "38/s"),
        ("tokens/s", 7574.0, "7.57 k/s"),
        ("requests", 3.4, "3.4"),
        ("s", None, "-"),
    ],
)
def test_values_are_read_in_their_units(unit: str, value: float | None, said: str) -> None:
    assert text_of(unit, value) == said


def test_differences_are_percent_or_points_or_counts() -> None:
    ends: dict[str, Any] = {"mean": 2.0, "low": 1.0, "high": 3.0, "ratio": None}
    assert difference_cell("requests", ends) == "+1.0 to +3.0"
    assert difference_cell("share", {**ends, "low": -0.01, "high": 0.0}) == "-1.0 to 0 points"
    ratio = {"mean": 1.5, "low": 0.9, "high": 2.5}
    assert difference_cell("s", {**ends, "ratio": ratio}) == "-10.0 to +150%"
    assert difference_cell("s", {**ends, "mean": None, "low": None}) == "-"
    wide = {"mean": 27.0, "low": 0.007, "high": 95_648.0}
    assert difference_cell("s", {**ends, "ratio": wide}) == "-99.3 to >+10,000%"
    one = {"mean": 1.5, "low": None, "high": None}
    assert difference_cell("s", {**ends, "low": None, "high": None, "ratio": one}) == "+50.0%"


def test_each_design_has_a_table_and_what_is_nothing_everywhere_is_left_out(
    found: dict[str, Any],
) -> None:
    out = text(found, 80)
    assert out.startswith("2 designs against 0  seeds 3 to 5\n")
    assert len(re.findall(r"^metric +0 +[12] +difference, 95%", out, re.MULTILINE)) == 2
    assert re.search(r"^TTFT mean +[0-9.]+ ms +[0-9.]+ m?s +.+%  worse", out, re.MULTILINE)
    assert "rejected" not in out
    assert len(shown_metrics(found)) < len(found["metrics"])
    assert "doubt (2): " in out
    assert out.endswith("open runs/x/compare.html\n")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_the_first_design_is_in_every_table(width: int) -> None:
    pushed = ("serving.pools.0.replicas=1", "serving.pools.0.engine.max_num_seqs=12")
    wide = compared(SHARED, (), (LEAST,), pushed, seeds=2)
    base = {one["name"]: one["designs"][0] for one in wide["metrics"]}["TTFT mean"]["mean"]
    out = text(wide, width)
    rows = [row for row in out.splitlines() if row.startswith("TTFT mean")]
    assert len(rows) == 2
    assert all(text_of("s", base) in row for row in rows)
    assert ("too few seeds to tell" if width >= 60 else "too few") in out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("other", ["other"]),
        ("policy=consistent-hash", ["policy=", "consistent-", "hash"]),
        ("runs/abcdefghijklmnop", ["runs/", "abcdefghijkl", "mnop"]),
        ("replicas=2, policy: random", ["replicas=2,", "policy:", "random"]),
    ],
)
def test_columns_have_the_names_of_the_designs(name: str, lines: list[str]) -> None:
    assert broken(name, 12) == lines
    table = table_of(["metric", several(lines)], [["TTFT", "1 s"]])
    console = Console(file=io.StringIO(), width=60)
    console.print(table)
    shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(shown) == len(lines) + 1, "a line for each part of the name"


def test_the_percentiles_of_a_latency_are_together() -> None:
    names = ["TTFT mean", "TTFT p50", "TTFT p95", "TTFT p99", "E2E p95", "goodput"]
    assert _listed(names) == "TTFT (mean, p50, p95, p99), E2E (p95), goodput"


def test_one_sample_is_said_in_the_table_and_on_the_page(tmp_path: Path) -> None:
    alone = compared(replay(tmp_path), (), (LEAST,), seeds=3)
    out = text(alone, 80)
    assert out.startswith("1 against 0  seed 3\n")
    assert "95%" not in out
    assert not re.search(r"\b(better|worse)$", out, re.MULTILINE)
    assert re.search(r"^TTFT mean .+[0-9]%  one sample", out, re.MULTILINE)
    assert "note: A replay has one sample: no interval." in out
    page = html.unescape(comparison_page(alone))
    assert "one run each: no interval" in page
    assert "A replay has one sample: no interval." in page
    assert "1: one sample, so differences may be chance." in page
    assert "95% confidence interval" not in page
    assert "nan" not in page
    assert page.count('class="dot"') == len(shown_metrics(alone))


@pytest.mark.parametrize("width", [20, 40, 60, 79, 120])
def test_no_cell_is_cut_at_any_width(found: dict[str, Any], width: int) -> None:
    out = text(found, width)
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
    tables = [line for line in out.splitlines() if line.startswith(("metric", "TTFT"))]
    assert all(len(line.rstrip()) <= max(width, 45) for line in tables)


def test_the_page_says_who_is_better_at_what(found: dict[str, Any]) -> None:
    page = html.unescape(comparison_page(found))
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert re.search(r"2 is better at cost.*, and worse at TTFT \(", page)
    cards = len(shown_metrics(found))
    assert page.count('class="card difference"') == cards
    assert page.count('<svg class="forest') == 2 * cards
    assert page.count('class="dot"') == 2 * cards * 3
    assert "router.policy" in page
    assert "the same requests for all" in page
    assert "nan" not in page
    assert len(page) < 500_000
    assert comparison_page(found) == comparison_page(found)


def test_the_page_asks_nobody_for_anything(found: dict[str, Any]) -> None:
    page = html.unescape(comparison_page(found))
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"<(link|iframe|object|embed|base|form|script|img)\b", page)
    assert "style=" not in page


def test_no_name_becomes_markup(found: dict[str, Any]) -> None:
    hostile = [{**design, "name": HOSTILE} for design in found["designs"]]
    note = {"code": "other-traffic", "says": HOSTILE}
    setting = {"path": HOSTILE, "values": [HOSTILE] * 3}
    page = comparison_page({**found, "designs": hostile, "notes": [note], "settings": [setting]})
    assert "<script" not in page
    assert "<img" not in page


def test_a_comparison_without_figures_has_a_page() -> None:
    nothing = compared(SHARED, ("duration=1ms",), (LEAST, "duration=1ms"), seeds=2)
    page = html.unescape(comparison_page(nothing))
    assert "no difference was seen" in page
    assert "nan" not in page


@pytest.mark.once
@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_it_opens_without_complaint_and_fits(found: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    page.write_text(comparison_page(found), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        for scheme in ("light", "dark"):
            for width in (390, 1180):
                browser.prefer(scheme)
                browser.open(page, width)
                assert browser.value("document.documentElement.scrollWidth") <= width
                words = browser.value("document.body.innerText")
                for heading in ("At a glance", "Confidence intervals", "What differs"):
                    assert heading in words
        # The bar of a worse design is right of the line where lower is better, and has its colour.
        place = "document.querySelector('.forest.worse {}').getBoundingClientRect().{}"
        assert browser.value(place.format(".reach", "left")) > 0
        assert browser.value(place.format(".reach", "width")) > 2
        assert browser.requests == [page.resolve().as_uri()] * 4
        assert browser.complaints == []
