"""Writes a run's folder, all of it or nothing: files get their names when they are whole."""

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.report.requests import RequestRows
from windtunnel.twin.scenario.plan import ScenarioPlan

RESULT = "result.json"
REQUESTS = "requests.parquet"


def result_bytes(result: dict[str, Any]) -> bytes:
    """The result as JSON, the same bytes for the same result."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that nobody ever sees half of it."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> OutputError:
    reason = (error.strerror or str(error)).lower()
    return OutputError(
        f"cannot write results: {reason}", where=str(path), hint="choose another folder with -o"
    )


class RunFolder:
    """The folder of one run. It is made at once, so that a bad place is found before the work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._draft = Path(tempfile.mkdtemp(dir=path, prefix=".draft-"))
        except OSError as error:
            raise _cannot_write(path, error) from error
        self._rows: RequestRows | None = None

    def __enter__(self) -> "RunFolder":
        return self

    def rows(self, plan: ScenarioPlan) -> RequestRows:
        """A sink for the rows of this run's requests."""
        self._rows = RequestRows(self._draft / REQUESTS, plan)
        return self._rows

    def finish(self, result: dict[str, Any]) -> None:
        """Puts the finished files in place."""
        try:
            if self._rows is not None:
                self._rows.close()
            (self._draft / RESULT).write_bytes(result_bytes(result))
            for file in sorted(self._draft.iterdir()):
                file.replace(self.path / file.name)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)
        if kind is not None:
            _remove_if_empty(self.path)


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return
