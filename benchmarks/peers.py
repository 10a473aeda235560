"""Other simulators on the same trace files, in the same run: CPU time of both, and the ratio.

`WINDTUNNEL_PEERS` names the Python of an environment that has them; none of them is installed or
shipped here. NVIDIA's replay (PyPI `ai-dynamo`, `dynamo.replay`) reads Mooncake's format, so
Azure's rows are converted to it. AIConfigurator (`aiconfigurator`) replays no trace: it is queried
for TTFT and TPOT of requests with the trace's mean lengths at several loads, and so are we.
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
from benchmarks.truth.__main__ import outcome
from benchmarks.truth.points import LLAMA, Point
from windtunnel.core.clock import cpu_s

ROOT = Path(__file__).parent.parent
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

ESTIMATE = """
import json, logging, sys, time
from importlib.metadata import version
from benchmarks.truth.beside_aiconfigurator import estimate
from benchmarks.truth.points import Point
logging.disable(logging.CRITICAL)
points = [Point(*one) for one in json.loads(sys.argv[1])]
estimate(points[0])  # reads its tables
start = time.process_time()
found = [estimate(one) for one in points]
print(json.dumps([found, (time.process_time() - start) / len(points), version("aiconfigurator")]))
"""
USERS = (1, 8, 32)
NO_VIDUR = "skipped: Vidur (PyPI 0.0.26) has to download its kernel profiles from Hugging Face"


def _said(python: str, *arguments: str) -> list[str] | None:
    """The words of a peer's last line; None if it failed, which is printed."""
    environment = os.environ | {"DYN_LOG": "error", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", *arguments], env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        print(f"skipped: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return done.stdout.strip().splitlines()[-1:]


def theirs(python: str, path: Path, workers: int, router: str) -> tuple[float, int, str] | None:
    """CPU seconds of NVIDIA's replay, the requests that it completed, and its version."""
    said = _said(python, REPLAY, str(path), str(workers), router, str(BLOCK_TOKENS))
    if said is None:
        return None
    took, completed, version = said[0].split()
    return float(took), int(completed), version


def beside_aiconfigurator(python: str, name: str, prompt_tokens: int, output_tokens: int) -> None:
    """TTFT and TPOT of requests of these lengths on one H200, and the CPU time of an answer."""
    asked = [
        Point(name, "vLLM", "h200", LLAMA, "dense", "bf16", 1, prompt_tokens, output_tokens, users)
        for users in USERS
    ]
    said = _said(python, ESTIMATE, json.dumps(asked))
    if said is None:
        return
    found, took_s, version = json.loads(said[0])
    start_s = cpu_s()
    own = [outcome(point).simulated for point in asked]
    own_s = (cpu_s() - start_s) / len(asked)
    print(f"{name}: {prompt_tokens} prompt and {output_tokens} output tokens, Llama 3.1 8B, H200")
    for users, ours, peer in zip(USERS, own, found, strict=True):
        for figure in ("ttft", "tpot"):
            print(
                f"  {users:2} at once: {figure} {1e3 * ours[figure]:8.2f} ms, AIConfigurator "
                f"{1e3 * peer[figure]:8.2f} ms, ratio {ours[figure] / peer[figure]:.2f}"
            )
    print(f"  CPU of an answer: {own_s:.3f} s, AIConfigurator {version} {took_s:.3f} s, ", end="")
    print(f"ratio {own_s / took_s:.2f}")


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


def mean_lengths(path: Path) -> tuple[int, int]:
    """Mean prompt and output tokens of a trace in Mooncake's format."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lengths = ("input_length", "output_length")
    prompt, output = (round(sum(row[name] for row in rows) / len(rows)) for name in lengths)
    return prompt, output


def main() -> None:
    insist_on_compiled()
    python = os.environ.get("WINDTUNNEL_PEERS")
    if not python:
        print("skipped: WINDTUNNEL_PEERS names no Python with ai-dynamo and aiconfigurator")
        sys.exit(0)
    print(NO_VIDUR)
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
            beside_aiconfigurator(python, file, *mean_lengths(shared))
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
