"""Rotated event logs: nothing is lost, repeated or out of order, whatever happens in between."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.cli.live.audit import audit as audit_command
from windtunnel.core.errors import InputError
from windtunnel.live import rotation
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.shadow.following import FileTail


def serve(
    path: Path, after: Callable[[EventLogFile], None], largest: float, keep: int = 100
) -> None:
    """A gateway that answers forty requests."""
    head: dict[str, Any] = {"settings": {}, "seed": 1, "folder": "."}
    with closing(EventLogFile(path, head, limits=rotation.LogLimits(largest, keep))) as log:
        log.open()
        core = GatewayCore(GatewayFile.read({}).policies(Path(), 1, {}), log.record)
        core.join("s", 8, 0.0, "both")
        core.healthy(0, [ModelCard("m")], 0.0)
        for number in range(40):
            core.arrive(RequestArrival(number, "m", 0, 0, 50, 400), 1.0 + number)
            while core.take() is not None:
                pass
            core.ended(number, "completed", 1.5 + number, 0.1, 0.01)
            while core.take() is not None:
                pass
            log.flush()
            after(log)


def nothing(_: EventLogFile) -> None:
    pass


def content(path: Path) -> bytes:
    with rotation.opened(path) as files:
        return b"".join(file.read() for file in files)


def test_a_rotated_log_is_audited_and_followed_as_one_file(tmp_path: Path) -> None:
    serve(tmp_path / "one", nothing, largest=1e9)
    tail = FileTail(tmp_path / "log")
    followed: list[bytes] = []
    calls = 0

    def follow(_: EventLogFile) -> None:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:  # several rotations in between
            followed.extend(tail.lines())

    serve(tmp_path / "log", follow, largest=600)
    serve(tmp_path / "log", nothing, largest=600)
    assert len(list(tmp_path.glob("log.*"))) > 10
    followed += tail.lines()
    assert followed == content(tmp_path / "log").splitlines()
    assert list(FileTail(tmp_path / "log").lines()) == followed
    whole, rotated = audit(tmp_path / "one"), audit(tmp_path / "log")
    assert (rotated.difference, rotated.starts) == ("", 2)
    assert (rotated.facts, rotated.decisions) == (2 * whole.facts, 2 * whole.decisions)


def test_a_process_killed_in_the_middle_of_a_rotation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    serve(path, nothing, largest=600)
    whole, files = content(path), len(list(tmp_path.iterdir()))
    rename = Path.replace
    for killed_after in range(files):
        left = killed_after

        def replace(one: Path, other: Path) -> Path:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return rename(one, other)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Path, "replace", replace)
            rotation.rotate(path, 100)
        assert content(path) == whole, killed_after
        path.touch()
        rotation.rotate(path, 100)  # the next start
        path.touch()
        assert content(path) == whole, killed_after


def test_the_oldest_files_are_removed_and_the_audit_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    serve(path, nothing, largest=600, keep=3)
    assert {one.name for one in tmp_path.iterdir()} == {"log", "log.1", "log.2", "log.3"}
    with pytest.raises(InputError, match="the start of this log is no longer kept"):
        audit(path)
    serve(path, nothing, largest=1e9, keep=3)
    done = CliRunner().invoke(audit_command, [str(path)])
    assert done.exit_code == 0, done.output
    assert "the first lines are of a start whose file is no longer kept" in done.output
    assert "decisions follow from" in done.output
