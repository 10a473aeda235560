"""docs/how-to/explain-a-run.md shows what `windtunnel explain` prints of an example."""

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
        printed = [f"    {line}".rstrip() for line in result.output.splitlines()]
        assert lines[start : start + len(printed)] == printed
