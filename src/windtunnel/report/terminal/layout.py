"""Tables and sentences in one style: no borders, figures aligned right, nothing truncated."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from windtunnel.core.errors import printable

WIDEST = 1_000
"""Wider than any table here."""
INDENT = "  "
NARROW = 40
"""Narrower screens get no indent."""

Rows = Iterable[Sequence[Any]]
"""Cells are text or other rich renderables."""


class Screen(Console):
    """A console that prints text as it is: no markup, no highlighting.

    Names and messages may be untrusted: control characters in them do not reach the terminal.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def screen(*, stderr: bool = False) -> Console:
    """A console on standard output or standard error."""
    return Screen(stderr=stderr)


def table_of(
    heads: Sequence[str | Text], rows: Rows, *, words: int = 1, left: Iterable[int] = ()
) -> Table:
    """A table with text in the first columns and in those of `left`, and figures in the others."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(_cell(head) if isinstance(head, str) else head)
    texts = {place % len(heads) for place in left}
    for place, column in enumerate(table.columns):
        column.no_wrap = True
        column.justify = "left" if place < words or place in texts else "right"
    for row in rows:
        table.add_row(*(Text(_cell(cell)) if isinstance(cell, str) else cell for cell in row))
    return table


def _cell(text: str) -> str:
    """Text of one line, since a line break in a name would make it another row."""
    return printable(text).replace("\n", " ")


def several(lines: Iterable[str]) -> Text:
    """A cell of several lines."""
    return Text("\n".join(map(_cell, lines)))


def narrower(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], fewest: int, last: int = 0
) -> Iterator[Table]:
    """The same table with fewer and fewer columns; the `last` ones stay."""
    end = len(heads) - last
    for many in range(end, fewest - 1, -1):
        yield table_of([*heads[:many], *heads[end:]], [[*row[:many], *row[end:]] for row in rows])


def chosen(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], choices: Iterable[Sequence[str]]
) -> Iterator[Table]:
    """The same table with the first column and each choice of the others, by header."""
    for names in choices:
        places = [0, *(heads.index(name, 1) for name in names)]
        yield table_of([heads[at] for at in places], [[row[at] for at in places] for row in rows])


def print_fitting(console: Console, tables: Iterable[Table]) -> None:
    """Prints the first table that fits the screen, or the last one in full."""
    unlimited = console.options.update(max_width=WIDEST)
    for table in tables:
        columns = Measurement.get(console, unlimited, table).maximum
        if columns <= console.width:
            break
    table.width = columns
    console.print(table, soft_wrap=True)


def print_table(console: Console, heads: Sequence[str], rows: Rows, *, words: int = 1) -> None:
    print_fitting(console, [table_of(heads, rows, words=words)])


def say(console: Console, sentence: str, style: str = "") -> None:
    """Prints a sentence on one line: a path split over lines cannot be copied."""
    console.print(Text(_cell(sentence), style), soft_wrap=True)


def say_indented(console: Console, sentence: str, style: str = "") -> None:
    """Prints a sentence wrapped to the screen and indented."""
    console.print(Text(printable(indented(console, sentence)[0]), style), soft_wrap=True)


def indented(console: Console, sentence: str) -> tuple[str, int]:
    """A sentence wrapped to the screen and indented, and the width of the indent."""
    indent = INDENT if console.width >= NARROW else ""
    lines = wrap(sentence, max(console.width, 1), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines), len(indent)


def seeds_text(seeds: Sequence[int]) -> str:
    """`seed 7`, or `seeds 7 to 11`."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
