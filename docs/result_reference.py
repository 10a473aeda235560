"""Writes the table of `result.json` in docs/reference/result.md from the figures declared in code.

Run it after a change of a figure: `python docs/result_reference.py`. A test holds the page to it.
"""

import re
from pathlib import Path

from windtunnel.analysis.figures import FIGURES

PAGE = Path(__file__).parent / "reference" / "result.md"
TABLE = re.compile(
    r"(?<=\n\| key \| unit \| meaning \| null when \|\n\|---\|---\|---\|---\|\n).*?(?=\n\n)",
    re.DOTALL,
)


def page() -> str:
    """The whole page, with the table as it should be."""
    rows = []
    for one in FIGURES:
        cells = (f"`{one.path}`", one.unit.replace("$", "US$"), one.meaning, one.null_when)
        rows.append(f"| {' | '.join(cells)} |".replace("  |", " |"))
    return TABLE.sub(lambda _: "\n".join(rows), PAGE.read_text(encoding="utf-8"), count=1)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
