"""Hot paths cost what the record says, which is part of each change."""

import json
import shutil

import pytest

import windtunnel
from tests.house.hot_paths import PATHS, PLATFORM, RECORD, instructions_each, lines_each

MOST = 1.1
KEPT = json.loads(RECORD.read_text())
HOW = "if that is worth it, run python -m tests.house.hot_paths"


@pytest.mark.once
@pytest.mark.skipif(windtunnel.FORM == "compiled", reason="compiled code has no lines")
@pytest.mark.parametrize("name", PATHS)
def test_a_hot_path_does_not_grow_unnoticed(name: str) -> None:
    found, kept = lines_each(name), KEPT["lines"][name]
    assert found <= MOST * kept, f"{name}: {found} lines, {kept} in {RECORD.name}; {HOW}"
    assert found >= kept / MOST, f"{name}: {found} lines, only; record it, so that it stays so"


@pytest.mark.skipif(windtunnel.FORM != "compiled", reason="counts compiled code")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts")
@pytest.mark.skipif(PLATFORM not in KEPT["instructions"], reason=f"no record of {PLATFORM}")
def test_compiled_hot_paths_do_not_grow_unnoticed() -> None:
    found, kept = instructions_each(), KEPT["instructions"][PLATFORM]
    grown = [
        f"{name}: {found[name]:,} instructions, {kept[name]:,} in {RECORD.name}; {HOW}"
        for name in PATHS
        if found[name] > MOST * kept[name]
    ]
    assert not grown, grown
    shrunk = [name for name in PATHS if found[name] < kept[name] / MOST]
    assert not shrunk, f"{shrunk} became shorter: record it, so that they stay so"


def test_the_record_is_of_the_paths_that_there_are() -> None:
    assert list(KEPT["lines"]) == list(PATHS)
    for counts in KEPT["instructions"].values():
        assert list(counts) == list(PATHS)
