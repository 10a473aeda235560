"""Hot paths take no more lines of Python than the record says, which is part of each change."""

import json

import pytest

from tests.house.hot_paths import PATHS, RECORD, lines_each

MOST = 1.1
KEPT = json.loads(RECORD.read_text())


@pytest.mark.once
@pytest.mark.parametrize("name", PATHS)
def test_a_hot_path_does_not_grow_unnoticed(name: str) -> None:
    found = lines_each(name)
    assert found <= MOST * KEPT[name], (
        f"{name}: {found} lines, {KEPT[name]} in tests/house/hot_paths.json; if that is worth it, "
        "run python -m tests.house.hot_paths"
    )


def test_the_record_is_of_the_paths_that_there_are() -> None:
    assert list(KEPT) == list(PATHS)
