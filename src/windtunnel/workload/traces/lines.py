"""Reads a file line by line in bounded memory, compressed or not, whatever its content."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from windtunnel.core.errors import InputError
from windtunnel.workload.traces.notes import TraceNotes

LONGEST_LINE = 16 * 1024**2
BLOCK = 256 * 1024
PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, and their magic numbers."""


def unpacked_name(path: Path) -> Path:
    """The path without the ending for compression."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


class Unreadable(Exception):
    """A file's bytes cannot be read; the message says why."""


def refuse_irregular(path: Path) -> None:
    """Rejects pipes and devices, whose reads may never end; other faults are reported later."""
    try:
        irregular = path.exists() and not path.is_file() and not path.is_dir()
    except (OSError, ValueError):
        return
    if irregular:
        raise InputError("this is not a regular file", where=str(path))


class PlainBytes:
    """The bytes of a file, decompressed if needed."""

    def __init__(self, path: Path) -> None:
        refuse_irregular(path)
        try:
            self._raw: IO[bytes] = path.open("rb")
        except (OSError, ValueError) as error:
            raise _fault(error, path) from None
        self._file: Any = self._raw
        try:
            start = self._raw.read(4)
            self._raw.seek(0)
            if start.startswith(PACKED[".gz"]):
                self._file = gzip.GzipFile(fileobj=self._raw)
            elif start == PACKED[".zst"]:
                import pyarrow as pa

                self._file = pa.CompressedInputStream(self._raw, "zstd")
        except OSError as error:
            self._raw.close()
            raise _fault(error, path) from None

    def __enter__(self) -> "PlainBytes":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not self._raw:
            self._file.close()
        self._raw.close()

    def read(self, size: int = BLOCK) -> bytes:
        """Returns up to `size` bytes; none at the end of the file."""
        try:
            block: bytes = self._file.read(size)
        except EOFError:
            raise Unreadable("the compressed file is truncated") from None
        except (OSError, zlib.error, ValueError) as error:
            packed = "the file is damaged" if self._file is not self._raw else _why(error)
            raise Unreadable(packed) from None
        return block


def _fault(error: Exception, path: Path) -> InputError:
    allowed = None
    if isinstance(error, IsADirectoryError):
        traces = [*path.glob("trace-*.jsonl*"), *path.glob("requests.parquet")]
        inside = min((one for one in traces if one.is_file()), default=None)
        allowed = "one file" if inside is None else f"one file, such as {inside}"
    return InputError(_why(error), where=str(path), allowed=allowed)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "this is a folder"
    return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def first_bytes(path: Path, size: int = 64 * 1024) -> bytes:
    """The first bytes of a file, decompressed."""
    with PlainBytes(path) as file:
        try:
            return file.read(size)
        except Unreadable as error:
            raise InputError(str(error), where=str(path)) from None


class Lines:
    """The lines of a file without line ends; `number` is that of the latest line."""

    def __init__(self, path: Path, notes: TraceNotes) -> None:
        self._path = path
        self._notes = notes
        self.number = 0

    def texts(self) -> Iterator[str]:
        """Lines as text. A line that is not text, or is too long, is a bad row."""
        for block in self._blocks():
            try:
                text = block.decode()
            except UnicodeDecodeError:
                text = "\0"
            if "\0" not in text:
                for line in text.split("\n"):
                    self.number += 1
                    yield line
                continue
            for raw in block.split(b"\n"):
                self.number += 1
                checked = self._checked(raw)
                if checked is not None:
                    yield checked

    def raw(self) -> Iterator[bytes]:
        """Lines as bytes, for readers that check the text themselves; blank lines are left out."""
        for block in self._blocks():
            for line in block.split(b"\n"):
                self.number += 1
                if line and not line.isspace():
                    yield line
                else:
                    self._notes.blank(self.number)

    def _checked(self, raw: bytes) -> str | None:
        if b"\0" in raw:
            self._notes.skip("the line has NUL bytes", self.number)
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._notes.skip("the text is not UTF-8", self.number)
            return None

    def _blocks(self) -> Iterator[bytes]:
        """Blocks of whole lines, each without its last newline."""
        with PlainBytes(self._path) as file:
            rest = b""
            overlong = False
            first = True
            while True:
                try:
                    block = file.read()
                except Unreadable as error:
                    raise self._notes.fault(str(error), self.number + 1) from None
                if first:
                    block = block.removeprefix(codecs.BOM_UTF8)
                    first = False
                if not block:
                    break
                end = block.rfind(b"\n")
                if end < 0:
                    rest = b"" if overlong else rest + block
                    overlong = overlong or len(rest) > LONGEST_LINE
                    continue
                if overlong:
                    start = block.index(b"\n")
                    self._too_long()
                    overlong = False
                    if start < end:
                        yield block[start + 1 : end]
                else:
                    yield rest + block[:end]
                rest = block[end + 1 :]
            if overlong:
                self._too_long()
            elif rest:
                yield rest

    def _too_long(self) -> None:
        self.number += 1
        self._notes.skip(f"the line has more than {LONGEST_LINE} bytes", self.number)
