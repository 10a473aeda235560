"""The access log of a gateway: a line of JSON for each request, without prompts, keys or addresses
of clients.
"""

import contextlib
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.clock import unix_s
from windtunnel.core.errors import OutputError

FLUSH_BYTES: Final = 1 << 16


class AccessLog:
    """Writes lines; a disk that is full costs lines, which are counted, and nothing else."""

    def __init__(self, path: Path) -> None:
        self.lost = 0
        self._path: Final = path
        self._encode: Final = msgspec.json.Encoder().encode
        self._buffer: Final[list[bytes]] = []
        self._buffered = 0
        self._file: IO[bytes] = self._open()

    def add(self, line: dict[str, Any]) -> None:
        """A request that has ended; the time of its end comes first."""
        data = self._encode({"time": round(unix_s(), 3), **line}) + b"\n"
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered; called at least once a second."""
        if not self._buffer:
            return
        data, count = b"".join(self._buffer), len(self._buffer)
        self._buffer.clear()
        self._buffered = 0
        try:
            self._file.write(data)
        except (OSError, ValueError):
            self.lost += count

    def reopen(self) -> None:
        """A program that rotates logs has moved the file away: a new one is begun."""
        self.flush()
        fresh = self._open()
        self.close()
        self._file = fresh

    def close(self) -> None:
        self.flush()
        with contextlib.suppress(OSError):
            self._file.close()

    def _open(self) -> IO[bytes]:
        try:
            return self._path.open("ab", buffering=0)
        except OSError as error:
            raise OutputError(
                f"cannot write the access log: {error.strerror}", where=str(self._path)
            ) from None
