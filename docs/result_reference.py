"""Writes the list of `result.json` in docs/reference/result.md from the figures declared in code.

Run it after a change of a figure: `python docs/result_reference.py`. A test holds the page to it.
"""

import re
from pathlib import Path

from windtunnel.analysis.figures import FIGURES, Figure

PAGE = Path(__file__).parent / "reference" / "result.md"
LIST = re.compile(r"(?<=\n\n)- `name`: .*?(?=\n\n)", re.DOTALL)
PART = re.compile(r"(\w+(?:\.[A-Z]+)?)\.(.+)")
"""A figure of a part, or of each class, source, tenant or pool."""

OF_NOTHING = (
    "nothing completed",
    "none arrived",
    "none ended",
    "none did",
    "no output",
    "no gap was seen",
    "no first turn completed",
    "no later turn completed",
    "nothing was drafted",
    "nothing was measured",
    "the same",
)
"""Why a mean or a share is null, where the page's introduction says so for all of them."""


def page() -> str:
    """The whole page, with the list as it should be."""
    rows: list[str] = []
    first: dict[Figure, str] = {}
    repeated: dict[tuple[str, str], list[str]] = {}
    for one in FIGURES:
        found = PART.fullmatch(one.path)
        if found is None:
            rows.append(_row(one))
            continue
        part, key = found.groups()
        alike = Figure(key, one.meaning, one.unit, null_when=one.null_when)
        where = first.setdefault(alike, part)
        if where == part:
            rows.append(_row(one))
            continue
        keys = repeated.setdefault((part, where), [])
        keys.append(f"`{key}`")
        if len(keys) == 1:
            rows.append(f"{part} {where}")
    said = {
        f"{part} {where}": _alike(part, where, keys) for (part, where), keys in repeated.items()
    }
    table = "\n".join(said.get(row, row) for row in rows)
    return LIST.sub(lambda _: table, PAGE.read_text(encoding="utf-8"), count=1)


def _row(one: Figure) -> str:
    null = f" (null: {one.null_when})" if one.null_when and one.null_when not in OF_NOTHING else ""
    told = one.unit in ("s", "$") or re.search(rf"\b{one.unit}\b", one.meaning)
    shown = f" ({one.unit})" if one.unit and not told else ""
    return f"- `{one.path}`{shown}: {one.meaning}{null}"


def _alike(part: str, where: str, keys: list[str]) -> str:
    return f"- `{part}.KEY`: {', '.join(keys)}: as `{where}.KEY`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
