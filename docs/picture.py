"""Draws the pictures of the documentation: `python docs/picture.py`.

docs/images/first.svg is a terminal after `windtunnel simulate examples/first.yaml`; a test holds
its words to the present output. docs/images/report.png is the top of a report in Chromium, where
there is one. Run it after a change of the table, of the report or of what a run gives.
"""

import io
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from windtunnel.report.contents import REPORT
from windtunnel.report.files import RunFolder
from windtunnel.report.table import show
from windtunnel.twin.run import run, simulate
from windtunnel.twin.scenario.load import load

ROOT = Path(__file__).parents[1]
EXAMPLE = Path("examples", "first.yaml")
PICTURE = ROOT / "docs" / "images" / "first.svg"
COLUMNS = 80
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


def draw_report(browser: str) -> None:
    """The top of the report of an example, as a browser shows it."""
    plan = load(ROOT / REPORTED)
    with tempfile.TemporaryDirectory() as place:
        with RunFolder(Path(place, "run")) as folder:
            folder.finish(run(plan, rows=folder.rows(plan)))
        page = Path(place, "run", REPORT).as_uri()
        options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size={WINDOW}"
        profile = f"--user-data-dir={place}/profile"
        words = [browser, *options.split(), profile, f"--screenshot={REPORT_PICTURE}", page]
        subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - our own page


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    drawn = screen().export_svg(title="windtunnel", code_format=DRAWING, unique_id="first")
    PICTURE.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
        draw_report(chromium)
