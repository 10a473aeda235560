"""Reads and writes whole files. Reads are bounded: a pipe or a device has no end, and its size
reads as 0.

A written file gets its name only when it is complete. Until then it is in a draft folder; the next
process that writes to the same place removes drafts left by dead processes.
"""

import codecs
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

from windtunnel.core.errors import InputError, OutputError, one_sentence_per, os_reason

MOST_FAULTS_SHOWN = 10
DRAFT = ".windtunnel-draft-"
"""Prefix of folders whose files are incomplete."""
READY = ".windtunnel-ready-"
"""Prefix of folders whose files are complete and replace those around them one by one."""
PIPE_WAIT_S = 10.0
"""How long to wait for data on a pipe."""

T = TypeVar("T")


def read_bounded(path: Path, most_bytes: int, *, subject: str = "the file") -> bytes:
    """The bytes of a regular file of at most `most_bytes`; error messages begin with `subject`."""
    where = str(path)
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise InputError(f"{subject} cannot be read: it is not a regular file", where=where)
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InputError(f"{subject} cannot be read: {os_reason(error)}", where=where) from error
    if len(data) > most_bytes:
        mib = most_bytes >> 20
        largest = f"{mib} MiB" if mib else f"{most_bytes >> 10} KiB"
        what = f"{subject} is too large"
        raise InputError(what, where=where, allowed=f"up to {largest}")
    return data


def read_start(path: str | Path, most_bytes: int) -> bytes:
    """The first bytes of a file, or of a pipe such as `<(command)`.

    Raises OSError as `open` does, and TimeoutError when nothing is written to a pipe.
    """
    import select
    import stat

    if not stat.S_ISFIFO(os.stat(path).st_mode):
        with open(path, "rb") as file:
            return file.read(most_bytes)
    data, was_opened = b"", False
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # blocking, it would wait for a writer
    try:
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        while len(data) < most_bytes:
            with suppress(BlockingIOError):
                part = os.read(pipe, most_bytes - len(data))
                data += part
                if part:
                    continue
                if data or was_opened:
                    break  # its writers have closed it
            if not ready.poll(1000.0 * PIPE_WAIT_S):
                what = f"this is a pipe, and nothing was written to it for {PIPE_WAIT_S:g} s"
                raise TimeoutError(errno.ETIMEDOUT, what)
            was_opened = True
    finally:
        os.close(pipe)
    return data


class Draft:
    """A folder for incomplete files, beside the place where they will be.

    Its process holds a lock on it for as long as it lives. A draft without a lock was left by a
    dead process; creating a draft removes such leftovers in the same place.
    """

    def __init__(self, place: Path) -> None:
        remove_dead_drafts(place)
        self._lock: int | None = None
        while self._lock is None:
            # A new draft may be taken for dead before it is locked: then try again.
            self.path = Path(tempfile.mkdtemp(dir=place, prefix=DRAFT))
            try:
                self._lock = hold(self.path)
            except OSError:
                return  # a file system without locks, where no draft is ever taken for dead

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes the folder with all its content; calling it again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_dead_drafts(place: Path) -> None:
    """Removes the drafts in a folder whose processes are gone."""
    with os.scandir(place) as entries:
        found = [one.path for one in entries if one.name.startswith(DRAFT)]
    for path in found:
        lock = None
        with suppress(OSError):
            lock = hold(Path(path))
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def hold(folder: Path, *, wait: bool = False) -> int | None:
    """Locks a folder until the returned file descriptor is closed.

    None when another process holds the lock or has removed the folder.
    """
    import fcntl

    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.path.samestat(os.fstat(file), folder.lstat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(file)
        raise
    os.close(file)
    return None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, waiting for it; without a lock where the file system has none."""
    lock = None
    with suppress(OSError):
        while lock is None and folder.is_dir():
            lock = hold(folder, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def writing(
    place: Path, hint: str | None = None, what: str = "cannot write results"
) -> Iterator[None]:
    """Turns an error of the system about a place into a sentence that begins with `what`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{what}: {os_reason(error)}", where=str(place), hint=hint) from error


def write_whole(path: Path, content: bytes, *, drafts: Path | None = None) -> None:
    """Writes a file atomically: whole or not at all, even with several writers.

    Until it is complete it is in a draft in `drafts`, which must be on the same file system, or
    else beside its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Draft(drafts or path.parent) as draft:
        whole = draft.path / path.name
        whole.write_bytes(content)
        whole.replace(path)


def read_lines(path: Path, most_bytes: int, read: Callable[[bytes, str], T]) -> list[T]:
    """The results of `read(line, "file:line")` for each line that is not blank.

    The first bad lines are reported together, each with its number, unless no line is right.
    """
    found: list[T] = []
    faults: list[InputError] = []
    content = read_bounded(path, most_bytes).removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(read(line, f"{path}:{number}"))
        except InputError as fault:
            faults.append(fault)
            if len(faults) == MOST_FAULTS_SHOWN:
                break
    if faults and not found and b"\0" in content:
        raise InputError("the file is binary", where=str(path), allowed="lines of text")
    if len(faults) > 1 and not found and len({fault.what for fault in faults}) == 1:
        faults[0].what += f" (the same on the next {len(faults) - 1} lines)"
        del faults[1:]
    if faults:
        raise one_sentence_per(faults)
    return found
