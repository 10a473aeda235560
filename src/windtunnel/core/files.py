"""Reads whole files, bounded: a pipe or a device never ends, and its size reads as 0; writes whole.

A file that is written gets its name when it is complete.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from windtunnel.core.errors import InputError, one_sentence_per

MOST_FAULTS_SHOWN = 10
DRAFT = ".draft-"
"""What the name of a file begins with that is not complete."""

T = TypeVar("T")


def read_bounded(path: Path, most_bytes: int, *, subject: str = "the file") -> bytes:
    """The bytes of a regular file of at most `most_bytes`; `subject` begins the sentences."""
    where = str(path)
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise InputError(f"{subject} cannot be read: it is not a regular file", where=where)
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{subject} cannot be read: {reason}", where=where) from error
    if len(data) > most_bytes:
        largest = f"{most_bytes >> 20} MiB"
        what = f"{subject} is too large"
        raise InputError(what, where=where, allowed=f"up to {largest}")
    return data


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all, whatever else writes the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{threading.get_ident()}-{path.name}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def read_lines(path: Path, most_bytes: int, read: Callable[[bytes, str], T]) -> list[T]:
    """What `read(line, "file:line")` makes of each line that is not blank.

    The first bad lines are reported together, each with its number.
    """
    found: list[T] = []
    faults: list[InputError] = []
    for number, line in enumerate(read_bounded(path, most_bytes).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(read(line, f"{path}:{number}"))
        except InputError as fault:
            faults.append(fault)
            if len(faults) == MOST_FAULTS_SHOWN:
                break
    if faults:
        raise one_sentence_per(faults)
    return found
