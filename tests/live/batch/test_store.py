"""The files of a run: whatever a crash leaves of them, whole lines are kept and nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import OutputError
from windtunnel.live.batch.store import (
    JOURNAL,
    VERSION,
    AppendedFile,
    CellRecord,
    Header,
    Store,
    errors_path,
    journal_path,
    line_id,
    open_store,
)
from windtunnel.live.wire.keys import Keys

NO_KEYS = Keys({})


def header(rows: int) -> Header:
    return Header(JOURNAL, VERSION, "input", "work", rows)


def crash(store: Store) -> None:
    """Lets go of the files and does nothing else."""
    for file in store._files():
        file.close()


@given(
    events=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["cell", "done", "bad", "up"]))),
    cuts=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
)
def test_any_crash_leaves_a_beginning_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[int, str]],
    cuts: tuple[int, int, int],
) -> None:
    output = tmp_path_factory.mktemp("run") / "out.jsonl"
    store, _ = open_store(output, header(10), NO_KEYS, resume=False)
    over: dict[int, str] = {}
    for number, (row, what) in enumerate(events):
        if row in over:
            continue
        if what == "cell":
            store.keep_cell(CellRecord(row, f"c{number}", "text\n\x00é"))
        elif what == "done":
            store.finish_row({"id": line_id(row), "custom_id": "x", "error": None})
            over[row] = what
        else:
            code = "gave_up" if what == "up" else "http_400"
            store.list_error({"id": line_id(row), "error": {"code": code}})
            over[row] = what
    crash(store)
    places = (output, errors_path(output), journal_path(output))
    first = journal_path(output).read_bytes().index(b"\n") + 1
    expected = {}
    for path, cut in zip(places, cuts, strict=True):
        if path.exists():
            least = first if path == places[2] else 0
            size = max(least, min(cut % (path.stat().st_size + 1), path.stat().st_size))
            os.truncate(path, size)
            expected[path] = path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1]
    store, resumed = open_store(output, header(10), NO_KEYS, resume=True)
    crash(store)
    assert output.read_bytes() == expected[output]
    finished = expected[output].count(b"\n")
    dropped = expected.get(places[1], b"").count(b"http_400")
    assert (resumed.finished, resumed.dropped) == (finished, dropped)
    assert sum(resumed.is_over) == finished + dropped
    kept = expected[places[2]].splitlines()[1:]
    assert sum(map(len, resumed.cells.values())) <= len(kept)
    assert not any(resumed.is_over[row] for row in resumed.cells)


def test_a_line_that_does_not_fit_leaves_nothing_of_itself(tmp_path: Path) -> None:
    """A limit on the size of files is a disk that is full at that size."""
    import resource

    file = AppendedFile(tmp_path / "out.jsonl")
    file.append(b"a" * 999 + b"\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        with pytest.raises(OutputError, match="cannot write: file too large"):
            file.append(b"b" * 999 + b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "out.jsonl").read_bytes() == b"a" * 999 + b"\n"
    file.append(b"c\n")
    file.close()
    assert (tmp_path / "out.jsonl").stat().st_size == 1002


@pytest.mark.parametrize("name", ["nowhere/out.jsonl", "."])
def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        open_store(tmp_path / name, header(1), NO_KEYS, resume=False)


def test_an_output_that_is_taken_away_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were written to the one without a name were lost."""
    output = tmp_path / "out.jsonl"
    first, _ = open_store(output, header(1), NO_KEYS, resume=False)
    lock = AppendedFile.lock
    left: list[Store] = [first]

    def lock_late(file: AppendedFile) -> None:
        if left:
            left.pop().close(is_complete=False)
        lock(file)

    monkeypatch.setattr(AppendedFile, "lock", lock_late)
    second, _ = open_store(output, header(1), NO_KEYS, resume=True)
    second.finish_row({"id": line_id(0), "custom_id": "x", "error": None})
    second.close(is_complete=True)
    assert output.read_bytes().count(b"\n") == 1
    assert journal_path(output).exists()


def test_names_beside_the_output() -> None:
    assert errors_path(Path("a/b.jsonl")) == Path("a/b.errors.jsonl")
    assert errors_path(Path("b")) == Path("b.errors.jsonl")
    assert journal_path(Path("a/b.jsonl")) == Path("a/b.jsonl.journal")
