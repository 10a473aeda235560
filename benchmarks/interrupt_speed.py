"""Ctrl-C: CPU time from the signal to the end of a process, at sizes that fill memory."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claim import Claim, insist_on_compiled, report

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
CASES = (
    ("1,000,000 live requests", MILLION, 1_600),
    ("100,000 servers being built", SERVERS, 300),
    ("100,000 servers under 200,000 requests a second", SERVERS, 2_000),
)
"""The scenario, and the memory in MiB at which it is interrupted."""


def cpu_s_after(scenario: Path, memory_mib: int) -> float:
    """CPU seconds that a run still takes after Ctrl-C."""
    command = ["windtunnel", "simulate", str(scenario), "-o", str(scenario.parent / "run")]
    args = [sys.executable, "-m", *command]
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    page = os.sysconf("SC_PAGE_SIZE")
    while int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * page >> 20 < memory_mib:
        assert process.poll() is None, "it ended before it was interrupted"
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    before_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    process.send_signal(signal.SIGINT)
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    return used.ru_utime + used.ru_stime - before_s


def main() -> None:
    insist_on_compiled()
    with tempfile.TemporaryDirectory() as place:
        for name, text, memory_mib in CASES:
            scenario = Path(place, "one.yaml")
            scenario.write_text(text)
            report(
                Claim(
                    f"CPU time from Ctrl-C to the end, {name}",
                    ours=max(cpu_s_after(scenario, memory_mib) for _ in range(3)),
                    baseline=MOST_CPU_S,
                    most=1.0,
                    unit="s",
                    against="one second",
                )
            )


if __name__ == "__main__":
    main()
