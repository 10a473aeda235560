"""Traces are read fast: validated requests, against bare standard-library parsing of the files.

The published files are not part of the repository: set WINDTUNNEL_DATA to their folder, or keep
them in `../shared/data` beside the checkout. Without them, files of the same size are generated.
"""

import csv
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.core.random import Stream
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import BLOCK_TOKENS, TraceRequest
from windtunnel.workload.traces.writing import write_trace

AZURE, AZURE_ROWS, AZURE_TARGET_S = "azure_2023_conv.csv", 19_366, 0.3
MOONCAKE, MOONCAKE_ROWS, MOONCAKE_TARGET_S = "mooncake_conversation.jsonl", 12_031, 0.5


def made_up(rows: int) -> Iterator[TraceRequest]:
    """Requests with about as many blocks as Mooncake's."""
    stream = Stream(1, "benchmark.traces")
    time_s = 0.0
    for number in range(rows):
        prompt = 1 + int(stream.exponential(12_000))
        ends = (*range(BLOCK_TOKENS, prompt, BLOCK_TOKENS), prompt)
        keys = tuple(range(number * 300, number * 300 + len(ends)))
        yield TraceRequest(time_s, prompt, 300, prefix_keys=keys, prefix_ends=ends)
        time_s = round(time_s + stream.exponential(0.3), 3)


def file(name: str, rows: int, kind: str, scratch: Path) -> Path:
    named = os.environ.get("WINDTUNNEL_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    path = folder / "traces" / name
    if path.exists():
        return path
    print(f"  no {name} here: {rows} made-up requests in its place")
    write_trace(made_up(rows), scratch / name, kind)
    return scratch / name


def bare_csv(path: Path) -> int:
    rows = []
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            moment = datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC)
            time_s = moment.timestamp()
            rows.append((time_s, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
    return len(rows)


def bare_json(path: Path) -> int:
    with path.open() as lines:
        return len([json.loads(line) for line in lines])


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        azure = file(AZURE, AZURE_ROWS, "azure", Path(scratch))
        mooncake = file(MOONCAKE, MOONCAKE_ROWS, "mooncake", Path(scratch))
        for title, path, bare, most_s in (
            ("Azure", azure, bare_csv, AZURE_TARGET_S),
            ("Mooncake", mooncake, bare_json, MOONCAKE_TARGET_S),
        ):
            rows = len(list(open_trace(path)))
            assert rows == bare(path)
            ours = least_cpu_s(lambda path=path: list(open_trace(path)))  # type: ignore[misc]
            standard = least_cpu_s(lambda path=path, bare=bare: bare(path))  # type: ignore[misc]
            print(f"  {title}: the standard library alone takes {standard:.3f} CPU s")
            claim = Claim(
                f"read {rows:,} requests of {title}",
                ours=ours,
                baseline=most_s,
                most=1.0,
                unit="CPU s",
                against=f"the target of {most_s} s",
            )
            report(claim)


if __name__ == "__main__":
    main()
