"""The last lines after a run: how far to trust it, the gravest doubts first."""

from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.twin.trust import CAUTION, DOUBT, GOOD

MOST_LINES = 3
NARROW = 40
INDENT = "  "
COLOURS = {GOOD: "green", CAUTION: "yellow", DOUBT: "red"}


def show_trust(trust: dict[str, Any], console: Console) -> None:
    """Prints the verdict and a few findings; a run with nothing to say against it gets one line."""
    verdict = trust["verdict"]
    console.print(Text.assemble(("trust", "bold"), "  ", (verdict, COLOURS[verdict])))
    grave = [one for one in trust["findings"] if one["severity"] != GOOD]
    for one in grave[:MOST_LINES]:
        sentence = f"{one['severity']}: {one['says']}"
        indent = INDENT if console.width >= NARROW else ""
        lines = wrap(
            sentence, max(console.width, 1), initial_indent=indent, subsequent_indent=indent
        )
        text = Text("\n".join(lines))
        text.stylize(COLOURS[one["severity"]], len(indent), len(indent) + len(one["severity"]) + 1)
        console.print(text, soft_wrap=True)
    if len(grave) > MOST_LINES:
        console.print(Text(f"{INDENT}and {len(grave) - MOST_LINES} more, in result.json", "dim"))
