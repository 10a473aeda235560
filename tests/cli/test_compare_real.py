"""`windtunnel compare --real`: what it prints, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_observe_command import exit_code, scenario
from tests.live.observed import observe
from tests.search.test_reality import trace_of
from windtunnel.twin.scenario.load import load

SLOW = "serving.pools.0.step_time.fixed=12ms"


@pytest.fixture
def measured(tmp_path: Path) -> tuple[str, str]:
    """A scenario, and a trace of a server whose steps are slower."""
    file = scenario(tmp_path, count=30, output=6)
    return file, str(trace_of(observe(load(file, [SLOW])), tmp_path))


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert exit_code("compare", *arguments) == 0
    return capsys.readouterr().out


def test_both_are_shown_and_what_to_recalibrate(
    measured: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file, trace = measured
    out = compared(capsys, "--real", trace, file)
    assert "measured.parquet against small.yaml" in out
    assert "30 of 30 requests" in out
    assert "steps are 20.0% slower" in out
    assert f"--set {SLOW}" in out
    again = compared(capsys, "--real", trace, file, "--set", SLOW)
    assert "nothing to recalibrate" in again


def test_the_same_as_json(
    measured: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, trace = measured
    alone = json.loads(compared(capsys, "--real", trace, file, "--json", "-"))
    assert alone["latency"]["tpot"]["mean"]["error"] == pytest.approx(-1 / 6, abs=1e-3)
    written = tmp_path / "found.json"
    compared(capsys, "--real", trace, file, "--json", str(written))
    assert json.loads(written.read_text()) == alone


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "one scenario"),
        (["{file}", "{file}"], "one scenario"),
        (["{file}", "--vary", "serving.pools.0.replicas=1,2"], "--vary"),
        (["{file}", "--seeds", "3"], "--seeds"),
        (["{file}", "-o", "somewhere"], "-o"),
        (["missing.yaml"], "missing.yaml"),
        (["{file}", "--set", "slo={standard: {ttft: x}}"], "ttft"),
    ],
)
def test_what_does_not_go_with_it_is_a_sentence(
    options: list[str],
    says: str,
    measured: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, trace = measured
    given = [option.replace("{file}", file) for option in options]
    assert exit_code("compare", "--real", trace, *given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_a_trace_that_is_not_there_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario(tmp_path)
    assert exit_code("compare", "--real", str(tmp_path / "no.parquet"), file) == 2
    assert "no.parquet" in capsys.readouterr().err
