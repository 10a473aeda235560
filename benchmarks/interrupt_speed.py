"""Ctrl-C: CPU time from the signal to the end of a process, at sizes that fill memory."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.claim import Claim, insist_on_compiled, report

Reached = Callable[[Path, Path], bool]
"""Whether a process has reached the point to interrupt; takes its /proc folder and its folder."""
MOST_CPU_S = 1.0
MILLION = """\
name: backlog
workload:
  - {name: chat, count: 1000000000, arrivals: {process: poisson, rate: 1000000/s},
     prompt_tokens: 100, output_tokens: 100}
model: llama-3.1-8b
serving: {pools: [{name: main, replicas: 4, accelerator: h200}]}
"""
SERVERS = """\
name: servers
duration: 1h
workload:
  - {name: chat, arrivals: {process: poisson, rate: 200000/s}, prompt_tokens: 100,
     output_tokens: 100}
model: llama-3.1-8b
serving: {pools: [{name: main, replicas: 100000, accelerator: h200}]}
"""
REPLAY = """\
name: replay
workload: [{trace: {path: huge.jsonl}}]
model: llama-3.1-8b
serving: {pools: [{name: main, replicas: 4, accelerator: h200}]}
"""
WRITTEN = """\
name: written
workload:
  - {name: chat, count: 1000000, arrivals: {process: poisson, rate: 1000/s}, prompt_tokens: 100,
     output_tokens: 2}
model: llama-3.1-8b
serving: {pools: [{name: main, replicas: 100, accelerator: h200}]}
"""
TRACE = "huge.jsonl"
TRACE_LINES = 5_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.02
MOST_WAIT_S = 600.0


def holds_mib(memory_mib: int) -> Reached:
    """Reached when a process holds this much memory."""
    return lambda place, _: int((place / "statm").read_text().split()[1]) * PAGE >> 20 >= memory_mib


def reads_trace(place: Path, _: Path) -> bool:
    """Reached when a process has its trace open."""
    with suppress(FileNotFoundError):  # one that was closed while they were listed
        return any(path.readlink().name == TRACE for path in (place / "fd").iterdir())
    return False


def writes_rows(_: Path, folder: Path) -> bool:
    """Reached when rows of requests are written to disk."""
    drafts = folder.glob("**/requests.parquet*")
    return any(draft.stat().st_size > 1 << 20 for draft in drafts)


CASES = (
    ("1,000,000 live requests", MILLION, holds_mib(1_600)),
    ("100,000 servers being built", SERVERS, holds_mib(300)),
    ("100,000 servers under 200,000 requests a second", SERVERS, holds_mib(2_000)),
    ("a trace of 5,000,000 requests being read", REPLAY, reads_trace),
    ("rows of 1,000,000 requests being written", WRITTEN, writes_rows),
)
"""A name, the scenario, and when it is interrupted."""


def cpu_s_after(scenario: Path, reached: Reached) -> float:
    """CPU seconds that a run still uses after Ctrl-C."""
    command = ["windtunnel", "simulate", str(scenario), "-o", str(scenario.parent / "run")]
    args = [sys.executable, "-m", *command]
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    place = Path(f"/proc/{process.pid}")
    for _ in range(int(MOST_WAIT_S / LOOK_S)):
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            raise AssertionError("it ended before it was interrupted")
        if reached(place, scenario.parent):
            break
    else:
        process.kill()
        raise AssertionError("it did not get so far")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    before_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    process.send_signal(signal.SIGINT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (3, 130), f"exit status {process.returncode}"
    return used.ru_utime + used.ru_stime - before_s


def write_trace(path: Path) -> None:
    """Writes a trace with far more requests than a run reads in a second."""
    with path.open("w") as file:
        for number in range(TRACE_LINES):
            file.write(f'{{"timestamp":{number},"input_length":100,"output_length":2}}\n')


def main() -> None:
    insist_on_compiled()
    with tempfile.TemporaryDirectory() as place:
        write_trace(Path(place, TRACE))
        for name, text, reached in CASES:
            scenario = Path(place, "one.yaml")
            scenario.write_text(text)
            report(
                Claim(
                    f"CPU time from Ctrl-C to the end, {name}",
                    ours=max(cpu_s_after(scenario, reached) for _ in range(3)),
                    baseline=MOST_CPU_S,
                    most=1.0,
                    unit="s",
                    against="one second",
                )
            )


if __name__ == "__main__":
    main()
