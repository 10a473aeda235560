"""`windtunnel fleet bench` says what a cycle costs, and looks at what it measures."""

import json
from pathlib import Path

import pytest

from windtunnel.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ["fleet", "bench", "--machines", "300", "--needs", "200", "--cap", "50"]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main([*args])
    said = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, said.out, said.err


def test_the_figures_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--json", "-")
    figures = json.loads(out)
    assert code == 0
    assert figures["satisfied"] == 1.0
    assert figures["satisfiable"] is True
    assert figures["duplicate_actions"] == 0
    assert figures["landed"] == figures["actions"] > 50
    assert figures["deferred"] == figures["actions"] - 50
    assert figures["cycles_to_converge"] >= figures["actions"] / 50
    assert 0 < figures["bytes_per_machine"] < 400
    assert {"cold_ms", "quiet_ms", "warm_ms"} <= set(figures)
    parts = ("list_ms", "cold_ms", "execute_ms")
    for one in (figures, figures["unmerged"]):
        assert one["step_ms"] == pytest.approx(sum(one[name] for name in parts))
    assert figures["unmerged"]["rows"] > figures["rows"]
    assert sum(figures["deferral_reasons"].values()) == figures["deferred"]
    assert figures["fetch_s_p99"] > 0.0


def test_without_a_cap_nothing_is_deferred(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL[:-1], "0", "--json", "-")
    figures = json.loads(out)
    assert code == 0
    assert (figures["deferred"], figures["deferral_reasons"]) == (0, {})


def test_urgent_needs_take_from_those_that_hold_everything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "fleet", "bench", "--machines", "2000", "--needs", "500")
    assert code == 0
    for kind in ("plain", "spread", "gangs"):
        assert f"preemption, {kind}" in out
    assert "100 urgent needs" in out


def test_the_figures_in_words_and_beside_neighbours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "bench.json"
    code, out, _ = run(capsys, *SMALL, "--contention", "--json", str(file))
    assert code == 0
    assert "300 machines, 200 needs in" in out
    assert "alone and beside folding, provider calls and exports" in out
    figures = json.loads(file.read_text())
    page = (DOCS / "explanation" / "fleet.md").read_text()
    assert [name for name in figures if f"`{name}`" not in page] == []
    assert set(figures["loaded"]) == set(figures["alone"]) == {"cold_ms", "warm_ms"}


def test_a_fleet_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "fleet", "bench", "--machines", "0")
    assert code == 2
    assert "--machines" in err


def test_needs_beyond_the_machines_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fleet", "bench", "--machines", "20", "--needs", "200")
    assert code == 0
    assert "There are not enough machines for all needs." in out
