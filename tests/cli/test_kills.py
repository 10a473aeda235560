"""kill -9 at a few random moments; `python -m benchmarks.kill_moments` has two hundred."""

from pathlib import Path

import pytest
from benchmarks.kill_moments import COMMANDS

from windtunnel.core.random import Stream


@pytest.mark.once
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_torn_lost_or_made_twice(command: str, tmp_path: Path) -> None:
    tally = COMMANDS[command](tmp_path, 3, Stream(0, command))
    assert tally.kills == 3
    assert tally.broken == []
