"""How far latencies of every request are from BLIS's own on the same traces, and the CPU of both.

BLIS is not part of the repository: WINDTUNNEL_BLIS names its program (build it with `go build` in
its folder). Everything else is written here: traces, a model, an accelerator, its published
coefficients. Run: python -m benchmarks.peer_parity
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.claim import Claim, report
from windtunnel.core.random import Streams
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.blis import DEFAULT_ALPHA_US, DEFAULT_BETA

HORIZON_US = 9 * 10**15
SERVERS = (1, 4, 16)
HEADER = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n"
COLUMNS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,"
    "streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,"
    "reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,"
    "first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason"
)
SCENARIO = """\
model: {model}
workload:
  - trace: {{format: blis, path: run.yaml}}
serving:
  pools:
    - name: main
      replicas: {servers}
      accelerator: h100
      tensor_parallel: {tp}
      engine: {engine}
      step_time: {{model: blis-trained-physics}}
"""


class Case(NamedTuple):
    """A trace to draw, and its servers; with `blocks` of 0, each side derives its KV memory."""

    name: str
    rate_per_s: float
    requests: int
    prompt: float
    output: float
    model: str = "llama-3.1-8b"
    tp: int = 1
    groups: int = 0
    blocks: int = 0


CASES = (
    Case("light", 2.0, 1000, 600, 40),
    Case("busy", 12.0, 1500, 600, 200),
    Case("overload", 60.0, 1500, 900, 200),
    Case("prefixes", 20.0, 1500, 300, 150, groups=8),
    Case("few blocks", 12.0, 800, 500, 200, blocks=1000),
    Case("mixture on two", 6.0, 600, 600, 200, model="mixtral-8x7b", tp=2),
)
TIMED = Case("timed", 48.0, 6000, 600, 200)


def main() -> None:
    program = os.environ.get("WINDTUNNEL_BLIS")
    if not program:
        print("skipped: WINDTUNNEL_BLIS names no program of BLIS to compare with")
        return
    found = [compare(Path(program), case, servers) for case in CASES for servers in SERVERS]
    found.append(compare(Path(program), TIMED, SERVERS[-1]))
    worst = max(one.worst for one in found)
    report(
        Claim(
            "BLIS's traces, any request's TTFT or E2E against BLIS",
            ours=100 * worst,
            baseline=1.0,
            most=1.0,
            unit="%",
            against="the target",
        )
    )
    report(
        Claim(
            f"a BLIS trace of {TIMED.requests} requests on {SERVERS[-1]} servers, whole process",
            ours=found[-1].our_cpu_s,
            baseline=found[-1].their_cpu_s,
            most=1.0,
            unit="CPU s",
            against="BLIS",
        )
    )


class Compared(NamedTuple):
    """The largest relative difference of any request, and the CPU time of both."""

    worst: float
    our_cpu_s: float
    their_cpu_s: float


def compare(program: Path, case: Case, servers: int) -> Compared:
    """Replays a trace with both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(case, folder)
        theirs, their_cpu_s = peer(program.resolve(), case, servers, folder)
        ours, our_cpu_s = windtunnel(case, servers, folder)
    if set(ours) != set(theirs):
        sys.exit(f"{case.name}: {len(ours)} completed here, {len(theirs)} there")
    worst = 0.0
    for at, name in enumerate(("TTFT", "E2E")):
        apart = sorted(
            abs(ours[number][at] - times[at]) / times[at] for number, times in theirs.items()
        )
        worst = max(worst, apart[-1])
        print(
            f"{case.name}, {servers} servers, {name} of {len(theirs)} requests: "
            f"max {apart[-1]:.4%} apart, p99 {apart[int(0.99 * (len(apart) - 1))]:.4%}"
        )
    return Compared(worst, our_cpu_s, their_cpu_s)


def write_trace(case: Case, folder: Path) -> None:
    stream = Streams(1)[f"trace.{case.name}"]
    lines, at_us = [COLUMNS], 0
    for number in range(case.requests):
        at_us += 1 + int(stream.exponential(1e6 / case.rate_per_s))
        prompt, output = (
            1 + int(stream.lognormal(mean, 1.0)) for mean in (case.prompt, case.output)
        )
        group = stream.integer(0, case.groups - 1) if case.groups else 0
        prefix = f"g{group},{500 + 100 * group}" if case.groups else ",0"
        lines.append(
            f"{number},c,,,,0,{prefix},true,{prompt},{output},0,0,0,0,0,,0,0,{at_us},{at_us},"
            "0,0,0,ok,,"
        )
    (folder / "run.yaml").write_text(HEADER)
    (folder / "run.csv").write_text("\n".join(lines) + "\n")


Latencies = dict[int, tuple[float, float]]


def peer(program: Path, case: Case, servers: int, folder: Path) -> tuple[Latencies, float]:
    """Latencies by request, and the CPU time of BLIS."""
    shape = resolve_model(case.model)
    mixture = (
        {"num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token}
        if shape.is_mixture
        else {}
    )
    config = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_context,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": shape.tied_embeddings,
        "hidden_act": "silu",
        **mixture,
    }
    h100 = {"TFlopsPeak": 989.5, "TFlopsFP8": 1979.0, "BwPeakTBs": 3.35, "MemoryGiB": 80}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "defaults.yaml").write_text("defaults: {}\n")
    hardware = {"H100": {**h100, "mfuPrefill": 0.45, "mfuDecode": 0.3}}
    (folder / "hardware.json").write_text(json.dumps(hardware))
    command = f"""{program} replay --trace-header run.yaml --trace-data run.csv --model peer/model
        --model-config-folder . --hardware H100 --hardware-config hardware.json --tp {case.tp}
        --alpha-coeffs {",".join(map(str, DEFAULT_ALPHA_US))}
        --beta-coeffs {",".join(map(str, DEFAULT_BETA))}
        --num-instances {servers} --horizon {HORIZON_US} --results-path theirs.json --log error"""
    blocks = ["--total-kv-blocks", str(case.blocks)] if case.blocks else []
    spent_s = cpu_of([*command.split(), *blocks], folder)
    rows = json.loads((folder / "theirs.json").read_text())
    return {row["request_id"]: (row["ttft_us"] / 1e6, row["e2e_us"] / 1e6) for row in rows}, spent_s


def windtunnel(case: Case, servers: int, folder: Path) -> tuple[Latencies, float]:
    """Latencies by request, and the CPU time of the command, including reports."""
    import pyarrow.parquet as pq

    engine = f"{{kv_blocks: {case.blocks}}}" if case.blocks else "{}"
    parts = {"model": case.model, "servers": servers, "tp": case.tp, "engine": engine}
    (folder / "scenario.yaml").write_text(SCENARIO.format(**parts))
    command = [sys.executable, "-m", "windtunnel", "simulate", "scenario.yaml", "-o", "ours"]
    spent_s = cpu_of(command, folder)
    names = ["id", "outcome", "arrived", "first_token", "finished"]
    rows = pq.read_table(folder / "ours" / "requests.parquet", columns=names).to_pylist()
    return {
        row["id"]: (row["first_token"] - row["arrived"], row["finished"] - row["arrived"])
        for row in rows
        if row["outcome"] == "completed"
    }, spent_s


def cpu_of(command: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{command[0]} failed: {run.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return math.fsum((after.ru_utime, after.ru_stime, -before.ru_utime, -before.ru_stime))


if __name__ == "__main__":
    main()
