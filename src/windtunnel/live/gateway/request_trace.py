"""The request trace of a gateway: one line per request, without prompts, for `windtunnel simulate`.

Sessions are named by keyed hashes, and prefixes by keys hashed with a secret of the process. Files
rotate by size, and the oldest are removed.
"""

import contextlib
import hashlib
import logging
import os
from pathlib import Path
from typing import IO, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.live.gateway.data_path.structs import TraceRow
from windtunnel.live.lines import LineFile

NAME: Final = "trace-{number:06d}.jsonl"
ROWS_TOGETHER: Final = 64
"""Rows that are encoded together."""


class RequestTrace:
    """Writes rows; when the disk is full, rows are lost and counted, nothing else."""

    def __init__(self, folder: Path, rotate_bytes: int, keep: int, secret: bytes) -> None:
        self.rows = 0
        self._folder: Final = folder
        self._rotate_bytes: Final = rotate_bytes
        self._keep: Final = keep
        self._secret: Final = secret
        self._encoder: Final = msgspec.json.Encoder()
        self._waiting: Final[list[TraceRow]] = []
        log = logging.getLogger("windtunnel.gateway")
        self._lines: Final = LineFile(f"the trace in {folder}", self._open, log)
        self._lines.start()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            numbers = [int(path.stem.removeprefix("trace-")) for path in self._files()]
        except OSError as error:
            raise OutputError(
                f"cannot write a trace: {error.strerror}", where=str(folder)
            ) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OutputError("cannot write a trace: the folder is read-only", where=str(folder))
        self._number = max(numbers, default=0) + 1

    def name(self, text: str) -> str:
        """A pseudonym: the same for the same text, but it reveals nothing of it."""
        return hashlib.blake2b(text.encode(), digest_size=8, key=self._secret).hexdigest()

    def add(self, row: TraceRow) -> None:
        self.rows += 1
        self._waiting.append(row)
        if len(self._waiting) >= ROWS_TOGETHER:
            self._encode()

    @property
    def lost(self) -> int:
        return self._lines.lost

    def flush(self) -> None:
        if self._waiting:
            self._encode()
        self._lines.flush()
        self._rotate()

    def _encode(self) -> None:
        rows = self._waiting[:]
        self._waiting.clear()
        self._lines.add(self._encoder.encode_lines(rows), len(rows))
        self._rotate()

    def _rotate(self) -> None:
        if self._lines.size >= self._rotate_bytes:
            self._lines.close_file()

    def close(self) -> None:
        self.flush()
        self._lines.close()

    def _open(self) -> IO[bytes]:
        """A file that is new: those of earlier starts and other processes are left as they are."""
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                file = (self._folder / NAME.format(number=self._number)).open("xb", buffering=0)
            except FileExistsError:
                self._number += 1
            else:
                with contextlib.suppress(OSError):
                    self._remove_old()
                return file

    def _remove_old(self) -> None:
        """Removes files beyond `keep`, the new one included; empty ones do not count."""
        files = self._files()
        kept = [path for path in files[:-1] if path.stat().st_size][-self._keep :]
        if len(kept) == self._keep:
            for old in files[: files.index(kept[0]) + 1]:
                old.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(
            path
            for path in self._folder.glob("trace-*.jsonl")
            if path.stem.removeprefix("trace-").isdigit()
        )
