"""`windtunnel fleet soak` says a verdict with each number, and exits by it."""

import json
import re
from pathlib import Path

import pytest

from windtunnel.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
SHORT = ["fleet", "soak", "--profile", "3k", "--minutes", "1"]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main([*args])
    said = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, said.out, said.err


def test_a_time_without_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "fleet", "soak", "--minutes", "1e300")
    assert code == 2
    assert "1e+300 is not in the range 0<x<=43200" in err


def test_a_verdict_in_words_and_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    code, out, _ = run(capsys, *SHORT, "--gap", "--cycle-limit-s", "60", "--json", str(file))
    assert code == 0
    assert out.endswith("PASS\n")
    result = json.loads(file.read_text())
    assert result["pass"] is True
    assert [one["name"] for one in result["checks"]] == [
        "whole_s_p99",
        "landing_success",
        "duplicate_actions",
        "shortfalls",
        "invariants_broken",
        "urgent_unserved",
    ]
    rows = [re.split("  +", line.strip()) for line in out.splitlines() if "  pass  " in line]
    assert [row[:2] for row in rows] == [["pass", one["name"]] for one in result["checks"]]
    assert {len(row) for row in rows} == {5}, "columns are apart"
    assert result["figures"]["machines"] == 3000
    assert result["figures"]["cycles"] == 6
    assert len(result["figures"]["gaps"]) == 2
    assert "40 needs, whole machines" in out
    page = (DOCS / "how-to" / "soak-a-fleet.md").read_text()
    keys = [*result, *result["figures"], *result["checks"][0], *result["figures"]["gaps"][0]]
    keys += [*result["instruments"], *result["instruments"]["times_s"]["cycle"]]
    assert [name for name in keys if f"`{name}`" not in page] == []


def test_several_shards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SHORT, "--shards", "2")
    assert code == 0
    assert "  shards                     2, " in out
    assert "pass  stale_accepted" in out
    assert out.startswith("3,000 machines, ")
    code, _, err = run(capsys, *SHORT, "--process-losses-per-hour", "1")
    assert code == 2
    assert "a single shard has no coordinator to replace it" in err


def test_a_limit_that_was_not_kept_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SHORT, "--cycle-limit-s", "1e-9", "--json", "-")
    result = json.loads(out)
    assert code == 1
    assert result["pass"] is False
    assert [one["passed"] for one in result["checks"]] == [False, *[True] * 5]


def test_a_limit_that_is_no_number_is_refused_before_the_soak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windtunnel.cli.controllers.fleet_soak.Soak", None)  # nobody may begin one
    code, _, err = run(capsys, *SHORT, "--cycle-limit-s", "nan")
    assert code == 2
    assert "--cycle-limit-s" in err
    assert "nan is not a number" in err


def test_more_losses_than_a_fleet_could_make_good_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = run(capsys, *SHORT, "--losses-per-day", "1e6")
    assert code == 2
    assert "each machine is lost 1e+06 times a day; allowed: at most 24" in err


def test_a_profile_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "fleet", "soak", "--profile", "60k")
    assert code == 2
    assert "there is no profile '60k'; allowed: 3k, 50k, 100k, 500k" in err
