"""A run's folder and file appear whole or not at all, and leave nothing else behind."""

import json
import os
from pathlib import Path

import pytest

from tests.twin.runs import one_server
from windtunnel.analysis import run_folder as contents
from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.system.files import DRAFT, READY, Draft
from windtunnel.report.files.folder import RunFolder, WholeFile, result_bytes
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import load_text

RESULT = {"name": "a", "latency": {"ttft": {"mean": None}}}
OPTIONAL = (contents.EVENTS, contents.CONTROL)
FILES = sorted(name for name in contents.ALL if name not in OPTIONAL)


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def fill(folder: RunFolder, *sets: str) -> Run:
    plan = load_text(one_server(), sets=sets)
    done = run(plan, rows=folder.rows())
    folder.finish(done)
    return done


def test_a_folder_is_filled_when_the_run_is_over(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a-1"
    with RunFolder(path) as folder:
        assert [name for name in everything(path) if not name.startswith(DRAFT)] == []
        done = fill(folder)
    assert everything(path) == FILES
    assert (path / "result.json").read_bytes() == result_bytes(done.result)
    assert json.loads((path / "result.json").read_text()) == done.result
    scenario = json.loads((path / "scenario.json").read_text())
    assert scenario == {**json.loads(json.dumps(done.plan.data())), "by_chance": False}


def test_a_run_that_fails_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "runs" / "deep" / "a-1"):
        raise KeyboardInterrupt
    assert everything(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "mine"):
        raise KeyboardInterrupt
    assert everything(tmp_path) == ["mine"]


def test_a_run_that_fails_leaves_the_results_of_the_one_before(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        fill(folder)
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path) as folder:
        raise KeyboardInterrupt
    assert everything(tmp_path) == FILES
    with RunFolder(tmp_path) as folder:
        fill(folder, "name=b")
    assert everything(tmp_path) == FILES
    assert json.loads((tmp_path / "result.json").read_text())["name"] == "b"


def test_a_folder_holds_the_files_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("mine")
    (tmp_path / "kept").mkdir()
    with RunFolder(tmp_path) as folder:
        plan = load_text(one_server())
        folder.finish(run(plan, rows=folder.rows(), events=folder.events()))
    foreign = ["kept", "notes.jsonl"]
    assert everything(tmp_path) == sorted([*FILES, contents.EVENTS, *foreign])
    with RunFolder(tmp_path) as folder:
        fill(folder)
    assert everything(tmp_path) == sorted([*FILES, *foreign])
    assert (tmp_path / "notes.jsonl").read_text() == "mine"


def test_a_run_that_fails_keeps_the_events_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / contents.EVENTS).write_text("{}\n")
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path):
        raise KeyboardInterrupt
    assert everything(tmp_path) == [contents.EVENTS]


def test_a_folder_is_exchanged_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder(path) as folder:
        fill(folder)
    path.chmod(0o750)
    reader = os.open(path, os.O_RDONLY)
    before = sorted(os.listdir(reader))
    with RunFolder(path) as folder:
        fill(folder, "name=b")
        # A reader that has the old folder open still has all of it.
        assert sorted(os.listdir(reader)) == before
    os.close(reader)
    assert path.stat().st_mode & 0o777 == 0o750
    assert everything(tmp_path) == sorted(["run", *(f"run/{name}" for name in FILES)])


def test_a_killed_process_leaves_a_draft_that_the_next_run_removes(tmp_path: Path) -> None:
    dead, living = (Draft(tmp_path) for _ in range(2))
    assert dead._lock is not None
    os.close(dead._lock)  # as the system does when a process is killed
    mine = tmp_path / f"{DRAFT}notes.txt"
    mine.write_text("a file is no draft")
    with RunFolder(tmp_path / "run") as folder:
        assert not dead.path.exists()
        assert living.path.exists()
        fill(folder)
    assert everything(tmp_path / "run") == FILES
    living.remove()
    assert mine.exists()


def test_files_of_others_stay_and_a_kill_while_files_are_replaced_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path) as folder:
        plan = load_text(one_server())
        folder.finish(run(plan, rows=folder.rows(), events=folder.events()))
    (tmp_path / "notes.txt").write_text("mine")
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if target.name == contents.RESULT:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path) as folder:
        fill(folder, "name=b")
    monkeypatch.undo()
    with pytest.raises(InputError, match="replacing these files"):
        contents.result_of(tmp_path)
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path):
        raise KeyboardInterrupt
    assert everything(tmp_path) == sorted([*FILES, "notes.txt"])
    assert contents.result_of(tmp_path)["name"] == "b"
    assert json.loads((tmp_path / "scenario.json").read_text())["name"] == "b"


def test_a_list_of_files_to_delete_reaches_no_other_files(tmp_path: Path) -> None:
    path = tmp_path / "run"
    outside, notes = tmp_path / "result.json", path / "notes.txt"
    listed = [str(outside), "../result.json", "notes.txt", "", ".", "report.html"]
    for number, stale in enumerate((json.dumps(listed), "no list", "[1]")):
        ready = path / f"{READY}{number}"
        ready.mkdir(parents=True)
        (ready / ".stale").write_text(stale)
    (path / f"{READY}notes").write_text("a file is no folder")
    for file in (outside, notes, path / contents.REPORT):
        file.write_text("before")
    with RunFolder(path):
        assert everything(path) == [f"{READY}notes", "notes.txt"]
    assert outside.exists()


def test_two_runs_into_one_folder_leave_one_of_them_whole(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder(path) as one, RunFolder(path) as other:
        fill(one, "name=a")
        fill(other, "name=b")
    assert everything(tmp_path) == sorted(["run", *(f"run/{name}" for name in FILES)])
    for name in ("result.json", "scenario.json"):
        assert json.loads((path / name).read_text())["name"] == "b"


def test_every_name_of_a_file_is_in_the_list() -> None:
    names = [
        value
        for name, value in vars(contents).items()
        if name.isupper() and isinstance(value, str) and " " not in value
    ]
    assert names == list(contents.ALL)


@pytest.mark.parametrize("place", ["file", "file/below", "file/much/below"])
def test_a_folder_where_none_can_be_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("content")
    with pytest.raises(OutputError, match=r": (cannot|is a file).* \(choose another folder"):
        RunFolder(tmp_path / place)
    assert everything(tmp_path) == ["file"]


def test_half_a_path_is_taken_back(tmp_path: Path) -> None:
    too_long = "x" * 300
    with pytest.raises(OutputError, match="file name too long"):
        RunFolder(tmp_path / "new" / too_long)
    assert everything(tmp_path) == []


def test_a_file_replaces_another_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")
    with WholeFile(path, "--json") as file:
        assert path.read_text() == "before"
        file.finish(result_bytes(RESULT))
    assert everything(tmp_path) == ["out.json"]
    assert path.read_bytes() == result_bytes(RESULT)


def test_a_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    with WholeFile(tmp_path / "out.json", "--json") as file:
        file.finish(result_bytes(RESULT))
    modes = [(tmp_path / name).stat().st_mode for name in ("other", "out.json")]
    assert modes[0] == modes[1]


def test_a_link_is_followed_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    (tmp_path / "real.json").write_text("before")
    with WholeFile(tmp_path / "link.json", "--json") as file:
        file.finish(result_bytes(RESULT))
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_bytes() == result_bytes(RESULT)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with WholeFile(pipe, "--json") as file:
        file.finish(result_bytes(RESULT))
    assert os.read(reader, 1 << 16) == result_bytes(RESULT)
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("place", ["", "file/below.json", "missing/out.json"])
def test_a_file_where_none_can_be_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("content")
    with pytest.raises(OutputError, match=r"cannot write results: .* \(choose another file"):
        WholeFile(tmp_path / place, "--json")
    assert everything(tmp_path) == ["file"]
