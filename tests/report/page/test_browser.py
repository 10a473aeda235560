"""The report in a real browser: it opens without complaint, asks for nothing, and answers."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_explain import SURGE
from tests.report.page.browser import CHROMIUM, Browser
from tests.report.page.runs import GATED, SPLIT, STUCK, full, run_into

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
    [full(), full(rate=60), full(rate=500, replicas=70), STUCK, SPLIT, GATED],
    ids=["calm", "overloaded", "many servers", "stuck", "split", "gated"],
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
    for heading in (
        "Latency",
        "Over time",
        "Pools and servers",
        "Requests worth a look",
        "Settings",
    ):
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
    assert "queued" in said
    assert "running 8" in said
    browser.point_at(".map", across=0.9)
    assert browser.value(TIP).startswith("main 0 at 7.")
    browser.point_at(".bar")
    assert " requests; " in browser.value(TIP)
    assert browser.complaints == []


def test_all_of_it_can_be_used_with_a_keyboard(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, SPLIT)
    browser.complaints.clear()
    browser.open(tmp_path / "report.html", 1180)
    focused = "document.activeElement.className.baseVal ?? document.activeElement.className"
    seen = []
    for _ in range(60):
        browser.press("Tab")
        seen.append(browser.value(focused))
        if seen[-1] == "map":
            break
    assert {"pick", "plot", "map"} <= set(seen)
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    assert browser.value(TIP).startswith("first 1 at ")
    browser.press("Escape")
    assert browser.value("document.getElementById('tip').hidden")
    browser.value("document.getElementById('view-0').focus()")
    browser.press("ArrowRight")
    assert browser.value("document.getElementById('view-1').checked")
    assert browser.complaints == []


def test_each_class_has_its_own_pictures(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, SPLIT)
    browser.open(tmp_path / "report.html", 1180)
    shown = (
        "[...document.querySelectorAll('.cards')].map(c => getComputedStyle(c).display !== 'none')"
    )
    assert browser.value("document.querySelectorAll('.picked label').length") == 3 + 3
    assert browser.value(shown) == [True, False, False]
    browser.value("document.getElementById('view-2').click()")
    assert browser.value(shown) == [False, False, True]
    said = browser.value("document.querySelector('.view-2 .distribution').ariaLabel")
    assert said.startswith("Time to first token, distribution of ")
    assert browser.value("document.querySelector('.view-2').innerText.includes('critical target')")


@pytest.mark.parametrize("text", [full(rate=500, replicas=70), SPLIT], ids=["many", "split"])
def test_it_prints_on_paper_and_nothing_sticks_out(
    browser: Browser, tmp_path: Path, text: str
) -> None:
    run_into(tmp_path, text)
    browser.open(tmp_path / "report.html", 718)  # A4 at 96 dots per inch, less its margins
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.value("document.documentElement.scrollWidth") <= 718
        paper = browser.value("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        printed = browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
        assert base64.b64decode(printed).startswith(b"%PDF-")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


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


@pytest.mark.parametrize("width", [360, 718, 1180])
def test_levels_are_written_beside_the_curves(browser: Browser, tmp_path: Path, width: int) -> None:
    run_into(tmp_path, SPLIT)
    browser.open(tmp_path / "report.html", width)
    gaps = browser.value(
        "[...document.querySelectorAll('.plot .level')].map(label => {"
        "const box = label.getBoundingClientRect(), strip = label.closest('.strip');"
        "const plot = strip.querySelector('.plot').getBoundingClientRect();"
        "const name = strip.querySelector('.strip-name').getBoundingClientRect();"
        "const beside = name.right < plot.left ? name.right : 0;"
        "return [box.left - beside, plot.left - box.right]; })"
    )
    assert len(gaps) >= 18
    assert min(min(pair) for pair in gaps) >= 0.0


def test_marks_of_decisions_and_faults_say_why(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, SURGE + "faults: [{at: 10s, kind: slow-machine, for: 5s}]\n")
    browser.complaints.clear()
    browser.open(tmp_path / "report.html", 1180)
    titles = browser.value("[...document.querySelectorAll('.strip h3')].map((e) => e.textContent)")
    layers = ["Servers of main", "Pods and gangs", "Machines big", "Cost"]
    assert [title for title in titles if title in layers] == layers
    number = titles.index("Servers of main")
    plot = f'.plot[data-chart="{number}"]'
    x = float(browser.value(f"document.querySelector('{plot} .mark').getAttribute('x1')")[:-1])
    browser.point_at(plot, x / 100)
    assert "1 min 15 s: scaling-5: 2 to 4. " in browser.value(TIP)
    end_s = float(browser.value("JSON.parse(document.getElementById('hover').textContent).end"))
    browser.point_at(plot, 12.0 / end_s)
    assert "fault-1 at 10 s until 15 s: slow-machine of main-" in browser.value(TIP)
    browser.point_at(plot, 0.99)
    assert "wanted 4" in browser.value(TIP)
    assert browser.complaints == []


def test_all_charts_zoom_together(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    browser.complaints.clear()
    browser.open(tmp_path / "report.html", 1180)
    boxes = (
        "[...document.querySelectorAll('.plot > svg')].map((one) => one.getAttribute('viewBox'))"
    )
    whole = set(browser.value(boxes))
    assert len(whole) == 1
    browser.drag(".plot", 0.25, 0.5)
    (zoomed,) = set(browser.value(boxes))
    across = float(next(iter(whole)).split()[2])
    start, _, width, _ = map(float, zoomed.split())
    assert start == pytest.approx(across / 4, abs=across / 100)
    assert width == pytest.approx(across / 4, abs=across / 100)
    browser.point_at(".plot", across=0.0)
    assert browser.value(TIP).startswith("2 s\n")
    shown = "document.getElementById('zoomed').textContent"
    assert browser.value(shown).startswith("2 s to 4 s")
    labels = "[...document.querySelectorAll('.over-time .time-axis text')]"
    labels += ".filter((one) => one.style.display !== 'none').map((one) => one.textContent)"
    assert browser.value(labels)[0].startswith("2")
    browser.value("document.querySelector('#zoomed button').click()")
    assert set(browser.value(boxes)) == {f"0 0 {across:g} 100"}
    assert browser.complaints == []


def test_charts_zoom_by_keys_and_the_heat_map_follows(browser: Browser, tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    browser.complaints.clear()
    browser.open(tmp_path / "report.html", 420)
    browser.value("document.querySelector('.plot').focus()")
    browser.press("+")
    assert browser.value("document.querySelector('.map image').getAttribute('width')") == "200%"
    assert browser.value("document.documentElement.scrollWidth") <= 420
    browser.press("-")
    assert browser.value("document.getElementById('zoomed').hidden")
    browser.press("+")
    browser.press("0")
    assert browser.value("document.querySelector('.map image').getAttribute('width')") == "100%"
    assert browser.complaints == []
