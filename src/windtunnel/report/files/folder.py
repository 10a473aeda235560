"""Writes what a run leaves, all of it or nothing: a file gets its name when it is whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from windtunnel.analysis import run_folder
from windtunnel.core.errors import OutputError
from windtunnel.core.files import DRAFT
from windtunnel.core.telemetry import JsonlSink
from windtunnel.report.files.control_log import ControlLog
from windtunnel.report.files.requests import RequestRows
from windtunnel.report.files.timeline import write_timeline, write_token_gaps
from windtunnel.twin.run import Run

ANOTHER_FOLDER = "choose another folder with -o"


def result_bytes(result: Any) -> bytes:
    """The result as JSON, the same bytes for the same result."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


@contextmanager
def _sentences(path: Path, hint: str) -> Iterator[None]:
    """Turns what the system says of a place into a sentence."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write results: {reason}", where=str(path), hint=hint) from error


class WholeFolder:
    """A folder whose files appear together. It is made at once: a bad place is found at once.

    `owned` are the files that it may have. Those that are not written this time are taken away,
    for they are of an earlier run; files of other names are not touched.
    """

    def __init__(self, path: Path, owned: Sequence[str] = ()) -> None:
        self.path = path
        self._owned = owned
        self._made: list[Path] = []
        try:
            with self._place():
                self._refuse_a_file()
                self._made += (folder for folder in path.parents if not folder.exists())
                if not path.exists():
                    self._made.insert(0, path)
                path.mkdir(parents=True, exist_ok=True)
                self._draft = Path(tempfile.mkdtemp(dir=path, prefix=DRAFT))
        except OutputError:
            self._unmake()
            raise

    def __enter__(self) -> Self:
        return self

    def put(self, files: Mapping[str, bytes]) -> None:
        """Writes files by name, and puts them and all that was drafted before in place."""
        with self._place():
            for name, content in files.items():
                (self._draft / name).write_bytes(content)
            finished = sorted(self._draft.iterdir())
            for file in finished:
                if (self.path / file.name).is_dir():
                    (self.path / file.name).open(
                        "wb"
                    )  # says that it cannot, before any is replaced
            for file in finished:
                file.replace(self.path / file.name)
            names = [file.name for file in finished]
            for name in self._owned:
                old = self.path / name
                if name not in names and (old.is_file() or old.is_symlink()):
                    old.unlink()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)
        if kind is not None:
            self._unmake()

    def _place(self) -> Any:
        return _sentences(self.path, ANOTHER_FOLDER)

    def _refuse_a_file(self) -> None:
        if self.path.is_file():
            what = "is a file, not a folder"
            raise OutputError(what, where=str(self.path), hint=ANOTHER_FOLDER)

    def _unmake(self) -> None:
        """Takes away the folders that were made for this run, as far as nothing else is in them."""
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()


class RunFolder(WholeFolder):
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, run_folder.ALL)
        self._rows: RequestRows | None = None
        self._events: JsonlSink | None = None
        self._control: ControlLog | None = None

    def rows(self) -> RequestRows:
        """A sink for the rows of this run's requests."""
        self._rows = RequestRows(self._draft / run_folder.REQUESTS)
        return self._rows

    def events(self) -> JsonlSink:
        """A sink for the decisions of this run."""
        self._events = JsonlSink(self._draft / run_folder.EVENTS)
        return self._events

    def control(self) -> ControlLog:
        """A sink for what this run's control plane does."""
        self._control = ControlLog(self._draft / run_folder.CONTROL)
        return self._control

    def _close(self) -> None:
        """Closes the logs, whose last lines are written then."""
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

    def finish(self, run: Run) -> None:
        """Puts the finished files in place, and the report that is made from them."""
        from windtunnel.report.page.render import report_page

        assert self._rows is not None, "a folder without requests has no report"
        draft = self._draft
        with self._place():
            self._rows.close()
            self._close()
            (draft / run_folder.RESULT).write_bytes(result_bytes(run.result))
            (draft / run_folder.SCENARIO).write_bytes(result_bytes(run.plan.data()))
            write_timeline(draft / run_folder.TIMELINE, run.plan, run.timeline)
            write_token_gaps(draft / run_folder.TOKEN_GAPS, run.token_gaps)
            self.put({run_folder.REPORT: report_page(draft).encode()})


class WholeFile:
    """A file that is there whole or not at all; its place is tried at once, as a folder's is."""

    def __init__(self, path: Path, option: str) -> None:
        self._path = path
        self._option = option
        self._draft: Path | None = None
        with self._place():
            if path.is_dir():
                path.open("wb")  # says that it cannot
            # A device or a pipe is written to; only a file can be put in place of another.
            if path.is_file() or not path.exists():
                self._draft = Path(
                    tempfile.mkdtemp(dir=Path(os.path.realpath(path)).parent, prefix=DRAFT)
                )

    def __enter__(self) -> Self:
        return self

    def finish(self, content: bytes) -> None:
        """Puts the finished file in place."""
        with self._place():
            if self._draft is None:
                self._path.write_bytes(content)
                return
            whole = self._draft / "whole"
            whole.write_bytes(content)
            whole.replace(os.path.realpath(self._path))

    def __exit__(self, *_: object) -> None:
        if self._draft is not None:
            shutil.rmtree(self._draft, ignore_errors=True)

    def _place(self) -> Any:
        return _sentences(self._path, f"choose another file with {self._option}")
