"""The trace formats: readers, writers, and detection of a file's format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windtunnel.core.errors import InputError, nearest, one_line
from windtunnel.workload.traces.formats import (
    azure,
    blis,
    burstgpt,
    inference_perf,
    mooncake,
    parquet,
    servegen,
    windtunnel,
)
from windtunnel.workload.traces.lines import first_bytes, unpacked_name
from windtunnel.workload.traces.notes import COMMAND_WORDS, TraceNotes
from windtunnel.workload.traces.record import TraceRequest

Reader = Callable[[Path, TraceNotes], Iterator[TraceRequest]]


class Format(NamedTuple):
    """The properties of a format that are needed before a file is opened."""

    says: str
    read: Reader | None
    """None if the format has no times, so that arrivals must be assigned."""
    from_first: bool = False
    """Whether times count from the first request, not from the start that the file gives."""
    ordered: bool = True
    """Whether rows are in order of arrival, apart from a few; other files are sorted in memory."""


FORMATS: dict[str, Format] = {
    "azure": Format("Azure LLM inference 2023 and 2024, CSV", azure.read, from_first=True),
    "burstgpt": Format("BurstGPT, CSV", burstgpt.read, from_first=True),
    "mooncake": Format("Mooncake, JSON lines with block hashes", mooncake.read),
    "blis": Format(
        "BLIS TraceV2, CSV with a YAML header", blis.read, from_first=True, ordered=False
    ),
    "servegen": Format("clients of ServeGen, a folder; requests are drawn", servegen.read),
    "inference-perf": Format(
        "configuration of inference-perf, YAML; requests are drawn", inference_perf.read
    ),
    "sharegpt": Format("conversations or token counts without times, JSON", None),
    "csv": Format("Windtunnel, CSV", windtunnel.read_csv),
    "jsonl": Format("Windtunnel, JSON lines", windtunnel.read_json),
    "parquet": Format("Windtunnel, Parquet", parquet.read),
}
OWN = "windtunnel"
"""The format name that accepts csv, jsonl and parquet alike."""
NAMES = (*FORMATS, OWN)
ALSO = {("jsonl", "sharegpt")}
"""Pairs of a detected format and another that the file may be read as."""
EMPTY = "the file is empty"
OTHER_FILES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"SQLite": "SQLite"}
SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}
JSON_KEYS = {
    "mooncake": {"timestamp", "input_length", "output_length"},
    "jsonl": {"arrived", "prompt_tokens", "output_tokens"},
}
CSV_COLUMNS = {
    "azure": set(azure.COLUMNS),
    "burstgpt": set(burstgpt.COLUMNS),
    "blis": set(blis.COLUMNS),
    "csv": set(windtunnel.NEEDED),
}


def named(name: str | None, path: Path) -> str:
    """The format to read a file in: the one named, else the one detected."""
    if name is not None and name not in NAMES:
        hint = nearest(name, NAMES)
        raise InputError(
            f"{name[:60]!r} is not a trace format", allowed=", ".join(NAMES), hint=hint
        )
    try:
        found = detected(path)
    except InputError as error:
        if name in FORMATS and path.is_file() and error.what != EMPTY:
            return name  # its reader gives a better error
        raise
    accepted = ("csv", "jsonl", "parquet") if name == OWN else (name,)
    if name is None or found in accepted:
        return found
    if name in FORMATS and (found, name) in ALSO:
        return name
    what = f"this is a trace of the format {found}, not {name}"
    raise InputError(what, where=str(path), hint="without a format, it is detected")


def detected(path: Path) -> str:
    """The format of a file, detected from its first bytes."""
    if path.is_dir() and servegen.is_pool(path):
        return "servegen"
    start = first_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if start.startswith((b"PAR1", parquet.STREAM_MARK)):
        return "parquet"
    text = start.lstrip()
    if not text:
        raise InputError(EMPTY, where=str(path))
    for mark, kind in OTHER_FILES.items():
        if start.startswith(mark):
            raise InputError(f"{kind} files are not supported", where=str(path))
    if path.suffix.lower() in blis.HEADERS and b"trace_version" in start:
        return "blis"
    if path.suffix.lower() in inference_perf.ENDINGS and inference_perf.is_configuration(start):
        return "inference-perf"
    if text[:1] == b"[":
        return "sharegpt"
    return _of_object(text, path) if text[:1] == b"{" else _of_columns(text, path)


def _of_object(text: bytes, path: Path) -> str:
    line, ended, _ = text.partition(b"\n")
    try:
        keys: Any = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        if not ended and b'"conversations"' in line:
            return "sharegpt"
        what = "the first line is not a whole JSON object"
        raise InputError(what, where=f"{path}:1", hint=COMMAND_WORDS.format) from None
    for name, needed in JSON_KEYS.items():
        if needed <= keys.keys():
            return name
    if keys.keys() & {"conversations", "messages", "prompt_tokens"}:
        return "sharegpt"
    raise _unknown(path, list(keys), JSON_KEYS)


def _of_columns(text: bytes, path: Path) -> str:
    try:
        line = text.partition(b"\n")[0].decode()
    except UnicodeDecodeError:
        line = "\0"
    if "\0" in line:
        raise InputError("the first line is not text", where=f"{path}:1", allowed="text in UTF-8")
    found = [name.strip().strip('"') for name in line.split(",")]
    for name, needed in CSV_COLUMNS.items():
        if needed <= set(found):
            return name
        for separator, noun in SEPARATORS.items():
            if needed <= {name.strip().strip('"') for name in line.split(separator)}:
                what = f"the columns of this {name} file are separated by {noun}"
                raise InputError(what, where=f"{path}:1", allowed="commas")
    raise _unknown(path, found, CSV_COLUMNS)


def _unknown(path: Path, found: list[str], known: dict[str, set[str]]) -> InputError:
    """The error for an unknown format; it names what the closest format would need."""
    shown = one_line(", ".join(found), 120)
    what = f"no known format has the columns {shown or 'of this file'}"
    close = max(known, key=lambda name: len(known[name] & set(found)))
    missing = sorted(known[close] - set(found))
    if len(missing) < len(known[close]):
        hint = f"{close} would need {', '.join(missing)} too"
        return InputError(what, where=f"{path}:1", hint=hint)
    allowed = "; ".join(f"{name}: {', '.join(sorted(known[name]))}" for name in known)
    return InputError(what, where=f"{path}:1", allowed=allowed)


def by_ending(path: Path) -> str | None:
    """The format of our own that a file's ending names; None if it names none."""
    ending = unpacked_name(path).suffix.lower().removeprefix(".")
    return ending if ending in ("csv", "jsonl", "parquet") else None
