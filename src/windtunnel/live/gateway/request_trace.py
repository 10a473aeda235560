"""The request trace of a gateway: one line per request, without prompts, for `windtunnel simulate`.

Sessions are named by keyed hashes, and prefixes by keys hashed with a secret of the process. Files
rotate by size, and the oldest are removed.
"""

import hashlib
from pathlib import Path
from typing import IO, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.live.gateway.data_path.structs import TraceRow
from windtunnel.live.lines import LineBuffer

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
        self._lines: Final = LineBuffer(self._write)
        self._size = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            numbers = [int(path.stem.removeprefix("trace-")) for path in self._files()]
            self._number = max(numbers, default=0) + 1
            self._file: IO[bytes] = self._open()
        except OSError as error:
            raise OutputError(
                f"cannot write a trace: {error.strerror}", where=str(folder)
            ) from error

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

    def _encode(self) -> None:
        rows = self._waiting[:]
        self._waiting.clear()
        self._lines.add(self._encoder.encode_lines(rows), len(rows))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self._size += len(data)
        if self._size >= self._rotate_bytes:
            self._file.close()
            self._number += 1
            self._file = self._open()
            for old in self._files()[: -self._keep]:
                old.unlink(missing_ok=True)

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _open(self) -> IO[bytes]:
        self._size = 0
        return (self._folder / NAME.format(number=self._number)).open("xb")

    def _files(self) -> list[Path]:
        return sorted(
            path
            for path in self._folder.glob("trace-*.jsonl")
            if path.stem.removeprefix("trace-").isdigit()
        )
