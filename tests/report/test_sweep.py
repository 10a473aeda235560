"""The text and the page of a sweep: what they say, that they fit, that they are harmless."""

import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.page.browser import CHROMIUM, Browser
from windtunnel.analysis.figures import figure
from windtunnel.report.page.searches.sweep import MOST_DRAWN, MOST_LISTED, sweep_page
from windtunnel.report.terminal.searches.sweep import MOST_ROWS, short_names, show
from windtunnel.search.sweep.summary import front_of

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
REPLICAS, POLICY, RATE = "serving.pools.0.replicas", "serving.router.policy", "workload.0.rate"
COST, IN_TIME, LATENCY = "cost.total", "slo.critical.attained", "latency.ttft.p95"
SHOWN = [COST, IN_TIME, LATENCY]


def a_point(
    number: int, replicas: int, policy: str, figures: tuple[float, float, float]
) -> dict[str, Any]:
    metrics = {
        name: {"mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}
        for name, mean in zip(SHOWN, figures, strict=True)
    }
    settings = {REPLICAS: replicas, POLICY: policy, RATE: f"{replicas}0/s"}
    return {"point": number, "settings": settings, "failed": None, "metrics": metrics}


def a_summary(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    axes = [{"path": path, "values": [1, 2], "range": None} for path in (REPLICAS, POLICY)]
    return {
        "windtunnel": "0.1.0",
        "name": "chat",
        "design": "grid",
        "seeds": [0, 1, 2],
        "confidence": 0.95,
        "axes": [*axes, {"path": RATE, "values": None, "range": "10..50/s"}],
        "metrics": [
            {"name": name, "unit": figure(name).unit, "better": figure(name).better}
            for name in SHOWN
        ],
        "shown": SHOWN,
        "front": {"cost": COST, "quality": IN_TIME, "points": front_of(points, COST, IN_TIME)},
        "points": list(points),
    }


@pytest.fixture
def summary() -> dict[str, Any]:
    failed = {
        "point": 4,
        "settings": {REPLICAS: 3, POLICY: "random", RATE: "30/s"},
        "failed": "it was too dark",
        "metrics": {},
    }
    return a_summary(
        [
            a_point(0, 1, "random", (1.0, 0.5, 0.9)),
            a_point(1, 1, "least-loaded", (1.0, 0.7, 0.8)),
            a_point(2, 2, "random", (2.0, 0.65, 0.3)),
            a_point(3, 2, "least-loaded", (2.0, 0.99, 0.2)),
            failed,
        ]
    )


def text(summary: dict[str, Any], width: int) -> str:
    file = io.StringIO()
    show(summary, Path("runs/x"), Console(file=file, width=width, highlight=False, _environ={}))
    return file.getvalue()


def test_a_row_per_point_with_how_sure_it_is_and_what_nothing_beats(
    summary: dict[str, Any],
) -> None:
    lines = text(summary, 100).splitlines()
    assert lines[0] == "chat at 5 points  seeds 0 to 2"
    assert lines[2].split() == (
        ["replicas", "policy", "rate", "cost", "critical", "attained", "TTFT", "p95"]
    )
    assert [line[0] for line in lines[3:7]] == [" ", "*", " ", "*"]
    assert "$1.00 ±10%" in lines[3]
    assert "50.0% ±5.0" in lines[3]
    assert "  failed (point 4): it was too dark" in lines
    assert lines[-1] == "open runs/x/report.html"


def test_an_interval_that_ends_at_no_share_or_all_is_shown_by_its_ends(
    summary: dict[str, Any],
) -> None:
    metrics = summary["points"][0]["metrics"]
    metrics[IN_TIME] = {"mean": 0.01, "low": 0.0, "high": 0.133}
    metrics[COST] = {"mean": 1.0, "low": 0.0, "high": 2.5}
    row = text(summary, 120).splitlines()[3]
    assert "1.0% (0.0 to 13.3)" in row
    assert "$1.00 ±150%" in row


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_cell_is_cut_at_any_width(summary: dict[str, Any], width: int) -> None:
    out = text(summary, width)
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
    assert out.count("least-loaded") == 2


def test_of_many_points_those_on_the_front_are_shown() -> None:
    points = [a_point(n, n, "random", (1.0 + n, 0.5 - n / 1e4, 1.0)) for n in range(MOST_ROWS + 9)]
    out = text(a_summary(points), 100)
    assert f"{MOST_ROWS + 8} points more are in the page" in out
    assert len(re.findall(r"random", out)) == 1


def test_names_are_as_short_as_tells_them_apart() -> None:
    assert short_names([REPLICAS, POLICY]) == ["replicas", "policy"]
    twice = [REPLICAS, "serving.pools.1.replicas"]
    assert short_names(twice) == ["0.replicas", "1.replicas"]
    assert figure("latency.ttft.p95").label == "TTFT p95"
    assert figure("slo.critical.attained").label == "critical attained"
    assert figure("throughput.goodput_requests_per_s").label == "goodput"


def test_the_page_has_the_best_the_points_and_what_failed(summary: dict[str, Any]) -> None:
    page = html.unescape(sweep_page(summary))
    assert page.rstrip().endswith("</html>")
    assert "Best critical attained: 99.0% at replicas 2, policy least-loaded" in page
    assert "point 4: it was too dark" in page
    assert page.count("<tr data-point=") == 4
    assert page.count('title="on the Pareto front"') == 2
    assert "10..50/s" in page
    assert sweep_page(summary) == sweep_page(summary)


def test_the_page_asks_nobody_for_anything(summary: dict[str, Any]) -> None:
    page = html.unescape(sweep_page(summary))
    assert "default-src 'none'" in page
    namespace = "http://www.w3.org/2000/svg"
    assert "http" not in page.replace("http-equiv", "").replace(namespace, "")
    assert not re.search(r"<(link|iframe|object|embed|base|form|img)\b", page)
    assert "style=" not in page


def test_no_name_becomes_markup(summary: dict[str, Any]) -> None:
    point = a_point(0, 1, HOSTILE, (1.0, 1.0, 1.0))
    other = {**a_point(1, 2, "random", (2.0, 0.5, 1.0)), "failed": HOSTILE, "metrics": {}}
    page = sweep_page({**a_summary([point, other]), "name": HOSTILE})
    assert page.count("<script") == 2  # the data and the script
    assert "<img" not in page


def test_a_large_sweep_has_a_page_that_is_not(summary: dict[str, Any]) -> None:
    points = [a_point(n, n, "random", (1.0 + n, n / 1e4, 1.0 / (n + 1))) for n in range(3_000)]
    large = a_summary(points)
    large["front"]["points"] = [0, 7, 2_999]
    page = sweep_page(large)
    assert f"{3_000 - MOST_LISTED} more points are in results.parquet" in page
    assert f"{3_000 - MOST_DRAWN} of 3000 points are not drawn" in page
    for point in (0, 7, 2_999):
        assert f'<tr data-point="{point}">' in page
    assert len(page) < 600_000


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_points_have_a_page_too(count: int) -> None:
    points = [a_point(0, 1, "random", (1.0, 1.0, 1.0))][:count]
    page = sweep_page({**a_summary(points), "axes": a_summary([])["axes"]})
    assert "What was varied" in page
    assert 'id="front"' not in page


@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_reader_can_choose_figures_and_keep_some_points(
    summary: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_text(sweep_page(summary), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        for width in (390, 1180):
            browser.open(page, width)
            assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("document.querySelectorAll('.spot').length") == 4
        assert browser.value("document.querySelectorAll('.spot.front').length") == 2
        ends = browser.value(
            "[...document.querySelectorAll('.reach')].map((e) => +e.getAttribute('y2'))"
        )
        assert min(ends) > 14.0, "no interval ends at the frame"
        ticks = browser.value(
            "[...document.querySelectorAll('#front .tick')].map((e) => e.textContent)"
        )
        assert "$1.00" in ticks
        browser.point_at(".spot.front")
        assert "least-loaded" in browser.value("document.getElementById('tip').textContent")
        browser.value(
            "(() => { const y = document.getElementById('y'); y.selectedIndex = 2;"
            " y.dispatchEvent(new Event('change')); })()"
        )
        assert browser.value("document.getElementById('front-says').textContent") == (
            "2 of 4 points are on the Pareto front."
        )
        top, bottom, left = browser.value(
            "(() => { const e = document.querySelector('.grip'); e.scrollIntoView();"
            " const b = e.getBoundingClientRect(); return [b.top, b.bottom, b.left + 5]; })()"
        )
        middle = (top + bottom) / 2 - 20
        for kind, y in (
            ("mousePressed", top + 2),
            ("mouseMoved", middle),
            ("mouseReleased", middle),
        ):
            browser.call("Input.dispatchMouseEvent", type=kind, x=left, y=y, button="left")
        assert browser.value("document.getElementById('lines-say').textContent") == (
            "2 of 4 points pass."
        )
        assert browser.value("document.querySelectorAll('#points tr[hidden]').length") == 2
        assert browser.complaints == []
        assert [url for url in browser.requests if not url.startswith("file:")] == []
