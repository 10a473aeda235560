"""Examples give the same bytes as ever, in both forms and on every machine."""

import json
from pathlib import Path

import pytest

from tests.scenarios.digests import EXAMPLES, KEPT, digests_of


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_gives_what_it_gave(example: str, tmp_path: Path) -> None:
    assert digests_of(example, tmp_path / "run") == json.loads(KEPT.read_text())[example]
