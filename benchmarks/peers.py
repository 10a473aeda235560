"""Other simulators on the same trace files, in the same run: CPU time of both, and the ratio.

`WINDTUNNEL_PEERS` names the Python of an environment that has them; nothing of theirs is installed
or shipped here. NVIDIA's replay (PyPI `ai-dynamo`, `dynamo.replay`) reads Mooncake's format, so
Azure's rows are written in it. AIConfigurator answers in closed form and replays no trace
(`benchmarks.truth.beside_aiconfigurator`); Vidur needs profiles of its own for every model.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from benchmarks.claim import Claim, insist_on_compiled, report
from benchmarks.cluster_speed import TRACES, replay_s

BLOCK_TOKENS = 512
AZURE_ROWS = 5_000
REPLAY = """
import sys, time
from importlib.metadata import version
from dynamo.replay import run_trace_replay
path, workers, router, block = sys.argv[1:]
least = 1e9
for _ in range(2):
    start = time.process_time()
    done = run_trace_replay(
        path, num_workers=int(workers), router_mode=router, trace_block_size=int(block)
    )
    least = min(least, time.process_time() - start)
print(least, done["completed_requests"], version("ai-dynamo"))
"""


def theirs(python: str, path: Path, workers: int, router: str) -> tuple[float, int, str] | None:
    """CPU seconds of NVIDIA's replay, the requests that it completed, and its version."""
    command = [python, "-c", REPLAY, str(path), str(workers), router, str(BLOCK_TOKENS)]
    environment = os.environ | {"DYN_LOG": "error"}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"skipped: dynamo.replay failed: {done.stderr.strip().splitlines()[-1:]}")
        return None
    took, completed, version = done.stdout.split()[-3:]
    return float(took), int(completed), version


def as_mooncake(source: Path, target: Path) -> None:
    """The first rows of an Azure trace, with blocks that no two prompts share."""
    with source.open(newline="") as rows, target.open("w") as lines:
        first_s = 0.0
        block = 0
        for number, row in enumerate(csv.DictReader(rows)):
            if number == AZURE_ROWS:
                break
            at_s = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            first_s = first_s or at_s
            tokens = int(row["ContextTokens"])
            blocks = -(-tokens // BLOCK_TOKENS)
            request = {
                "timestamp": round((at_s - first_s) * 1e3),
                "input_length": tokens,
                "output_length": int(row["GeneratedTokens"]),
                "hash_ids": list(range(block, block + blocks)),
            }
            block += blocks
            lines.write(json.dumps(request) + "\n")


def main() -> None:
    insist_on_compiled()
    python = os.environ.get("WINDTUNNEL_PEERS")
    if not python:
        print("skipped: WINDTUNNEL_PEERS names no Python with ai-dynamo")
        sys.exit(0)
    aware = "{policy: weighted, scorers: {prefix-cache: 2, queue-depth: 1}}"
    with tempfile.TemporaryDirectory() as scratch:
        for file, form, count, servers, router, their_router in (
            ("mooncake_conversation.jsonl", "mooncake", 12_031, 4, aware, "kv_router"),
            ("azure_2023_conv.csv", "azure", AZURE_ROWS, 1, "{policy: round-robin}", "round_robin"),
        ):
            path = TRACES / file
            if not path.is_file():
                print(f"skipped: {file} is not in {TRACES} (WINDTUNNEL_TRACES names the folder)")
                continue
            shared = path
            if form == "azure":
                shared = Path(scratch, "azure.jsonl")
                as_mooncake(path, shared)
            peer = theirs(python, shared, servers, their_router)
            if peer is None:
                continue
            took_s, completed, version = peer
            assert completed == count
            report(
                Claim(
                    f"{file}, {count:,} requests on {servers} server(s), CPU",
                    ours=replay_s(form, path, count, servers, router),
                    baseline=took_s,
                    most=1.0,
                    unit="s",
                    against=f"dynamo.replay of ai-dynamo {version}, its default engine",
                )
            )


if __name__ == "__main__":
    main()
