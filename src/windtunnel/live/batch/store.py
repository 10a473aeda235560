"""The result files of a batch, so written that it can resume after a kill, crash or full disk.

There are three files. Only whole lines are appended, each with one write as soon as it is known:

- the output: a line for each finished row, in OpenAI's Batch format;
- the errors, beside it: a line for each row that was dropped or given up;
- the journal, beside it: the identity of the run, and the finished columns of unfinished rows.

A line torn by a crash is cut off when the run is resumed. Lines are synced to disk in groups.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from windtunnel.core.errors import OutputError, os_reason
from windtunnel.live.wire.keys import Keys

JOURNAL = "windtunnel batch"
VERSION = 1
_PIECE = 1 << 16
Read = TypeVar("Read")

GAVE_UP = "gave_up"
"""The code of rows that the next run retries; every other code is final."""


class Header(msgspec.Struct, frozen=True):
    """The identity of a run; a resumed run must match it."""

    journal: str
    version: int
    input_sha256: str
    work_sha256: str
    rows: int


class CellRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished column of a row that is not finished."""

    row: int
    column: str
    value: Any
    response: dict[str, Any] | None = None


class _JournalLine(msgspec.Struct):
    """The part of an output or error line that is read on resume."""

    id: str
    error: dict[str, Any] | None = None


def errors_path(output: Path) -> Path:
    return output.with_name(f"{output.stem}.errors{output.suffix or '.jsonl'}")


def journal_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.journal")


def line_id(row: int) -> str:
    return f"batch_req_{row + 1}"


def _row_of(id: str) -> int:  # noqa: A002 - an id is what it is
    number = id.removeprefix("batch_req_")
    return int(number) - 1 if number.isdecimal() and len(number) < 16 else -1


class AppendedFile:
    """A file to which only whole lines are appended."""

    def __init__(self, path: Path, how: int = 0) -> None:
        self.path: Final = path
        self._file: Final = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | how, 0o644)
        self.size = os.fstat(self._file).st_size
        self._synced = self.size

    def lock(self) -> None:
        """Locks the file against a second run for as long as this process lives."""
        try:
            import fcntl
        except ImportError:  # a system without such locks
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError("another run is writing it", where=str(self.path)) from None
        self.size = self._synced = os.fstat(self._file).st_size

    @property
    def is_in_place(self) -> bool:
        """Whether the file still has its name; another run may have removed or replaced it."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._file))

    def append(self, line: bytes) -> None:
        """Appends one whole line, or nothing."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self.cut(self.size)
            raise _failed(error, self.path) from error
        self.size += len(line)

    def cut(self, size: int) -> None:
        """Truncates the file to a size; if that fails too, the next resume does it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, size)
            self.size = self._synced = size

    @property
    def is_synced(self) -> bool:
        return self._synced == self.size

    def sync(self) -> None:
        """Waits until everything is on disk."""
        size = self.size
        try:
            os.fsync(self._file)
        except OSError as error:
            raise _failed(error, self.path) from error
        self._synced = size

    def close(self) -> None:
        os.close(self._file)


class Store:
    """The files of one run, open for appending."""

    def __init__(self, output: AppendedFile, header: Header, keys: Keys) -> None:
        self.output: Final = output
        self.errors: Final = errors_path(output.path)
        self._header: Final = msgspec.json.encode(header) + b"\n"
        self._journal = AppendedFile(journal_path(output.path))
        self._errors: AppendedFile | None = None
        self._redact: Final = keys.redact
        self._encode: Final = msgspec.json.Encoder().encode

    def finish_row(self, line: dict[str, Any]) -> None:
        self.output.append(self._line(line))

    def list_error(self, line: dict[str, Any]) -> None:
        if self._errors is None:
            self._errors = AppendedFile(self.errors)
        self._errors.append(self._line(line))

    def keep_cell(self, record: CellRecord) -> None:
        self._journal.append(self._line(record))

    def unsynced(self) -> list[AppendedFile]:
        return [file for file in self._files() if not file.is_synced]

    def close(self, *, is_complete: bool) -> None:
        """Syncs and closes the files; the journal's cells are dropped if the run is complete."""
        try:
            for file in self.unsynced():
                file.sync()
            if is_complete and self._journal.size > len(self._header):
                _replace(self._journal.path, [self._header])
            elif not is_complete and self._is_untouched():
                # It failed: the same command may be run again. The output, which is
                # locked, is removed last: a new one then has no journal beside it.
                self._journal.path.unlink()
                self.output.path.unlink()
        except OSError as error:
            raise _failed(error, self.output.path) from error
        finally:
            for file in self._files():
                file.close()

    def _is_untouched(self) -> bool:
        return (
            self.output.size == 0
            and self._journal.size == len(self._header)
            and not self.errors.exists()
        )

    def _line(self, value: object) -> bytes:
        return self._redact(self._encode(value)) + b"\n"

    def _files(self) -> list[AppendedFile]:
        return [file for file in (self.output, self._errors, self._journal) if file is not None]


class Resumed:
    """The state left by an earlier run: rows that are over, and finished columns of the others."""

    def __init__(self, rows: int) -> None:
        self.is_over = bytearray(rows)
        self.finished = 0
        self.dropped = 0
        self.cells: dict[int, list[CellRecord]] = {}


def open_store(output: Path, header: Header, keys: Keys, *, resume: bool) -> tuple[Store, Resumed]:
    """Opens the files of a run: new ones, or those of the run to resume."""
    resumed = Resumed(header.rows)
    file: AppendedFile | None = None
    try:
        if not (resume and output.exists()):
            file = _claim(output)
            _begin(output, header)
        else:
            file = _take(output)
            if file.size == 0 and not journal_path(output).exists():
                _begin(output, header)  # the run was killed before it began
            else:
                _go_on(file, header, resumed)
        return Store(file, header, keys), resumed
    except OSError as error:
        if file is not None:
            file.close()
        raise _failed(error, Path(error.filename or output)) from error
    except OutputError:
        if file is not None:
            file.close()
        raise


def _claim(output: Path) -> AppendedFile:
    """Creates the output; an existing file is an error."""
    try:
        file = AppendedFile(output, os.O_EXCL)
    except FileExistsError:
        hint = "--resume goes on with it; -o names another file"
        raise OutputError("already exists", where=str(output), hint=hint) from None
    file.lock()
    return file


def _take(output: Path) -> AppendedFile:
    """Opens and locks an existing output.

    A failed run deletes its output: if this process opened the file before that and locked it
    after, the file no longer has a name, and everything written to it would be lost. So it is
    opened again.
    """
    while True:
        file = AppendedFile(output)
        try:
            file.lock()
            if file.is_in_place:
                return file
        except OutputError:
            file.close()
            raise
        file.close()


def _begin(output: Path, header: Header) -> None:
    errors_path(output).unlink(missing_ok=True)
    _replace(journal_path(output), [msgspec.json.encode(header) + b"\n"])


def _go_on(output: AppendedFile, header: Header, resumed: Resumed) -> None:
    path = journal_path(output.path)
    if not path.exists():
        what = f"there is no {path.name} beside it, so it cannot be resumed"
        raise OutputError(what, where=str(output.path), hint="-o names another file")
    _check_header(path, header, output.path)
    output.cut(_whole_size(output.path))
    _read_output(output.path, resumed)
    _read_errors(errors_path(output.path), resumed)
    # The journal drops the cells of rows that are over.
    _read_journal(path, resumed)
    cells = [msgspec.json.encode(cell) + b"\n" for row in resumed.cells.values() for cell in row]
    _replace(path, [msgspec.json.encode(header) + b"\n", *cells])


def _failed(error: OSError, path: Path) -> OutputError:
    return OutputError(f"cannot write: {os_reason(error)}", where=str(path))


def _check_header(path: Path, wanted: Header, output: Path) -> None:
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    try:
        found = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError:
        raise OutputError("this is not a journal of a batch", where=str(path)) from None
    changed = ""
    if (found.journal, found.version) != (wanted.journal, wanted.version):
        changed = "it was written by another version of windtunnel"
    elif (found.input_sha256, found.rows) != (wanted.input_sha256, wanted.rows):
        changed = "the input has changed since"
    elif found.work_sha256 != wanted.work_sha256:
        changed = "what is asked has changed since: template, columns, model or --set"
    if changed:
        hint = "-o names another file for a new run"
        raise OutputError(f"cannot be resumed: {changed}", where=str(output), hint=hint)


def _whole_size(path: Path) -> int:
    """The size of the file's whole lines in bytes; the rest was torn by a crash."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _PIECE)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _whole_lines(path: Path, kind: type[Read], first: int = 1) -> Iterator[tuple[bytes, Read]]:
    """Each whole line from number `first` on, raw and decoded; a foreign line is an error."""
    decode = msgspec.json.Decoder(kind).decode
    left = _whole_size(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            left -= len(line)
            if left < 0:
                return
            if number < first:
                continue
            try:
                read = decode(line)
            except msgspec.MsgspecError:
                what = "this line was not written by a batch"
                hint = "take it out, or name another file with -o"
                raise OutputError(what, where=f"{path}:{number}", hint=hint) from None
            yield line, read


def _read_output(path: Path, resumed: Resumed) -> None:
    for _, line in _whole_lines(path, _JournalLine):
        row = _row_of(line.id)
        if 0 <= row < len(resumed.is_over) and not resumed.is_over[row]:
            resumed.is_over[row] = 1
            resumed.finished += 1


def _read_errors(path: Path, resumed: Resumed) -> None:
    """Marks dropped rows as over, and removes given-up rows from the list."""
    if not path.exists():
        return
    kept = []
    for raw, line in _whole_lines(path, _JournalLine):
        row = _row_of(line.id)
        code = (line.error or {}).get("code")
        if code == GAVE_UP or not 0 <= row < len(resumed.is_over) or resumed.is_over[row]:
            continue
        resumed.is_over[row] = 1
        resumed.dropped += 1
        kept.append(raw)
    if kept:
        _replace(path, kept)
    else:
        path.unlink()


def _read_journal(path: Path, resumed: Resumed) -> None:
    for _, record in _whole_lines(path, CellRecord, first=2):
        if 0 <= record.row < len(resumed.is_over) and not resumed.is_over[record.row]:
            resumed.cells.setdefault(record.row, []).append(record)


def _replace(path: Path, lines: list[bytes]) -> None:
    """Replaces a file by one with these lines, atomically."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
