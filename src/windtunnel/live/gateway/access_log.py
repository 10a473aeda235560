"""The access log of a gateway: one JSON line per request, without prompts, keys or addresses."""

import logging
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.clock import unix_s
from windtunnel.core.errors import OutputError, printable
from windtunnel.live.lines import LineFile

DELETE: Final = 127


class AccessLog:
    """Writes the lines; when the disk is full, lines are lost and counted, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._encode: Final = msgspec.json.Encoder().encode
        log = logging.getLogger("windtunnel.gateway")
        self._lines: Final = LineFile(f"the access log {path}", self._open, log)
        self._reopen()

    @property
    def lost(self) -> int:
        return self._lines.lost

    def add(self, line: dict[str, Any]) -> None:
        """Logs a request that has ended; the time of its end comes first."""
        data = self._encode({"time": round(unix_s(), 3), **line})
        if not data.isascii() or DELETE in data:  # JSON escapes all other control characters
            data = printable(data.decode()).encode()
        self._lines.add(data + b"\n")

    def flush(self) -> None:
        self._lines.flush()

    def reopen(self) -> None:
        """Opens the file anew, after a log rotation has moved it away."""
        self.flush()
        self._reopen()

    def close(self) -> None:
        self._lines.close()

    def _open(self) -> IO[bytes]:
        return self._path.open("ab", buffering=0)

    def _reopen(self) -> None:
        try:
            self._lines.open()
        except OSError as error:
            raise OutputError(
                f"cannot write the access log: {error.strerror}", where=str(self._path)
            ) from None
