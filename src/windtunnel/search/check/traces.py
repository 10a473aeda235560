"""The trace that a check replays: a file, or the folder that a gateway writes its files into."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError

PATTERN = "trace-*.jsonl"
RESTART_S = 60.0
"""A gateway counts from its start: times that fall by more are those of the next start."""


def one_trace(path: Path, stack: ExitStack) -> Path:
    """The path of a file with all requests; that of a folder is gone when `stack` ends."""
    if not path.is_dir():
        return path
    files = sorted(path.glob(PATTERN))
    if not files:
        what = "the folder has no trace of a gateway"
        raise InputError(what, where=str(path), allowed=f"files named {PATTERN}, or a file")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windtunnel-")))
    joined = folder / f"{path.name or 'trace'}.jsonl"
    with joined.open("wb") as out:
        for row in joined_rows(files):
            out.write(msgspec.json.encode(row) + b"\n")
    return joined


def joined_rows(files: list[Path]) -> Any:
    """The rows of files that follow each other; after a restart times and ids go on.

    Rows are in order of their ends, so times go back and forth by the length of an answer. A last
    line that a killed gateway did not finish is left out.
    """
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    shift_s = latest_s = 0.0
    starts = 0
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    continue
                try:
                    row = decode(line)
                    arrived_s = float(row["arrived"])
                except (msgspec.DecodeError, LookupError, TypeError, ValueError):
                    what = "this is not a row of a gateway's trace"
                    raise InputError(what, where=f"{file}:{number}") from None
                if arrived_s + shift_s < latest_s - _reach_s(row):
                    shift_s, starts = latest_s, starts + 1
                latest_s = max(latest_s, arrived_s + shift_s)
                row["arrived"] = arrived_s + shift_s
                if starts and "id" in row:
                    row["id"] = f"{starts}-{row['id']}"
                yield row


def _reach_s(row: dict[str, Any]) -> float:
    """How long before the latest arrival a request may have arrived that ended just now."""
    e2e = row.get("e2e")
    return RESTART_S + (float(e2e) if isinstance(e2e, int | float) else 0.0)
