"""Cost of a request to `windtunnel batch`, against a `windtunnel emulate` that answers at once.

Both are processes of their own, over a real socket. Only the client's CPU time is counted, without
that of its start: the difference between a long run and a short one.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claim import Claim, report

ROWS = 6000
FEW = 100
PROMISE_PER_S = 1500


def client_cpu_s(folder: Path, url: str, rows: int, *more: str) -> float:
    """CPU seconds of one run."""
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text(
        "".join(json.dumps({"id": f"r{n}", "prompt": f"say {n}"}) + "\n" for n in range(rows))
    )
    for old in folder.glob("out*"):
        old.unlink()
    command = [sys.executable, "-m", "windtunnel", "batch", str(source), "--endpoint", url]
    command += ["-o", str(output), "--set", "max_tokens=16", *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert output.read_bytes().count(b"\n") == rows
    return used.ru_utime + used.ru_stime


def main() -> None:
    columns = "columns: {a: {prompt: '{{ prompt }}'}, b: {prompt: '{{ a }}'}, c: {prompt: hi}}"
    serve = [sys.executable, "-m", "windtunnel", "emulate", "--model", "llama-3.1-8b"]
    serve += ["--port", "0", "--speedup", "inf"]
    with (
        tempfile.TemporaryDirectory() as place,
        subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().split()[2]
        folder = Path(place)
        (folder / "columns.yaml").write_text(columns)
        try:
            for name, calls, options in (
                ("rows", 1, ()),
                ("three columns", 3, ("--columns", str(folder / "columns.yaml"))),
            ):
                rows = ROWS // calls
                start_s = min(client_cpu_s(folder, url, FEW, *options) for _ in range(2))
                whole_s = min(client_cpu_s(folder, url, rows, *options) for _ in range(2))
                each_us = (whole_s - start_s) / ((rows - FEW) * calls) * 1e6
                report(
                    Claim(
                        f"batch, {name}: a request on one core of the client",
                        ours=each_us,
                        baseline=1e6 / PROMISE_PER_S,
                        most=1.0,
                        unit="CPU us",
                        against=f"{PROMISE_PER_S:,} requests/s",
                    )
                )
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
