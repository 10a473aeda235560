"""The last lines after a run: how far to trust it, the gravest doubts first."""

from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.report.layout import INDENT, indented
from windtunnel.twin.trust import CAUTION, DOUBT, GOOD

MOST_LINES = 3
COLOURS = {GOOD: "green", CAUTION: "yellow", DOUBT: "red"}


def show_trust(trust: dict[str, Any], console: Console) -> None:
    """Prints the verdict and a few findings; a run with nothing to say against it gets one line."""
    verdict = trust["verdict"]
    console.print(Text.assemble(("trust", "bold"), "  ", (verdict, COLOURS[verdict])))
    grave = [one for one in trust["findings"] if one["severity"] != GOOD]
    for one in grave[:MOST_LINES]:
        lines, start = indented(console, f"{one['severity']}: {one['says']}")
        text = Text(lines)
        text.stylize(COLOURS[one["severity"]], start, start + len(one["severity"]) + 1)
        console.print(text, soft_wrap=True)
    if len(grave) > MOST_LINES:
        console.print(Text(f"{INDENT}and {len(grave) - MOST_LINES} more, in result.json", "dim"))
