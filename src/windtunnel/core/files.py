"""Reads a whole input file, bounded: a pipe or a device never ends, and its size reads as 0."""

from pathlib import Path

from windtunnel.core.errors import InputError


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
