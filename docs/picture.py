"""Draws the pictures of the documentation: `python docs/picture.py`.

docs/images/first.svg is a terminal after `windtunnel simulate examples/first.yaml`, gangs.svg one
after `windtunnel gangs status`; a test holds their words to the present output. report.png beside
them is the top of a report in Chromium, where there is one. Run it after a change of the tables, of
the report or of what a run gives.
"""

import io
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.analysis.run_folder import REPORT
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
WIDE_COLUMNS = 110
REPORTED = Path("examples", "noisy-neighbour.yaml")
REPORT_PICTURE = ROOT / "docs" / "images" / "report.png"
WINDOW = "1180,2040"
"""Pixels of the report that are shown: down to where the time went."""

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


def gangs_screen() -> Console:
    """A terminal on which the gangs of an example wait."""
    console = Console(
        record=True, width=WIDE_COLUMNS, file=io.StringIO(), highlight=False, force_terminal=True
    )
    files = [Path("examples", "gangs", name) for name in ("disaggregated.yaml", "cluster.yaml")]
    command = (
        f"$ windtunnel gangs status {files[0].as_posix()} \\\n    --cluster {files[1].as_posix()}"
    )
    console.print(Text(f"{command} --at 20m"))
    cluster, loop = play(
        load_cluster(ROOT / files[1]), load_manifests(ROOT / files[0]), at_s=1200.0
    )
    status: dict[str, Any] = status_of(cluster.view, loop.now_s)
    show_status({**status, "events": []}, console)
    return console


def draw(console: Console, picture: Path) -> None:
    drawn = console.export_svg(title="windtunnel", code_format=DRAWING, unique_id=picture.stem)
    picture.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


def draw_report(browser: str) -> None:
    """The top of the report of an example, as a browser shows it."""
    plan = load(ROOT / REPORTED)
    with tempfile.TemporaryDirectory() as place:
        with RunFolder(Path(place, "run")) as folder:
            folder.finish(run(plan, rows=folder.rows()))
        page = Path(place, "run", REPORT).as_uri()
        options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size={WINDOW}"
        profile = f"--user-data-dir={place}/profile"
        words = [browser, *options.split(), profile, f"--screenshot={REPORT_PICTURE}", page]
        subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - our own page


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    draw(screen(), PICTURE)
    draw(gangs_screen(), GANGS_PICTURE)
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
        draw_report(chromium)
