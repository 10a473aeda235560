"""A TraceV2 file replayed with BLIS's step times gives BLIS's latencies, to the microsecond.

What BLIS does is written out here once more, in whole microseconds: a list of running requests, a
queue, a loop. The peer itself is held against ours in benchmarks/peer_parity.py, for those who have
it.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from windtunnel.core.random import Streams
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load
from windtunnel.workload.request import Request

COLUMNS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,"
    "streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,"
    "reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,"
    "first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason"
)

SCENARIO = """\
model: llama-3.1-8b
workload:
  - trace: {format: blis, path: run.yaml}
serving:
  pools:
    - name: main
      replicas: %d
      accelerator: h100
      engine: %s
      step_time: {model: blis-trained-physics}
"""


class Row(NamedTuple):
    """A request of a trace; times are microseconds."""

    at: int
    prompt: int
    output: int


Latencies = dict[int, tuple[int, int]]
"""TTFT and E2E in microseconds, by the number of the request."""


def replayed(folder: Path, rows: list[Row], servers: int = 1, engine: str = "{}") -> Latencies:
    """What a plain scenario makes of a trace."""
    lines = [
        f"{n},c,,,,0,,0,true,{row.prompt},{row.output},0,0,0,0,0,,0,0,{row.at},{row.at},0,0,0,ok,,"
        for n, row in enumerate(rows)
    ]
    header = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n"
    (folder / "run.yaml").write_text(header)
    (folder / "run.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")
    (folder / "scenario.yaml").write_text(SCENARIO % (servers, engine))
    found: Latencies = {}

    class Sink:
        def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
            for one, outcome in zip(requests, outcomes, strict=True):
                if outcome == "completed":
                    times = (one.first_token_s - one.arrived_s, one.finished_s - one.arrived_s)
                    found[int(one.id)] = (round(times[0] * 1e6), round(times[1] * 1e6))

    run(load(folder / "scenario.yaml"), rows=Sink(), check=len(rows) < 100)
    return found


def step_us(chunks: list[tuple[int, int]], contexts: list[int]) -> int:
    """The published formula for Llama 3.1 8B on an H100: chunks are (new tokens, whole prompt)."""
    if not chunks and not contexts:
        return 1
    layers, d, kv, ffn, flops, rate = 32, 4096, 1024, 14336, 989.5e6, 3.35e6
    params = layers * (d * (2 * d + 2 * kv) + 3 * d * ffn)
    new = sum(chunk[0] for chunk in chunks)
    pairs = sum(chunk[0] * (chunk[1] + chunk[0] / 2) for chunk in chunks)
    prefill = (2 * params * new + 4 * layers * d * pairs) / flops
    reads = 4 * layers * kv * (sum(contexts) + len(contexts)) / rate
    weights = 2 * params / rate
    batch = len(chunks) + len(contexts)
    fitted = 0.152128 * prefill + 1.94710771 * reads + 1.36252915 * weights
    return int(fitted + 32.09546717 * layers + 4.41684444 * batch + 126.024825)


class Job:
    """A request on a server of the peer."""

    def __init__(self, number: int, row: Row) -> None:
        self.number = number
        self.row = row
        self.done = 0  # tokens computed
        self.new = 0  # tokens that this step computes
        self.first_us = 0

    @property
    def prompting(self) -> bool:
        return self.done < self.row.prompt

    def blocks(self, new: int) -> int:
        return -(-(self.done + new) // 16)


class Peer:
    """One server, without shared prefixes; a preempted request finds nothing of its own again."""

    def __init__(self, seqs: int = 256, tokens: int = 2048, blocks: int = 26312) -> None:
        self.seqs, self.tokens, self.blocks = seqs, tokens, blocks
        self.queue: list[Job] = []
        self.running: list[Job] = []
        self.found: Latencies = {}

    def serve(self, rows: list[Row]) -> Latencies:
        arrivals = [(row.at + 15563, Job(n, row)) for n, row in enumerate(rows)]
        free_us = 0
        while arrivals or self.queue or self.running:
            # With nobody to go on with, a newcomer does not wait for the step that ends the last.
            now_us = free_us if self.running or self.queue else arrivals[0][0]
            while arrivals and arrivals[0][0] <= now_us:
                self.queue.append(arrivals.pop(0)[1])
            self.form_batch()
            free_us = now_us + self.step_us()
            self.complete(free_us)
        return self.found

    def free(self) -> int:
        return self.blocks - sum(job.blocks(job.new) for job in self.running)

    def form_batch(self) -> None:
        budget, position, before = self.tokens, 0, len(self.running)
        while position < len(self.running):
            job = self.running[position]
            want = min(job.row.prompt - job.done, budget) if job.prompting else 1
            if job.blocks(want) - job.blocks(0) <= self.free():
                job.new = want
                budget -= want
                position += 1
                continue
            victim = self.running.pop()
            victim.done = victim.new = 0
            self.queue.insert(0, victim)
        if len(self.running) < before:
            return  # who preempts admits nobody
        while self.queue and budget > 0 and len(self.running) < self.seqs:
            job = self.queue[0]
            want = min(job.row.prompt, budget)
            if job.blocks(want) > self.free():
                return
            job.new = want
            budget -= want
            self.running.append(self.queue.pop(0))

    def step_us(self) -> int:
        chunks = [(job.new, job.row.prompt) for job in self.running if job.prompting]
        return step_us(chunks, [job.done for job in self.running if not job.prompting])

    def complete(self, end_us: int) -> None:
        goes_on = []
        for job in self.running:
            job.done, job.new = job.done + job.new, 0
            row = job.row
            if job.done == row.prompt:
                job.first_us = end_us + 45 - row.at
            if job.done == row.prompt + row.output - 1:
                e2e_us = end_us - row.at + 45 * row.output + 777
                self.found[job.number] = (job.first_us, e2e_us)
            else:
                goes_on.append(job)
        self.running = goes_on


def drawn(seed: int, count: int, rate_per_s: float, prompt: float, output: float) -> list[Row]:
    """Poisson arrivals and skewed lengths."""
    stream = Streams(seed)["trace"]
    rows, at = [], 0
    for _ in range(count):
        at += 1 + int(stream.exponential(1e6 / rate_per_s))
        sizes = (1 + int(stream.lognormal(mean, 1.3)) for mean in (prompt, output))
        rows.append(Row(at, *sizes))
    return rows


@pytest.mark.parametrize(("prompt", "ttft_us"), [(512, 23573), (2048, 27345), (8000, 47349)])
def test_a_lone_prompt_takes_what_was_published(tmp_path: Path, prompt: int, ttft_us: int) -> None:
    """The peer's worked numbers; 8000 tokens in one step need a budget of as many."""
    engine = "{max_num_batched_tokens: 8192}"
    (found,) = replayed(tmp_path, [Row(0, prompt, 2)], engine=engine).values()
    assert found[0] == ttft_us
    decode_us = step_us([], [prompt])
    assert found[1] == ttft_us + decode_us + 45 + 777
    if prompt == 8000:
        assert decode_us == 7444


@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("rate_per_s", [2.0, 12.0, 60.0])
def test_every_request_has_the_peers_latencies(
    tmp_path: Path, servers: int, rate_per_s: float
) -> None:
    """From a server that mostly sleeps to one with hundreds in its queue; each server in turn."""
    rows = drawn(int(rate_per_s), 300, rate_per_s, 650.0, 55.0)
    expected: Latencies = {}
    for server in range(servers):
        for number, latency in Peer().serve(rows[server::servers]).items():
            expected[server + servers * number] = latency
    assert replayed(tmp_path, rows, servers) == expected


@pytest.mark.parametrize(
    ("seqs", "tokens", "blocks"), [(4, 64, 26312), (16, 512, 26312), (256, 2048, 150)]
)
def test_limits_and_preemptions_are_the_peers(
    tmp_path: Path, seqs: int, tokens: int, blocks: int
) -> None:
    rows = [row for row in drawn(5, 80, 20.0, 150.0, 55.0) if row.prompt + row.output < 1600]
    engine = (
        f"{{max_num_seqs: {seqs}, max_num_batched_tokens: {tokens}, kv_blocks: {blocks}, "
        "prefix_caching: false}"
    )
    assert replayed(tmp_path, rows, engine=engine) == Peer(seqs, tokens, blocks).serve(rows)


def test_what_comes_at_the_very_end_of_a_step_is_in_the_next(tmp_path: Path) -> None:
    """Two clocks of floating point would disagree on some of these ties."""
    alone = Peer().serve([Row(1_000_000, 100, 400)])[0]
    first_step_us = alone[0] - 45
    ends = [first_step_us]
    for step in range(100):
        ends.append(ends[-1] + step_us([], [100 + step]))
    for end in ends[::9]:
        rows = [Row(1_000_000, 100, 400), Row(1_000_000 + end - 15563, 10, 1)]
        assert replayed(tmp_path, rows) == Peer().serve(rows)
