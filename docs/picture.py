"""Draws docs/images/first.svg: a terminal after `windtunnel simulate examples/first.yaml`.

Run it after a change of the table or of what a run gives: `python docs/picture.py`. A test holds
the words of the picture to the present output.
"""

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from windtunnel.report.table import show
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load

ROOT = Path(__file__).parents[1]
EXAMPLE = Path("examples", "first.yaml")
PICTURE = ROOT / "docs" / "images" / "first.svg"
COLUMNS = 80

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


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    drawn = screen().export_svg(title="windtunnel", code_format=DRAWING, unique_id="first")
    PICTURE.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")
