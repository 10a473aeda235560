"""Makes the pages of the examples from their files: one file is one example, declared nowhere else.

`python docs/gallery.py` writes examples/README.md, which a test holds to the files. A build of the
documentation runs every example and writes docs/examples: a page each with its text, a picture, its
figures and its report, and a page of all pictures. With `-D run_examples=0` it leaves the runs out.
It fails where a number in the text of an example is within none of its bands in
tests/scenarios/bands.yaml, or the run is not within them.
"""

import os
import re
import runpy
import shlex
import tempfile
from concurrent.futures import ProcessPoolExecutor
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import windtunnel as wt
from windtunnel.analysis.run import AnalyzedRun, read_run
from windtunnel.analysis.saturation import bandwidth_of
from windtunnel.report.page.axes import ACROSS, time_ticks
from windtunnel.report.page.headline import tiles, verdict
from windtunnel.report.page.layers import layer_charts
from windtunnel.report.page.marks import FaultSpan, troubles
from windtunnel.report.page.render import render
from windtunnel.report.page.series import HEIGHT, Chart, charts

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"
BANDS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (ROOT / "tests" / "scenarios" / "bands.yaml").read_text(encoding="utf-8")
)
GANG = EXAMPLES / "incidents" / "gang"
PAGES = ROOT / "docs" / "examples"
EXTRA = "extra"
"""Of the pages: a folder whose content the site has as it is, reports; conf.py names it."""
GROUPS = {
    ".": ("First steps and single layers", "Each shows one mechanism."),
    "library": (
        "Situations",
        "Situations that every team that serves models meets; each runs in a second or two. A test "
        "holds each to the figures in `tests/scenarios/bands.yaml`.",
    ),
    "incidents": (
        "Incidents",
        "Failures of real systems, with the old behaviour and the present one; "
        "[Five incidents](../docs/explanation/incidents.md) has the whole story.",
    ),
}
OTHERS = """\
## Other files

| folder | content |
|---|---|
| `batch` | prompts for [`windtunnel batch`](../docs/how-to/run-a-batch.md): `columns.yaml` \
makes a summary, a headline, questions and a page of every article in `articles.jsonl`; \
`requests.jsonl` has the format of OpenAI's Batch API |
| `gangs` | for [`windtunnel gangs`](../docs/how-to/see-why-a-gang-waits.md): `disaggregated.yaml` \
is a PodCliqueSet of routers and of prefill and decode engines whose pairs must be in one rack of \
`cluster.yaml`; `guaranteed-and-elastic.yaml` needs three pods per replica and grows to ten |
| `manifests` | manifests that scenarios name |
| `notebooks` | three [notebooks](../docs/how-to/use-it-from-python.md) |
"""
PICKED = ("Requests", "At the gateway", "Queued", "First tokens", "Servers", "Machines")
MOST_CHARTS = 4
LEAST_FAULT = 1.5
"""Pixels of a fault that is over at once."""
CHARACTER = 7.3
"""Pixels of one character of text, with some room."""
SWATCH = 18
WIDTH, LEFT, RIGHT, TOP, STRIP = 760.0, 64.0, 12.0, 30.0, 34.0
STYLE = """\
svg { background: #fff; }
text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1d2126; }
.title { font-weight: 600; } .quiet { fill: #626a73; } .grid { stroke: #ece9e3; }
.fault { fill: #c2500a; opacity: .12; } .moment { opacity: .8; }
.line { fill: none; stroke-width: 1.75; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.a { stroke: #0b6bab; } .b { stroke: #c2500a; stroke-dasharray: 5 2.5; }
.c { stroke: #00795a; stroke-dasharray: 1.5 2.5; } .area { fill: #0b6bab1f; stroke: none; }
"""


class Example(NamedTuple):
    """An example as its file tells it: the first sentence, and the rest as Markdown."""

    path: Path
    title: str
    text: str

    @property
    def name(self) -> str:
        return self.path.parent.name if self.is_gang else self.path.stem

    @property
    def is_gang(self) -> bool:
        return self.path.parent == GANG

    @property
    def is_program(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def short(self) -> str:
        """What the title begins with, for headings and lists."""
        return self.title.split(":")[0].rstrip(".")

    @property
    def file(self) -> str:
        return (self.path.parent if self.is_gang else self.path).relative_to(EXAMPLES).as_posix()

    @property
    def commands(self) -> list[str]:
        """What the text tells to run, each as one line for a shell."""
        run = f"windtunnel simulate examples/{self.file}"
        if self.is_program:
            return [f"python examples/{self.file}"]
        found = [" ".join(part.split()) for part in self.text.split("`")[1::2]]
        whole = [part for part in found if part.startswith("windtunnel ")]
        return [*whole, *(f"{run} {part}" for part in found if part.startswith("--set "))]


def examples(folder: str) -> list[Example]:
    """The scenarios and programs of a folder of examples, the first one first."""
    paths = sorted(
        (EXAMPLES / folder).glob("*.yaml"), key=lambda path: (path.stem != "first", path)
    )
    if folder == "incidents":
        paths += [GANG / "never.yaml", *sorted((EXAMPLES / folder).glob("*.py"))]
    return [example_of(path) for path in paths]


def example_of(path: Path) -> Example:
    written = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = written.split('"""')[1]
    else:
        lines = written.splitlines()
        head = lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))]
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in head)
    title, _, rest = text.partition("\n\n")
    return Example(path, " ".join(title.split()), rest.strip() + "\n")


def readme() -> str:
    """examples/README.md: every example with its first sentence."""
    parts = [
        "# Examples\n\nRun one with `windtunnel simulate examples/NAME.yaml`. Each file says at "
        "its top what to look for and what to change with `--set`. The documentation shows each "
        "with its pictures, figures and report: `make docs` writes "
        "`docs/_build/html/examples/index.html`.\n"
    ]
    for folder, (heading, about) in GROUPS.items():
        rows = [f"| [`{one.file}`]({one.file}) | {one.title} |" for one in examples(folder)]
        table = "\n".join(["| file | what it shows |", "|---|---|", *rows])
        parts.append(f"## {heading}\n\n{about}\n\n{table}\n")
    return "\n".join([*parts, OTHERS])


def picked(run: AnalyzedRun) -> list[Chart]:
    """The few charts of a report that tell what an example is about."""
    series, end_s = run.series, run.end_s
    drawn = charts(series, run.slots, bandwidth_of(run.scenario), run.first_tokens.lines())
    drawn += layer_charts(run.result, run.history, series, end_s)
    told = [one for one in drawn if one.title.startswith(PICKED) and any_value(one)]
    told.sort(key=lambda one: one.title.startswith("Queued"))  # the first that may be left out
    kept = told[:MOST_CHARTS]
    return [one for one in drawn if one in kept]


def any_value(chart: Chart) -> bool:
    return any(value for line in chart.lines for value in line.values)


def picture(drawn: list[Chart], faults: list[FaultSpan], end_s: float) -> str:
    """The charts under one another on one time axis, as a picture of its own."""
    wide, each = WIDTH - LEFT - RIGHT, HEIGHT + STRIP
    height = TOP + each * len(drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}">',
        f"<style>{STYLE}</style>",
    ]
    ticks = [(LEFT + wide * tick.at / 100.0, tick) for tick in time_ticks(end_s)]
    for number, chart in enumerate(drawn):
        top = TOP + each * number
        names = ", ".join(line.name for line in chart.lines)
        note = "" if len(chart.lines) > 1 and names in chart.note else chart.note  # the key has it
        parts.append(
            f'<text class="title" x="{LEFT:g}" y="{top - 8:g}">{escape(chart.title)} '
            f'<tspan class="quiet" font-weight="400">{escape(note)}</tspan></text>'
        )
        parts += key(chart, faults if number == 0 else [], top - 12)
        for fault in faults:
            across = max(wide * fault.width / 100.0, LEAST_FAULT)
            look = "fault moment" if across == LEAST_FAULT else "fault"
            x = LEFT + wide * fault.x / 100.0
            parts.append(
                f'<rect class="{look}" x="{x:.1f}" y="{top:g}" '
                f'width="{across:.1f}" height="{HEIGHT:g}"/>'
            )
        parts += [
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{top + HEIGHT:g}"/>'
            for x, _ in ticks
        ]
        for tick in chart.ticks:
            y = top + tick.at
            parts.append(
                f'<line class="grid" x1="{LEFT:g}" x2="{LEFT + wide:g}" y1="{y:g}" y2="{y:g}"/>'
                f'<text class="quiet" x="{LEFT - 6:g}" y="{y + 4:g}" text-anchor="end">'
                f"{escape(tick.label)}</text>"
            )
        parts.append(
            f'<svg x="{LEFT:g}" y="{top:g}" width="{wide:g}" height="{HEIGHT:g}" '
            f'viewBox="0 0 {ACROSS:g} 100" preserveAspectRatio="none">'
        )
        parts += [f'<path class="area" d="{line.area}"/>' for line in chart.lines if line.area]
        parts += [f'<path class="line {line.look}" d="{line.path}"/>' for line in chart.lines]
        parts.append("</svg>")
        if number == len(drawn) - 1:
            parts += [
                f'<text class="quiet" x="{x:.1f}" y="{top + HEIGHT + 16:g}" '
                f'text-anchor="{tick.anchor}">{escape(tick.label)}</text>'
                for x, tick in ticks
            ]
    return "\n".join([*parts, "</svg>", ""])


def key(chart: Chart, faults: list[FaultSpan], y: float) -> list[str]:
    """What the lines of a chart are, from right to left; `y` is the middle of the text."""
    entries = [(line.name, line.look) for line in chart.lines] if len(chart.lines) > 1 else []
    if faults:
        entries.append(("fault", "fault"))
    parts, right = [], WIDTH - RIGHT
    for name, look in reversed(entries):
        start = right - CHARACTER * len(name)
        parts.append(f'<text class="quiet" x="{start:g}" y="{y + 4:g}">{escape(name)}</text>')
        left = start - 6 - SWATCH
        if look == "fault":
            shape = f'<rect class="fault" x="{left:g}" y="{y - 5:g}" width="{SWATCH}" height="10"/>'
        else:
            shape = f'<path class="line {look}" d="M{left:g} {y:g}h{SWATCH}"/>'
        parts.append(shape)
        right = left - 14
    return parts


class Made(NamedTuple):
    """What a run adds to the page of an example, beside its picture: Markdown."""

    text: str


def run_of(example: Example, pages: Path) -> Made:
    """Runs an example; leaves its picture and its report among the pages."""
    drawn = pages / f"{example.name}.svg"
    if example.is_program:
        found = runpy.run_path(str(example.path))
        old, ours = found["both"]()
        drawn.write_text(bars(found["NAMES"], old, ours), encoding="utf-8")
        rows = [f"| {key} | {old[key]:,} | {ours[key]:,} |" for key in ours]
        heads = f"| | {' | '.join(found['NAMES'])} |"
        return Made("\n".join(["## Figures\n", heads, "|---|---|---|", *rows, ""]))
    if example.is_gang:
        terminal = runpy.run_path(str(Path(__file__).with_name("picture.py")))
        screen, draw = terminal["gangs_screen"], terminal["draw"]
        cluster = GANG / "cluster.yaml"
        draw(screen(example.path, cluster, "2h"), drawn)
        other = screen(GANG / "ten-minutes.yaml", cluster, "2h").export_text()
        return Made(f"## With `terminationDelay: 10m`\n\n```text\n{other}```\n")
    with tempfile.TemporaryDirectory() as place:
        wt.simulate(example.path, folder=Path(place, "run"))
        run = read_run(Path(place, "run"))
    if example.name in BANDS and (wrong := outside(run.result, BANDS[example.name][0]["expect"])):
        raise ValueError(f"examples/{example.file} is not within its bands: {wrong}")
    faults = troubles(run.history.faults.values(), run.end_s)
    drawn.write_text(picture(picked(run), faults, run.end_s))
    reports = pages / EXTRA / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"{example.name}.html").write_text(render(run), encoding="utf-8")
    return Made(figures(run.result, example.name))


def bars(names: tuple[str, str], old: dict[str, float], ours: dict[str, float]) -> str:
    """Each figure of two ways to do something, as a pair of bars."""
    height = 20 + 70 * len(ours)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}">',
        f"<style>{STYLE}.old {{ fill: #c2500a; }} .ours {{ fill: #0b6bab; }}</style>",
    ]
    for number, key in enumerate(ours):
        top, most = 24 + 70 * number, max(old[key], ours[key], 1)
        parts.append(f'<text class="title" x="12" y="{top}">{escape(key)}</text>')
        for row, (name, look, value) in enumerate(
            ((names[0], "old", old[key]), (names[1], "ours", ours[key]))
        ):
            y, across = top + 8 + 20 * row, max(420.0 * value / most, 1.0)
            parts.append(
                f'<text class="quiet" x="168" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
                f'<rect class="{look}" x="176" y="{y}" width="{across:.1f}" height="15"/>'
                f'<text x="{184 + across:.1f}" y="{y + 12}">{value:,}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def figure(result: dict[str, Any], path: str) -> float | None:
    """The figure at a path such as `latency.ttft.p99`, or the quotient of two."""
    if " / " in path:
        over, under = (figure(result, part) for part in path.split(" / "))
        return None if over is None or not under else over / under
    value: Any = result
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return None if value is None else float(value)


def outside(result: dict[str, Any], bands: dict[str, list[float]]) -> dict[str, float | None]:
    """Of these bands, those that the run is not within, each with its figure."""
    seen = {path: figure(result, path) for path in bands}
    return {
        path: value
        for path, value in seen.items()
        if value is None or not bands[path][0] <= value <= bands[path][1]
    }


NUMBER = re.compile(r"(?<![\w.,])\$?(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)(%| cents| ms\b| s\b)?(?!\w)")
SCALES = {"%": 0.01, " cents": 0.01, " ms": 0.001}
SETTING = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


def unsupported(example: Example, rows: list[dict[str, Any]]) -> list[str]:
    """Numbers in the text of an example that no band of its run, or of the change told of, has.

    Numbers of its settings are no results, nor are small whole ones without a unit.
    """
    written = [line for line in example.path.read_text().splitlines() if not line.startswith("#")]
    found = []
    for number, part in enumerate(re.split(r"^- ", example.text, flags=re.MULTILINE)):
        commands = [" ".join(one.split()) for one in part.split("`")[1::2]]
        told = [sets_of(one) for one in commands if one.startswith("--set ")] if number else []
        runs = [rows[0], *(row for row in rows if row.get("with") in told)]
        bands = [band for run in runs for band in run.get("expect", {}).values()]
        bands += [[value, value] for value in rows[0].get("cited", [])]
        given = {float(one) for one in SETTING.findall(" ".join([*written, *commands]))}
        for one in NUMBER.finditer(re.sub(r"`[^`]*`", "", part)):
            value, unit = float(one[1].replace(",", "")), one[2] or ""
            if value in given or (value < 100 and not unit and "$" not in one[0]):
                continue
            result = value * SCALES.get(unit, 1.0)
            likely = [result, 1.0 - result] if unit == "%" else [result]
            if not any(low <= each <= high for low, high in bands for each in likely):
                found.append(one[0])
    return found


def figures(result: dict[str, Any], name: str) -> str:
    rows = [f"| {one.name} | {one.figure} | {one.note} |" for one in tiles(result)]
    said = " ".join(verdict(result, [], 0.0, "")[:1])
    table = "\n".join(["| figure | value | |", "|---|---|---|", *rows])
    link = f'<a href="../reports/{name}.html">The whole report</a>'
    return f"## Figures\n\n{said}\n\n{table}\n\n{link}\n"


def page(example: Example, made: Made | None) -> str:
    """The page of an example; without a run, all that its file tells."""
    parts = [f"# {example.short}\n", f"*{example.title}*\n"]
    if made is not None:
        parts.append(f"![{example.title}]({example.name}.svg)\n")
    parts.append(example.text)
    commands = "\n".join(dict.fromkeys(example.commands))
    parts.append(f"## Commands\n\n```console\n{commands}\n```\n")
    if made is not None:
        parts.append(made.text)
    if example.path.suffix == ".yaml":
        lines = example.path.read_text(encoding="utf-8").splitlines()
        body = lines[next(n for n, line in enumerate(lines) if not line.startswith("#")) :]
        shown = example.path.relative_to(EXAMPLES).as_posix()
        parts.append(f"## `examples/{shown}`\n\n```yaml\n{chr(10).join(body)}\n```\n")
    return "\n".join(parts)


def index(made: dict[str, Made]) -> str:
    """The gallery: every example by its picture and its first sentence."""
    contents = [f"{one.short} <{one.name}>" for folder in GROUPS for one in examples(folder)]
    parts = ["# Examples\n"]
    for folder, (heading, about) in GROUPS.items():
        rows = []
        for one in examples(folder):
            shown = f"![{one.name}]({one.name}.svg)<br>" if one.name in made else ""
            rows.append(f"- {shown}[{one.title.rstrip('.')}]({one.name}.md)")
        here = about.replace("../docs/", "../")
        parts.append(f"## {heading}\n\n{here}\n\n" + "\n".join(rows) + "\n")
    listed = "\n".join(contents)
    return "\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"])


def write_pages(*, runs: bool) -> None:
    """What a build of the documentation needs under docs/examples."""
    every = [one for folder in GROUPS for one in examples(folder)]
    for one in every:
        if one.name in BANDS and (wrong := unsupported(one, BANDS[one.name])):
            raise ValueError(f"examples/{one.file}: {wrong} is in none of its bands")
    PAGES.mkdir(exist_ok=True)
    made: dict[str, Made] = {}
    if runs:
        with ProcessPoolExecutor(os.cpu_count()) as workers:
            found = workers.map(run_of, every, [PAGES] * len(every))
            made = dict(zip([one.name for one in every], found, strict=True))
    for one in every:
        (PAGES / f"{one.name}.md").write_text(page(one, made.get(one.name)), encoding="utf-8")
    (PAGES / "index.md").write_text(index(made), encoding="utf-8")


def sets_of(command: str) -> list[str]:
    """The overrides of a command of `windtunnel simulate`."""
    words = shlex.split(command)
    return [words[n + 1] for n, word in enumerate(words) if word == "--set"]


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
