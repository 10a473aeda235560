"""A buffer of lines for a file, written in batches; a full disk does not stop the program."""

from collections.abc import Callable
from typing import Final

FLUSH_BYTES: Final = 1 << 16


class LineBuffer:
    """Collects lines until there are enough to write; lines that cannot be written are counted."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.lost = 0
        self._write: Final = write
        self._lines: Final[list[bytes]] = []
        self._bytes = 0
        self._count = 0

    def add(self, lines: bytes, count: int = 1) -> None:
        self._lines.append(lines)
        self._count += count
        self._bytes += len(lines)
        if self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered lines; called at least once a second."""
        if not self._lines:
            return
        data, count = b"".join(self._lines), self._count
        self._lines.clear()
        self._bytes = self._count = 0
        try:
            self._write(data)
        except (OSError, ValueError):
            self.lost += count
