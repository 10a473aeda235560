"""A file of lines, written in batches; a full disk does not stop the program."""

import contextlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

FLUSH_BYTES: Final = 1 << 16


class LineFile:
    """Collects lines until there are enough to write; nothing is written before `start`.

    Lines that cannot be written are lost and counted. The first failure is logged, and so is the
    first success after it: every batch is tried, and a file that is not open is opened again.
    """

    def __init__(self, name: str, open_file: Callable[[], IO[bytes]], log: logging.Logger) -> None:
        self.lost = 0
        self.size = 0
        """Bytes in the file; 0 if none is open, and for pipes and devices."""
        self._name: Final = name
        self._open_file: Final = open_file
        self._log: Final = log
        self._file: IO[bytes] | None = None
        self._is_torn = False
        """Whether the file ends within a line."""
        self._has_started = False
        self._lost_before = -1
        """Lines that were lost before the present failures; -1: the last batch was written."""
        self._lines: Final[list[bytes]] = []
        self._bytes = 0
        self._count = 0

    def start(self) -> None:
        """Lets lines be written, to a file that is opened for the first of them."""
        self._has_started = True

    def open(self) -> None:
        """Opens the file at once, in place of an open one; raises OSError if it cannot be."""
        self.close_file()
        file = self._open_file()
        self._file = file
        found = os.fstat(file.fileno())
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self._is_torn = self.size > 0 and not _ends_a_line(Path(file.name))
        self._has_started = True

    def close_file(self) -> None:
        """Closes the file: the next lines open another."""
        self.size = 0
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def add(self, lines: bytes, count: int = 1) -> None:
        self._lines.append(lines)
        self._count += count
        self._bytes += len(lines)
        if self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered lines; called at least once a second."""
        if not self._lines or not self._has_started:
            return
        data, count = b"".join(self._lines), self._count
        self._lines.clear()
        self._bytes = self._count = 0
        try:
            self._write(data)
        except OSError as error:
            if self._lost_before < 0:
                self._lost_before = self.lost
                why = error.strerror or str(error)
                self._log.error("%s cannot be written: %s; its lines are lost", self._name, why)
            self.lost += count
        else:
            if self._lost_before >= 0:
                lost = self.lost - self._lost_before
                self._log.info("%s is written again; %d lines were lost", self._name, lost)
                self._lost_before = -1

    def close(self) -> None:
        self.flush()
        self.close_file()

    def _write(self, data: bytes) -> None:
        """Writes all of it, or, to a regular file, nothing."""
        if self._file is None:
            self.open()
        file = self._file
        assert file is not None
        rest = memoryview(b"\n" + data if self._is_torn else data)
        written = 0
        try:
            while written < len(rest):
                took = file.write(rest[written:])
                if not took:
                    raise OSError("it takes no more")  # noqa: TRY301 - as a full disk
                written += took
        except OSError:
            if written:
                self._take_back(file, written)
            raise
        self._is_torn = False
        if self.size or stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            self.size += written

    def _take_back(self, file: IO[bytes], written: int) -> None:
        """Removes the beginning of a batch, so that no line is half written."""
        try:
            end = os.fstat(file.fileno()).st_size - written
            os.ftruncate(file.fileno(), end)
            os.lseek(file.fileno(), end, os.SEEK_SET)
        except OSError:
            self._is_torn = True


def _ends_a_line(path: Path) -> bool:
    """Whether the last byte of a file ends a line; a killed process may have left half of one."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True


def open_locked(path: Path) -> IO[bytes]:
    """Opens a file for appending; raises BlockingIOError if another process has it open so."""
    while True:
        file = path.open("ab", buffering=0)
        try:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return file
            _lock(file)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(found, path.stat()):
                    return file  # and no file that was renamed before it was locked
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:
        return  # a system without these locks
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return  # a file system without locks
