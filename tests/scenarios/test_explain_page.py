"""docs/how-to/explain-a-run.md shows what `windtunnel explain` prints of an example."""

import re
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.cli.simulation.explain import explain
from windtunnel.cli.simulation.simulate import simulate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "explain-a-run.md").read_text()
RUN = "runs/whole-loop-1"


@pytest.mark.once
def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word; a line `...` stands for lines that the page leaves out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    example = str(ROOT / "examples" / "whole-loop.yaml")
    CliRunner().invoke(simulate, [example, "-o", RUN], catch_exceptions=False)
    lines = PAGE.splitlines()
    commands = [line for line in lines if line.startswith(f"    windtunnel explain {RUN} --")]
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(explain, command.split()[2:], catch_exceptions=False)
        start = lines.index(command) + 2
        shown = list(takewhile(lambda line: line.startswith("    ") or not line, lines[start:]))
        parts = "\n".join(shown).rstrip().split("\n    ...\n")
        printed = "\n".join(f"    {line}".rstrip() for line in result.output.splitlines())
        assert re.fullmatch("\n.*\n".join(map(re.escape, parts)), printed.rstrip(), re.DOTALL)
