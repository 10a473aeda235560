"""Peak memory per simulated request; writing rows to Parquet does not grow with their number."""

import subprocess
import sys

from benchmarks.claim import Claim, insist_on_compiled, report

REQUESTS = 1_000_000
BYTES_PER_REQUEST = 400.0
GROWTH = 1.1

PEAK = """
import resource, sys, tempfile
from pathlib import Path
from benchmarks.serving import chat
from windtunnel.report.files.requests import RequestRows
from windtunnel.twin.run import run
requests, stream = int(sys.argv[1]), sys.argv[2] == "parquet"
plan = chat(requests)
with tempfile.TemporaryDirectory() as folder:
    rows = RequestRows(Path(folder, "requests.parquet")) if stream else None
    run(plan, rows=rows)
    if rows is not None:
        rows.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak_bytes(requests: int, rows: str) -> int:
    command = [sys.executable, "-c", PEAK, str(requests), rows]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def main() -> None:
    insist_on_compiled()
    base = peak_bytes(1_000, "none")
    report(
        Claim(
            f"peak memory per request, {REQUESTS:,} requests, all metrics",
            ours=(peak_bytes(REQUESTS, "none") - base) / REQUESTS,
            baseline=BYTES_PER_REQUEST,
            most=1.0,
            unit="bytes",
            against="the target",
        )
    )
    report(
        Claim(
            f"peak memory with rows to Parquet, {4 * REQUESTS:,} requests",
            ours=peak_bytes(4 * REQUESTS, "parquet") / 2**20,
            baseline=peak_bytes(2 * REQUESTS, "parquet") / 2**20,
            most=GROWTH,
            unit="MiB",
            against=f"{2 * REQUESTS:,} requests",
        )
    )


if __name__ == "__main__":
    main()
