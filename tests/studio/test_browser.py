"""The studio in a real Chromium: what people do in it, with the mouse and without."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("studio"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here"),
]

SCENARIO = """\
name: shop
seed: 3
workload:
  - {name: chat, count: 300, arrivals: {process: poisson, rate: 30/s},
     prompt_tokens: 300, output_tokens: 60}
serving:
  pools:
    - name: main
      replicas: 1
      engine: {kv_blocks: 4000}
      step_time: {model: linear, fixed: 6ms, per_prefill_token: 25us, per_decode: 40us}
"""
LONGEST_WAIT_MS = 40_000
LONG = SCENARIO.replace("name: shop", "name: long").replace("count: 300", "count: 3000000")


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio over a folder with two scenarios and a manifest."""
    folder = tmp_path_factory.mktemp("studio")
    (folder / "shop.yaml").write_text(SCENARIO)
    (folder / "long.yaml").write_text(LONG)
    (folder / "manifest.yaml").write_text("kind: Service\n")
    command = [sys.executable, "-m", "windtunnel", "studio", str(folder), "--port", "0"]
    runs = ["--runs", str(folder / "runs")]
    with subprocess.Popen([*command, *runs], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found is not None, line
        yield found[0]
        process.terminate()
        assert process.wait(20) in (0, 143)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, studio: str) -> Iterator[Any]:
    """A page that asks no other host for anything, and has no error in its scripts."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(LONGEST_WAIT_MS)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(studio)
    expect(page.locator("#status")).to_contain_text("ready to run")
    yield page
    assert not errors
    assert all(url.startswith((studio, "data:")) for url in asked)
    page.close()


def expect(place: Any) -> Any:
    playwright.expect.set_options(timeout=LONGEST_WAIT_MS)
    return playwright.expect(place, "")


def choose(page: Any, file: str) -> None:
    page.select_option("#file", file)
    expect(page.locator("#status")).to_contain_text(
        f"{file.removesuffix('.yaml')}, seed 3: ready to run"
    )


def run(page: Any) -> str:
    """Runs what is in the editor to its end, and gives the run's name."""
    choose(page, "shop.yaml")
    page.click("#start")
    page.wait_for_url(re.compile("#run/"))
    expect(page.locator("#why")).to_be_visible()
    return str(page.evaluate("() => decodeURIComponent(location.hash.split('/')[1])"))


def test_only_scenarios_are_offered(page: Any) -> None:
    assert page.locator("#file option").all_text_contents() == ["long.yaml", "shop.yaml"]


def test_faults_are_shown_while_typing_with_their_lines(page: Any) -> None:
    page.fill(
        "#text", SCENARIO.replace("replicas: 1", "replicas: none").replace("seed: 3", "sed: 3")
    )
    expect(page.locator("#faults li")).to_have_count(2)
    assert page.locator("#lines .bad").all_text_contents() == ["2\n", "9\n"]
    assert page.is_disabled("#start")
    page.click("#faults li:has-text('line 9') button")
    chosen = page.evaluate(
        "() => { const t = document.getElementById('text');"
        " return t.value.slice(t.selectionStart, t.selectionEnd); }"
    )
    assert chosen.strip() == "replicas: none"
    page.fill("#text", SCENARIO)
    expect(page.locator("#faults li")).to_have_count(0)
    assert page.is_enabled("#start")


def test_a_run_is_charted_and_ends_with_its_figures(page: Any) -> None:
    run(page)
    expect(page.locator("#tiles")).to_contain_text("300 of 300")
    assert page.locator("#charts figure").count() == 4
    assert page.locator("#charts path.line").count() >= 4
    page.click("#report")
    expect(page.locator("h1")).to_contain_text("shop")


def test_a_run_that_is_under_way_can_be_watched_and_stopped(page: Any) -> None:
    choose(page, "long.yaml")
    page.click("#start")
    expect(page.locator("#status")).to_contain_text("simulated")
    page.wait_for_selector("#charts path.line")
    page.click("#stop")
    expect(page.locator("#partial")).to_contain_text("partial: the run was interrupted")
    expect(page.locator("#tiles")).to_contain_text("TTFT")


def test_zoom_is_shared_by_all_charts(page: Any) -> None:
    run(page)
    first, second = (page.locator("#charts svg").nth(number) for number in (0, 1))
    before = second.inner_html()
    box = first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    page.mouse.up()
    page.mouse.move(5, 5)
    assert second.inner_html() != before
    first.focus()
    page.keyboard.press("0")
    assert second.inner_html() == before
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert second.inner_html() != before


def test_a_chart_of_zeros_has_a_readable_axis(page: Any) -> None:
    labels = page.evaluate("""() => {
        const chart = new ChartGroup(document.getElementById("charts")).add("queued", ["now"]);
        Object.assign(chart, { times: [0, 1], values: [[0, 0]] });
        chart.draw();
        return [...chart.svg.querySelectorAll("text")].map((one) => one.textContent);
    }""")
    assert labels[:3] == ["0", "0.5", "1"]


def drawn(page: Any, times: list[float]) -> str:
    """Makes `chart`, of these times, and of values that count from 0."""
    page.evaluate(
        """(times) => {
            const group = new ChartGroup(document.getElementById("charts"));
            window.chart = group.add("queued", ["now"]);
            times.forEach((time, place) => chart.push(time, [place]));
            group.draw();
        }""",
        times,
    )
    return str(page.evaluate("() => chart.caption.textContent"))


def test_times_are_round_in_the_unit_that_is_shown(page: Any) -> None:
    drawn(page, [0.0, 300.0, 600.0])
    labels = page.evaluate(
        "() => [...chart.svg.querySelectorAll('text')].map((e) => e.textContent)"
    )
    assert [one for one in labels if "min" in one] == ["0 min", "5 min", "10 min"]


def test_the_last_time_is_not_cut_off(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    drawn(page, [0.0, 3000.0, 6000.0])
    edges = """() => {
        document.body.append(chart.figure);
        chart.draw();
        const right = (one) => one.getBoundingClientRect().right;
        return [...chart.svg.querySelectorAll("text"), chart.svg].map(right);
    }"""
    *labels, edge = page.evaluate(edges)
    assert 0.0 < max(labels) <= edge
    page.evaluate("() => { chart.group.ticks = clockTicks(() => '10:45:00 PM'); }")
    *labels, edge = page.evaluate(edges)
    assert 0.0 < max(labels) <= edge


def test_the_legend_has_the_last_values_that_are_shown(page: Any) -> None:
    assert drawn(page, [0.0, 10.0, 20.0, 30.0]) == "queuednow 3"
    page.evaluate("() => chart.group.zoom(5, 20)")
    assert page.evaluate("() => chart.caption.textContent") == "queuednow 2"


def test_nothing_can_be_zoomed_before_the_first_sample(page: Any) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.click("nav a[href='#run']")
    assert drawn(page, []) == "queued"
    page.locator("#charts svg").scroll_into_view_if_needed()
    box = page.locator("#charts svg").bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 60)
    page.mouse.up()
    assert not errors
    assert page.locator("#charts svg text").count() == 0


def test_lines_of_a_chart_may_come_later(page: Any) -> None:
    drawn(page, [])
    page.evaluate("() => { chart.pushNamed(0, { now: 1 }); chart.pushNamed(1, { now: 2, a: 5 }); }")
    assert page.evaluate("() => [chart.names, chart.values[1].map(String)]") == [
        ["now", "a"],
        ["NaN", "5"],
    ]


def test_a_click_explains_a_request(page: Any) -> None:
    run(page)
    page.locator("#slow button").first.click()
    number = re.search(r"request (\d+)", page.locator("#slow button").first.text_content())
    assert number is not None
    expect(page.locator("#explanation")).to_contain_text(f"request {number[1]}")
    page.fill("#request", "999999")
    page.click("#ask")
    expect(page.locator("#status")).to_contain_text("999999")
    expect(page.locator("#explanation")).to_be_empty()


def test_runs_are_kept_and_compared(page: Any) -> None:
    names = [run(page), None]
    page.click("nav a[href='#edit']")
    page.fill("#text", SCENARIO.replace("replicas: 1", "replicas: 3"))
    expect(page.locator("#status")).to_contain_text("ready to run")
    page.click("#start")
    page.wait_for_url(re.compile("#run/"))
    expect(page.locator("#tiles")).to_contain_text("300 of 300")
    names[1] = page.evaluate("() => decodeURIComponent(location.hash.split('/')[1])")
    page.click("nav a[href='#history']")
    for name in names:
        page.check(f"input[aria-label='choose {name}']")
    page.click("#hold")
    expect(page.locator("#compared thead")).to_contain_text(str(names[0]))
    rows = page.locator("#compared tbody tr:has-text('E2E mean') td")
    assert rows.nth(1).get_attribute("class") == "num better"
    cost = page.locator("#compared tbody tr:has-text('cost') td.better")
    assert cost.count() == 0, "neither run has prices"


def test_it_works_with_the_keyboard_alone(page: Any) -> None:
    page.focus("#file")
    page.keyboard.type("shop")
    expect(page.locator("#status")).to_contain_text("shop, seed 3")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "text"
    page.keyboard.press("Control+Enter")
    expect(page.locator("#why")).to_be_visible()
    page.focus("#slow button")
    page.keyboard.press("Enter")
    expect(page.locator("#explanation")).to_contain_text("request")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_in_both_schemes(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    run(page)
    page.set_viewport_size({"width": 420, "height": 800})
    for view in ("edit", "run", "history"):
        page.click(f"nav a[href='#{view}']")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 420
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 23, 26)") == (scheme == "dark")
