"""Tables for people, all in one style: no borders, figures to the right, nothing ever cut."""

from collections.abc import Iterable
from textwrap import wrap

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDEST = 1_000
"""Columns that no table here needs."""
INDENT = "  "
NARROW = 40
"""Screens with fewer columns have none to spare for an indent."""


def screen(*, stderr: bool = False) -> Console:
    """Standard output, for text that is already what it should be: no markup, no guessing."""
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr)


def plain_table(*headers: str, words: int = 1) -> Table:
    """An empty table; its first columns hold words, the others figures."""
    table = Table(*headers, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[words:]:
        column.justify = "right"
    return table


def print_fitting(console: Console, tables: Iterable[Table]) -> None:
    """Prints the first that fits on the screen, or the last uncut."""
    unlimited = console.options.update(max_width=WIDEST)
    for table in tables:
        columns = Measurement.get(console, unlimited, table).maximum
        if columns <= console.width:
            break
    table.width = columns
    console.print(table, soft_wrap=True)


def indented(console: Console, sentence: str) -> tuple[str, int]:
    """A sentence broken into lines that fit, all moved in, and how far."""
    indent = INDENT if console.width >= NARROW else ""
    lines = wrap(sentence, max(console.width, 1), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines), len(indent)
