"""Files that are rotated at a size: `FILE.1` is the newest of the full ones, `FILE` is written.

Names are changed one at a time, each to one that is free, from the oldest: a process that is killed
in between leaves a gap in the numbers, which readers skip and the next rotation fills. Files are
read in order, oldest first, as if they were one.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Final, NamedTuple

from windtunnel.settings.fields import Size, Whole

RotateBytes = Annotated[float, Size("64KiB", "1TiB")]
KeptFiles = Annotated[int, Whole(1, 100_000)]


class LogLimits(NamedTuple):
    """The limits of an event log; with the defaults it takes about 4 GiB."""

    rotate_bytes: float = 256 * 1024**2
    """A file is full at this size."""
    keep: int = 16
    """Full files; the oldest one beyond them is deleted."""


LOG_LIMITS: Final = LogLimits()


def rotate(path: Path, keep: int) -> None:
    """Renames a file to `FILE.1` after moving the older ones up; the oldest beyond `keep` goes."""
    numbers = set(_numbers(path))
    free = 1
    while free in numbers and free < keep:
        free += 1
    for number in range(free, 1, -1):
        _numbered(path, number - 1).replace(_numbered(path, number))
    path.replace(_numbered(path, 1))
    for number in numbers:
        if number > keep:
            with suppress(OSError):
                _numbered(path, number).unlink()


@contextmanager
def opened(path: Path) -> Iterator[list[IO[bytes]]]:
    """Opens a file and the rotated ones before it, oldest first; raises OSError without `path`.

    They are opened from the newest, so that a rotation in the meantime shows as a file that is open
    already.
    """
    with ExitStack() as stack:
        files: list[IO[bytes]] = []
        try:
            files.append(stack.enter_context(path.open("rb")))
        except FileNotFoundError:
            if not _numbers(path):
                raise
        for number in _numbers(path):
            with suppress(FileNotFoundError):
                file = stack.enter_context(_numbered(path, number).open("rb"))
                if not (files and _is_same(files[-1], file)):
                    files.append(file)
        yield files[::-1]


def is_rotated(path: Path) -> bool:
    """Whether a file has rotated ones before it."""
    return bool(_numbers(path))


def _is_same(one: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


def _numbers(path: Path) -> list[int]:
    """The numbers of the rotated files, newest first."""
    start = f"{path.name}."
    ends = (one.name.removeprefix(start) for one in path.parent.glob(f"{_literal(start)}*"))
    return sorted(int(end) for end in ends if end.isascii() and end.isdigit() and end[0] != "0")


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
