"""Writes the files of a run all or nothing: a file gets its name only when complete."""

import errno
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

import msgspec

from windtunnel._start import IS_PROGRAM
from windtunnel.analysis import run_folder
from windtunnel.core.errors import OutputError
from windtunnel.core.system.files import DRAFT, READY, Draft, alone_in, writing
from windtunnel.core.system.memory import available_bytes
from windtunnel.core.telemetry import RunLog
from windtunnel.report.files.control_log import ControlLog
from windtunnel.report.files.requests import RequestRows
from windtunnel.report.files.timeline import write_timeline, write_token_gaps
from windtunnel.twin.ceiling import WRITING_BYTES
from windtunnel.twin.results.chance import draws
from windtunnel.twin.run import Run

STALE = ".stale"
"""Lists, in a folder of finished files, the old files to delete."""
MOST_STALE_BYTES = 1 << 16
ANOTHER_FOLDER = "choose another folder with -o"


def result_bytes(result: Any) -> bytes:
    """The result as JSON; the same result gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


class WholeFolder:
    """A folder whose files appear together. An unusable path is reported at once, before the run.

    Files are written beside it, and the finished folder replaces the old one in a single step.
    `owned` are the files that it may have: those not written this time are from an earlier run and
    are deleted. Other files stay. If there are any, or if the system has no call to exchange
    folders, files are replaced one by one instead; if the process is killed meanwhile, the next one
    finishes that.
    """

    def __init__(self, path: Path, owned: Sequence[str] = ()) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))
        self._owned = owned
        self._made: list[Path] = []
        try:
            with self._place():
                self._refuse_a_file()
                self._refuse_below_a_file()
                self._made += (one for one in self._real.parents if not one.exists())
                self._real.parent.mkdir(parents=True, exist_ok=True)
                self._drafts = self._beside()
                with alone_in(self._real):
                    self._finish_replacing()
                self._draft = self._drafts.path / self._real.name
                self._draft.mkdir()
        except OutputError:
            self._unmake()
            raise

    def __enter__(self) -> Self:
        return self

    def draft(self, name: str) -> Path:
        """Where to write a file that is too large for `put`, before calling it."""
        return self._draft / name

    def put(self, files: Mapping[str, bytes]) -> None:
        """Writes files by name, and moves them and all earlier drafts into place."""
        with self._place():
            for name, content in files.items():
                (self._draft / name).write_bytes(content)
            with alone_in(self._real):
                if not (self._is_new() or self._is_exchanged()):
                    self._replace_files()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drafts.remove()
        if kind is not None:
            self._unmake()
        if isinstance(error, OutputError) and error.where is not None:
            draft = Path(error.where)
            if draft.is_relative_to(self._draft):  # name the folder as the user did
                where = self.path / draft.relative_to(self._draft)
                raise OutputError(error.what, where=str(where), hint=ANOTHER_FOLDER) from error

    def _beside(self) -> Draft:
        """A draft folder beside this one; inside it if it is a mount or its parent is not
        writable."""
        if not self._real.exists():
            return Draft(self._real.parent)
        if not os.access(self._real, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if self._real.is_mount():
            return Draft(self._real)
        try:
            return Draft(self._real.parent)
        except OSError:
            return Draft(self._real)

    def _is_new(self) -> bool:
        """Moves the folder into place if none exists; returns whether it did."""
        if self._real.exists():
            return False
        try:
            self._draft.rename(self._real)
        except OSError:
            return False  # another run came first
        return True

    def _is_exchanged(self) -> bool:
        """Exchanges the folder in one step with an old one that has only owned files; returns
        whether it did."""
        names = {*self._owned, *(file.name for file in self._draft.iterdir())}
        with os.scandir(self._real) as entries:
            if not all(one.name in names and one.is_file(follow_symlinks=False) for one in entries):
                return False
        if self._real.samefile(Path.cwd()):
            return False  # the working directory would lose its name
        shutil.copymode(self._real, self._draft)
        return exchange(self._draft, self._real)

    def _replace_files(self) -> None:
        for file in self._draft.iterdir():
            if (self._real / file.name).is_dir():
                (self._real / file.name).open("wb")  # raises before anything is replaced
        stale = [name for name in self._owned if not (self._draft / name).exists()]
        (self._draft / STALE).write_bytes(msgspec.json.encode(stale))
        self._finish_replacing()
        self._draft.rename(self._real / self._drafts.path.name.replace(DRAFT, READY))
        self._finish_replacing()

    def _finish_replacing(self) -> None:
        """Moves complete files into place, including those of a process that was killed.

        The list of files to delete is untrusted: only owned files of this folder are deleted.
        """
        if not self._real.is_dir():
            return
        found = sorted(one for one in self._real.iterdir() if one.name.startswith(READY))
        for ready in (one for one in found if one.is_dir() and not one.is_symlink()):
            for name in _listed(ready / STALE):
                old = self._real / name
                if name in self._owned and (old.is_file() or old.is_symlink()):
                    old.unlink()
            for file in sorted(ready.iterdir()):
                if file.name != STALE:
                    file.replace(self._real / file.name)
            shutil.rmtree(ready)

    def _place(self) -> Any:
        return writing(self.path, ANOTHER_FOLDER)

    def _refuse_a_file(self) -> None:
        if self.path.is_file():
            what = "is a file, not a folder"
            raise OutputError(what, where=str(self.path), hint=ANOTHER_FOLDER)

    def _refuse_below_a_file(self) -> None:
        above = next(one for one in self._real.parents if one.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _unmake(self) -> None:
        """Removes the folders that were created for this run and are empty."""
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()


def _listed(stale: Path) -> list[str]:
    """The names in a list of files to delete; empty if it is missing or malformed."""
    if stale.is_symlink() or not stale.is_file() or stale.stat().st_size > MOST_STALE_BYTES:
        return []
    try:
        return msgspec.json.decode(stale.read_bytes(), type=list[str])
    except msgspec.DecodeError:
        return []


def exchange(one: Path, other: Path) -> bool:
    """Swaps two folders in one step; returns False if the system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        call = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(call(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)


NEEDLESS = ("pandas", "pyarrow._s3fs", "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs")
"""What pyarrow imports if it is there: 0.2 s for pandas, some milliseconds for remote storage."""


class _Without:
    """Import hook that hides modules."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in NEEDLESS:
            raise ModuleNotFoundError(name, name=name)


def _import_arrow() -> None:
    """Imports pyarrow; the program does it without modules that it has no use for."""
    finder = _Without()
    hides = IS_PROGRAM and "pandas" not in sys.modules
    no_tls = ModuleType("ssl")  # asked for the certificates of remote storage
    no_tls.__dict__["get_default_verify_paths"] = lambda: SimpleNamespace(cafile=None, capath=None)
    if hides:
        sys.meta_path.insert(0, finder)
        sys.modules.setdefault("ssl", no_tls)
    import pyarrow.parquet

    if hides:
        pyarrow.array([0.0])  # the first array looks for pandas
        sys.meta_path.remove(finder)
        if sys.modules["ssl"] is no_tls:
            del sys.modules["ssl"]


class RunFolder(WholeFolder):
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        # Before the run, since there is no time after Ctrl-C; before there is a draft, since it may
        # end the process if memory is short, as writing does.
        _import_arrow()
        left = available_bytes()
        if left is not None and left < WRITING_BYTES:
            raise MemoryError
        super().__init__(path, run_folder.ALL)
        self._rows: RequestRows | None = None
        self._events: RunLog | None = None
        self._control: ControlLog | None = None

    def rows(self) -> RequestRows:
        """A sink for the rows of this run's requests."""
        self._rows = RequestRows(self._draft / run_folder.REQUESTS)
        return self._rows

    def events(self) -> RunLog:
        """A sink for the events of this run."""
        self._events = RunLog(self._draft / run_folder.EVENTS)
        return self._events

    def control(self) -> ControlLog:
        """A sink for the control-plane events of this run."""
        self._control = ControlLog(self._draft / run_folder.CONTROL)
        return self._control

    def _close(self) -> None:
        """Closes the logs, which writes their last lines."""
        for sink in (self._events, self._control):
            if sink is not None:
                sink.close()
        self._events = self._control = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._close()
        super().__exit__(kind, error, trace)

    def finish(self, run: Run, *, page: bool = True) -> None:
        """Moves the finished files into place, with the report if it is wanted.

        `windtunnel report` can create it later.
        """
        assert self._rows is not None, "a folder without requests has no report"
        draft = self._draft
        with self._place():
            self._rows.close()
            self._close()
            (draft / run_folder.RESULT).write_bytes(result_bytes(run.result))
            (draft / run_folder.SCENARIO).write_bytes(
                result_bytes({**run.plan.data(), "by_chance": draws(run.plan)})
            )
            write_timeline(draft / run_folder.TIMELINE, run.plan, run.timeline)
            write_token_gaps(draft / run_folder.TOKEN_GAPS, run.token_gaps)
            self.put({run_folder.REPORT: self._page()} if page else {})

    def _page(self) -> bytes:
        from windtunnel.report.page.render import report_page

        return report_page(self._draft).encode()


class WholeFile:
    """A file that appears complete or not at all; an unusable path is reported at once."""

    def __init__(self, path: Path, option: str) -> None:
        self._path = path
        self._option = option
        self._draft: Draft | None = None
        with self._place():
            if path.is_dir():
                path.open("wb")  # raises
            # A device or pipe is written to directly; only a file can replace another.
            if path.is_file() or not path.exists():
                self._draft = Draft(Path(os.path.realpath(path)).parent)

    def __enter__(self) -> Self:
        return self

    def finish(self, content: bytes) -> None:
        """Moves the finished file into place."""
        with self._place():
            if self._draft is None:
                self._path.write_bytes(content)
                return
            whole = self._draft.path / "whole"
            whole.write_bytes(content)
            whole.replace(os.path.realpath(self._path))

    def __exit__(self, *_: object) -> None:
        if self._draft is not None:
            self._draft.remove()

    def _place(self) -> Any:
        return writing(self._path, f"choose another file with {self._option}")
