"""Every failure case has its tests, and a clock that somebody sets changes no delay."""

import re
from pathlib import Path

import pytest

from tests.kubernetes.failure_cases import CASES
from windtunnel.live.operate import program
from windtunnel.live.operate.program import LiveClock

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_held_by_tests_that_exist(case: str) -> None:
    assert CASES[case]
    for where in CASES[case]:
        path, _, name = where.partition("::")
        text = (TESTS / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), where


def test_every_test_of_a_failure_is_in_the_table() -> None:
    path = "kubernetes/test_failure_cases.py"
    found = re.findall(r"^async def (test_\w+)\(", (TESTS / path).read_text(), re.MULTILINE)
    named = {where for held in CASES.values() for where in held}
    assert found
    assert {f"{path}::{name}" for name in found} <= named


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_moves_no_delay(
    monkeypatch: pytest.MonkeyPatch, set_by_s: float
) -> None:
    shown = [1_000_000.0, 50.0]
    monkeypatch.setattr(program, "unix_s", lambda: shown[0])
    monkeypatch.setattr(program, "monotonic_s", lambda: shown[1])
    clock = LiveClock()
    began_s = clock()
    shown[0] += set_by_s + 5.0
    shown[1] += 5.0
    assert clock() - began_s == 5.0
