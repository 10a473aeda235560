"""`windtunnel fuzz`: what it prints, where it writes, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.cli.controllers.fuzz import fuzz
from windtunnel.core.errors import InputError
from windtunnel.core.system.processes import Returned
from windtunnel.fuzz.campaign import Campaign, CampaignProgress, FuzzFinding
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import Breach

BREACH = Breach("error", "KeyError in twin/x:y", "Traceback\n  there\nKeyError: 3")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign finds seed 1 broken, without any worker."""

    def run(self: Campaign, tasks: list[Any], jobs: int, progress: CampaignProgress) -> None:
        for task in tasks:
            found = FuzzFinding(1, BREACH, draw(1)) if task == 1 else None
            self.take(task, Returned(found))

    monkeypatch.setattr(Campaign, "run", run)


def test_nothing_is_broken(tmp_path: Path) -> None:
    done = CliRunner().invoke(fuzz, ["--seeds", "2", "--jobs", "1", "-o", str(tmp_path / "out")])
    assert (done.exit_code, done.output) == (0, "2 seeds: 0 broken\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("broken")
def test_what_is_broken_is_shown_with_its_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(fuzz, ["--seeds", "3", "-o", str(out)])
    assert done.exit_code == 3
    assert done.output == (
        "3 seeds: 1 broken (1 error)\n\nseed 1  error: KeyError: 3\n"
        f"  windtunnel simulate {out}/1.yaml --check --seed 1\n"
    )
    again = CliRunner().invoke(fuzz, ["--seeds", "1", "-o", str(out)])
    assert again.output == "1 seed, 1 that failed before: 0 broken\n"


@pytest.mark.usefixtures("broken")
def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    arguments = ["--seeds", "3", "-o", str(tmp_path / "out"), "--corpus", str(tmp_path / "past")]
    done = CliRunner().invoke(fuzz, [*arguments, "--json", "-"])
    result = json.loads(done.stdout)
    assert (done.exit_code, list(result)) == (3, ["seeds", "broken", "failures"])
    (failure,) = result["failures"]
    assert list(failure) == ["seed", "what", "invariant", "error", "file", "command"]
    assert (tmp_path / "past" / "1.yaml").is_file()
    file = tmp_path / "result.json"
    CliRunner().invoke(fuzz, [*arguments, "--json", str(file)])
    assert json.loads(file.read_text()) == result


@pytest.mark.usefixtures("broken")
def test_a_campaign_of_hours_draws_until_they_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(100))
    monkeypatch.setattr("windtunnel.core.clock.monotonic_s", lambda: 3600.0 * next(times))
    done = CliRunner().invoke(fuzz, ["--hours", "5", "--first-seed", "2", "-o", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, "4 seeds: 0 broken\n")
    done = CliRunner().invoke(fuzz, ["--hours", "0"])
    assert done.exit_code == 2


@pytest.mark.parametrize(("ended", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupted_campaign_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: BaseException, status: int
) -> None:
    def run(self: Campaign, tasks: list[Any], jobs: int, progress: CampaignProgress) -> None:
        self.take(0, Returned(None))
        raise ended

    monkeypatch.setattr(Campaign, "run", run)
    done = CliRunner().invoke(fuzz, ["--json", "-", "-o", str(tmp_path)])
    assert done.exit_code == status
    assert json.loads(done.stdout)["seeds"] == 1
    assert "interrupted" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "where"),
    [(["-o", " "], "-o"), (["--corpus", ""], "--corpus"), (["-o", "FILE"], "-o")],
)
def test_bad_places_are_refused(tmp_path: Path, arguments: list[str], where: str) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = [str(file) if one == "FILE" else one for one in arguments]
    done = CliRunner().invoke(fuzz, arguments)
    assert isinstance(done.exception, InputError)
    assert (done.exception.where or "").startswith(where)
