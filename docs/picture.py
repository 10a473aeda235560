"""Draws the pictures of the documentation: `python docs/picture.py`.

docs/images/first.svg is a terminal after `windtunnel simulate examples/first.yaml`, gangs.svg one
after `windtunnel gangs status`; a test holds their words to the present output. report.png,
compare.png and sweep.png beside them are the tops of such pages in Chromium, where there is one.
Run it after a change of the tables, of the pages or of what a run gives.
"""

import io
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import windtunnel as wt
from windtunnel.analysis.run_folder import REPORT
from windtunnel.core.units import parse_duration
from windtunnel.gangs.api.load import load_manifests
from windtunnel.gangs.status import status_of
from windtunnel.report.files.folder import RunFolder
from windtunnel.report.terminal.gangs import show_status
from windtunnel.report.terminal.run import show
from windtunnel.twin.kubernetes.build import play
from windtunnel.twin.kubernetes.settings import load_cluster
from windtunnel.twin.run import run, simulate
from windtunnel.twin.scenario.load import load

ROOT = Path(__file__).parents[1]
EXAMPLE = Path("examples", "first.yaml")
PICTURE = ROOT / "docs" / "images" / "first.svg"
GANGS_PICTURE = ROOT / "docs" / "images" / "gangs.svg"
COLUMNS = 80
WIDE_COLUMNS = 116
REPORTED = Path("examples", "noisy-neighbour.yaml")
COMPARED = Path("examples", "routing.yaml")
POLICIES = ["round-robin", "least-loaded", "consistent-hash"]
SWEPT = Path("examples", "first.yaml")
IMAGES = ROOT / "docs" / "images"
WINDOWS = {"report": "1180,2040", "compare": "1180,1240", "sweep": "1180,1240"}
"""Pixels of each page that are shown; of the report, down to where the time went."""

# As rich's own, but with fonts that are already there: a picture should fetch nothing.
DRAWING = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px;
    line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def screen() -> Console:
    """A terminal on which the example has run."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), highlight=False, force_terminal=True
    )
    console.print(Text(f"$ windtunnel simulate {EXAMPLE.as_posix()}"))
    plan = load(ROOT / EXAMPLE)
    show(simulate(plan), plan.slos, Path("runs", f"{plan.name}-{plan.seed}"), console)
    return console


def gangs_screen(
    manifest: Path = ROOT / "examples" / "gangs" / "disaggregated.yaml",
    nodes: Path = ROOT / "examples" / "gangs" / "cluster.yaml",
    at: str = "20m",
) -> Console:
    """A terminal on which the gangs of an example wait."""
    console = Console(
        record=True, width=WIDE_COLUMNS, file=io.StringIO(), highlight=False, force_terminal=True
    )
    files = [one.relative_to(ROOT).as_posix() for one in (manifest, nodes)]
    console.print(
        Text(f"$ windtunnel gangs status {files[0]} \\\n    --cluster {files[1]} --at {at}")
    )
    cluster, loop = play(load_cluster(nodes), load_manifests(manifest), at_s=parse_duration(at))
    status: dict[str, Any] = status_of(cluster.view, loop.now_s)
    show_status({**status, "events": []}, console)
    return console


def draw(console: Console, picture: Path) -> None:
    drawn = console.export_svg(title="windtunnel", code_format=DRAWING, unique_id=picture.stem)
    picture.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


def pages(place: Path) -> dict[str, Path]:
    """A report, a comparison and a sweep, by the name of their picture."""
    plan = load(ROOT / REPORTED)
    with RunFolder(place / "run") as folder:
        folder.finish(run(plan, rows=folder.rows()))
    routed = [load(ROOT / COMPARED, [f"serving.router={{policy: {one}}}"]) for one in POLICIES]
    compared = wt.compare(*routed, names=POLICIES)
    vary = {"serving.pools.0.replicas": [2, 3, 4], "workload.0.arrivals.rate": [20, 30, 40, 50]}
    swept = wt.sweep(ROOT / SWEPT, vary=vary)
    return {
        "report": place / "run" / REPORT,
        "compare": compared.plot().save(place / "compare.html"),
        "sweep": swept.plot().save(place / "sweep.html"),
    }


def draw_pages(browser: str) -> None:
    """The tops of pages, as a browser shows them."""
    with tempfile.TemporaryDirectory() as place:
        for name, page in pages(Path(place)).items():
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            options += [f"--user-data-dir={place}/profile", f"--window-size={WINDOWS[name]}"]
            words = [browser, *options, f"--screenshot={IMAGES / name}.png", page.as_uri()]
            subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - our own page


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    draw(screen(), PICTURE)
    draw(gangs_screen(), GANGS_PICTURE)
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
        draw_pages(chromium)
