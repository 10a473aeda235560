"""The report in a real browser: it opens without complaint, asks for nothing, and answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.page.browser import CHROMIUM, Browser
from tests.report.page.runs import STUCK, full, run_into

pytestmark = [
    pytest.mark.once,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]

WIDTHS = (390, 1180)
TIP = "document.getElementById('tip').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "text",
    [full(), full(rate=60), full(rate=500, replicas=70), STUCK],
    ids=["calm", "overloaded", "many servers", "stuck"],
)
def test_it_opens_without_complaint_and_fits(
    browser: Browser, tmp_path: Path, text: str, scheme: str, width: int
) -> None:
    done = run_into(tmp_path, text)
    browser.requests.clear()
    browser.complaints.clear()
    browser.prefer(scheme)
    browser.open(tmp_path / "report.html", width)
    assert browser.value("document.querySelector('h1').textContent") == done.result["name"]
    words = browser.value("document.body.innerText")
    for heading in ("Latency", "Over time", "By server", "Requests worth a look", "Settings"):
        assert heading in words
    # As wide as the window and no wider, so that nobody scrolls sideways.
    assert browser.value("document.documentElement.scrollWidth") <= width
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in paper.strip("rgb()").split(",")) > 3 * 128
    assert light == (scheme == "light")
    # The page itself and the pictures inside it; nothing of anybody else.
    assert browser.requests[0] == (tmp_path / "report.html").as_uri()
    assert all(address.startswith("data:image/png") for address in browser.requests[1:])
    assert browser.complaints == []


def test_the_pointer_is_told_the_values_under_it(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    browser.complaints.clear()
    browser.open(tmp_path / "report.html", 1180)
    browser.point_at(".plot")
    said = browser.value(TIP)
    assert said.startswith("4 s\narrived ")
    assert "waiting" in said
    assert "running 8" in said
    browser.point_at(".map", across=0.9)
    assert browser.value(TIP).startswith("main 0 at 7.")
    browser.point_at(".bar")
    assert " requests; " in browser.value(TIP)
    assert browser.complaints == []


def test_the_heat_map_shows_what_is_chosen(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    browser.open(tmp_path / "report.html", 1180)
    shown = (
        "[...document.querySelectorAll('.map image')]"
        ".filter(i => getComputedStyle(i).display !== 'none').map(i => i.classList[1])"
    )
    assert browser.value(shown) == ["waiting"]
    browser.value("document.getElementById('layer-kv_used').click()")
    assert browser.value(shown) == ["kv_used"]
