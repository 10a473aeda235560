"""The files of a gateway: no start, disk or neighbour takes anything from them unnoticed."""

import errno
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.live.gateway.bed import bed, chat, friendly, run
from windtunnel.cli.main import main
from windtunnel.core.errors import OutputError
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.gateway.audit import audit, starts_of
from windtunnel.live.gateway.data_path.structs import TraceRow
from windtunnel.live.gateway.request_trace import RequestTrace
from windtunnel.live.lines import LineFile

LOG = logging.getLogger("windtunnel.gateway")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.chdir(tmp_path)

    def run_it(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main(list(args))
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def serve(folder: Path, requests: int, *sets: str) -> None:
    """A gateway starts in the folder, answers, and stops."""

    async def test() -> None:
        files = (f"live.log={folder / 'log'}", f"live.trace={{folder: {folder / 'trace'}}}")
        async with bed(friendly, sets=(*files, *sets)) as it:
            for _ in range(requests):
                assert (await it.ask(chat(stream=True))).status == 200

    run(test())


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("what", ["port", "admin", "picker", "key", "access log"])
def test_a_start_that_fails_leaves_every_file_as_it_was(
    what: str, command: Command, tmp_path: Path
) -> None:
    serve(tmp_path, 2)
    before = contents(tmp_path)
    with taken_port() as port:
        free = "127.0.0.1:0"
        listen = f"127.0.0.1:{port}"
        sets = {
            "listen": listen if what == "port" else free,
            "admin": listen if what == "admin" else free,
            "log": "log",
            "trace": "{folder: trace}",
        }
        if what == "picker":
            pytest.importorskip("envoy.service")
            sets["picker"] = f"{{listen: '{listen}'}}"
        if what == "key":
            sets["clients"] = "[{key_env: NO_SUCH_KEY_HERE}]"
        if what == "access log":
            sets["access_log"] = "none/access"
        options = [f"--set=live.{name}={value}" for name, value in sets.items()]
        code, _, err = command("gateway", "--server", "http://127.0.0.1:1", *options)
    assert code == 2, err
    assert contents(tmp_path) == before


def test_an_operator_that_cannot_start_leaves_its_log_as_it_was(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"before\n")
    code, _, _ = command("operate", "--context", "nope", "--log", "log")
    assert code == 2
    assert (tmp_path / "log").read_bytes() == b"before\n"


def test_every_start_is_a_section_of_the_log_that_readers_know(
    command: Command, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    serve(tmp_path, 3)
    first = log.read_bytes()
    log.write_bytes(first[:-40])  # killed while it wrote
    serve(tmp_path, 5)
    assert log.read_bytes().startswith(first[:-40] + b"\n{")
    code, out, err = command("audit", "log")
    assert code == 0
    assert ", byte for byte, in 2 starts" in out
    assert "a start ends before its last line is complete: the program was killed" in err
    report = audit(log)
    assert (report.starts, report.decisions) == (2, 2 * (3 + 5))
    (tmp_path / "cut").write_bytes(b"".join(first.splitlines(keepends=True)[:2]) + b"{")
    code, out, err = command("audit", "cut")
    assert (code, out) == (0, "nothing to check: 1 fact and no decision\n")
    assert "before its last line is complete" in err

    code, out, err = command("incident", "log", "-o", "last")
    assert (code, err.count("2 of 2 in the log")) == (0, 1)
    assert "5 requests arrived" in out
    begun = starts_of(log)[0].head.data["started"]
    code, out, err = command("incident", "log", "--from", iso(begun), "-o", "before")
    assert (code, err.count("1 of 2 in the log")) == (0, 1)
    assert "3 requests arrived" in out
    assert len((tmp_path / "before" / "trace.jsonl").read_text().splitlines()) == 3
    code, out, err = command("incident", "log", "--to", iso(begun + 1e6), "-o", "to")
    assert "2 of 2 in the log" in err


def iso(unix_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(unix_s, UTC).isoformat()


def test_damage_within_a_start_is_an_error_and_not_a_killed_program(
    command: Command, tmp_path: Path
) -> None:
    serve(tmp_path, 2)
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    (tmp_path / "log").write_bytes(b"".join([*lines[:5], b"{damaged\n", *lines[5:]]))
    code, _, err = command("audit", "log")
    assert (code, "log:6: this is not a line of an event log" in err) == (2, True)
    (tmp_path / "log").write_bytes(b"".join([*lines, b"{damaged\n"]))
    assert command("audit", "log")[0] == 2


def test_a_program_killed_between_a_fact_and_its_decisions_made_no_mistake(tmp_path: Path) -> None:
    serve(tmp_path, 2)
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    place = max(at for at, line in enumerate(lines) if b'"request.arrived"' in line)
    (tmp_path / "log").write_bytes(b"".join(lines[: place + 1]))
    report = audit(tmp_path / "log")
    assert (report.difference, report.cut) == ("", True)
    (tmp_path / "log").write_bytes(b"".join([*lines[: place + 1], *lines[place + 3 :]]))
    assert "a decision that the log does not have" in audit(tmp_path / "log").difference


def test_a_log_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    held = (
        "import sys; from pathlib import Path\n"
        "from windtunnel.live.event_log import EventLogFile\n"
        "log = EventLogFile(Path(sys.argv[1]), {}); log.open(); print(flush=True); input()\n"
    )
    command = [sys.executable, "-c", held, str(path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=dict(os.environ), **pipes) as other:
        assert other.stdout is not None
        other.stdout.readline()
        before = path.read_bytes()
        mine = EventLogFile(path, {})
        with pytest.raises(OutputError, match="another process writes this event log"):
            mine.open()
        mine.close()
        assert path.read_bytes() == before
        other.kill()
    mine = EventLogFile(path, {})
    mine.open()
    mine.close()
    assert path.read_bytes().startswith(before)


def row(number: int) -> TraceRow:
    return TraceRow(float(number), 10, 5, str(number), "t", "s", "m" * 900, "completed", "", 1)


def traced(folder: Path) -> list[int]:
    """The ids of all rows, oldest file first."""
    files = sorted(folder.iterdir())
    return [int(json.loads(line)["id"]) for one in files for line in one.read_text().splitlines()]


def test_a_trace_goes_on_where_another_process_has_its_next_file(tmp_path: Path) -> None:
    trace = RequestTrace(tmp_path, 64 << 10, 16, b"")
    assert not contents(tmp_path)  # a start without a request leaves no empty file
    for number in range(200):
        if number == 30:
            (tmp_path / "trace-000002.jsonl").touch()
            RequestTrace(tmp_path, 64 << 10, 16, b"").close()
        trace.add(row(number))
        trace.flush()
    trace.close()
    assert traced(tmp_path) == list(range(200))
    assert trace.lost == 0
    assert [name for name, data in contents(tmp_path).items() if not data] == ["trace-000002.jsonl"]


def test_empty_files_do_not_take_the_place_of_kept_ones(tmp_path: Path) -> None:
    for number in range(1, 6):
        full = b"{}\n" if number < 3 else b""
        (tmp_path / f"trace-{number:06d}.jsonl").write_bytes(full)
    trace = RequestTrace(tmp_path, 64 << 10, 3, b"")
    trace.add(row(1))
    trace.close()
    assert {"trace-000001.jsonl", "trace-000002.jsonl", "trace-000006.jsonl"} <= set(
        contents(tmp_path)
    )
    again = RequestTrace(tmp_path, 64 << 10, 3, b"")
    again.add(row(2))
    again.close()
    left = [name for name, data in contents(tmp_path).items() if data]
    assert sorted(left) == [f"trace-{number:06d}.jsonl" for number in (2, 6, 7)]


def test_a_trace_whose_folder_is_away_is_said_once_and_goes_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "trace"
    trace = RequestTrace(folder, 64 << 10, 16, b"")
    folder.rmdir()
    folder.write_bytes(b"no folder")
    for number in range(5):
        trace.add(row(number))
        trace.flush()
    assert trace.lost == 5
    folder.unlink()
    for number in range(5, 9):
        trace.add(row(number))
        trace.flush()
    trace.close()
    assert traced(folder) == [5, 6, 7, 8]
    assert trace.lost == 5
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"the trace in {folder} cannot be written: File exists; its lines are lost",
        f"the trace in {folder} is written again; 5 lines were lost",
    ]


class SmallDisk:
    """A file that takes so many bytes, and then no more."""

    def __init__(self, file: IO[bytes], room: int) -> None:
        self.room = room
        self.name = file.name
        self.fileno = file.fileno
        self.close = file.close
        self._file = file

    def write(self, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        took = self._file.write(data[: self.room])
        self.room -= took
        return took


def test_a_batch_is_written_whole_or_not_at_all_and_lost_lines_are_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk: Any = SmallDisk((tmp_path / "file").open("wb", buffering=0), 25)
    lines = LineFile("the file", lambda: disk, LOG)
    lines.start()
    for number in range(6):
        if number == 4:
            disk.room = 1000
        lines.add(b"%d aaaaaaa\n" % number)
        lines.flush()
    lines.close()
    written = [line[:1] for line in (tmp_path / "file").read_text().splitlines()]
    assert written == ["0", "1", "4", "5"]
    assert lines.lost == 2
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the file cannot be written: No space left on device; its lines are lost",
        "the file is written again; 2 lines were lost",
    ]
