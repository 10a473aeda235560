"""The page about routing has a row for every policy and scorer; the how-to shows the example."""

import re
from pathlib import Path

import pytest

from windtunnel.routing.build import ALIASES, POLICIES, SCORERS

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "routing.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^- `([a-z-]+)`", section, re.MULTILINE)


def test_every_policy_has_its_row() -> None:
    assert rows("Policies") == [*POLICIES]


def test_every_scorer_has_its_row() -> None:
    assert sorted(rows("Scorers")) == sorted(SCORERS)
    assert all(f"`{alias}`" in PAGE for alias in ALIASES)


def test_the_how_to_shows_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-router.md").read_text(encoding="utf-8")
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert shown in (ROOT / "examples" / "my_router.py").read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 10
