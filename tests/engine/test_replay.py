"""A run that the engine itself recorded is replayed: its time per step is found, its order kept."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.engine.replay import (
    RecordedRequest,
    RecordedRun,
    compare,
    fit_per_step,
    read_run,
    simulate,
)
from windtunnel.models.step_time.table import Grid, Table, TimeCurve

CLOCKS_APART_S = 1234.5
PER_STEP_S = 2.5e-3
PROMPT = [TimeCurve([0.0, 4096.0], [1e-3, 2e-3]), TimeCurve([0.0, 4096.0], [0.1, 0.12])]
DECODE = [TimeCurve([16.0, 4096.0], [1e-4, 4e-4]), TimeCurve([16.0, 4096.0], [1e-3, 2e-2])]
TABLE = Table(
    Grid([16.0, 2048.0], [], PROMPT),
    Grid([1.0, 64.0], [], DECODE),
    None,
    0.0,
    TimeCurve([1.0, 2048.0], [9e-3, 8e-2]),
    TimeCurve([1.0, 64.0], [7e-4, 9e-4]),
)


def recorded_by_the_engine(*, async_scheduling: bool, kv_blocks: int | None = None) -> RecordedRun:
    """Some hundred requests that come faster than 24 slots serve them, as the engine timed them."""
    stream = Streams(3)["replay"]
    at = 1_777_000_000.0
    requests = []
    for _ in range(120):
        at += stream.exponential(0.05)
        sizes = (1 + int(stream.uniform() * 900), 2 + int(stream.uniform() * 120))
        requests.append(RecordedRequest(*sizes, at, at, at, at, at))
    run = RecordedRun(
        tuple(requests),
        max_num_seqs=24,
        async_scheduling=async_scheduling,
        kv_blocks=kv_blocks,
    )
    times = []
    for request, served in zip(
        requests, simulate(run, TABLE.with_per_step(PER_STEP_S)), strict=True
    ):
        moments = (served.arrived_s, served.scheduled_s, served.first_token_s, served.finished_s)
        queued, scheduled, first, last = (moment + CLOCKS_APART_S for moment in moments)
        times.append(
            msgspec.structs.replace(
                request,
                queued_ts=queued,
                scheduled_ts=scheduled,
                first_token_ts=first,
                last_token_ts=last,
            )
        )
    return msgspec.structs.replace(run, requests=tuple(times))


@pytest.mark.parametrize("async_scheduling", [True, False])
@pytest.mark.parametrize("kv_blocks", [None, 600])
def test_the_time_per_step_of_a_run_is_found(
    *, async_scheduling: bool, kv_blocks: int | None
) -> None:
    run = recorded_by_the_engine(async_scheduling=async_scheduling, kv_blocks=kv_blocks)
    per_step_s = fit_per_step(run, TABLE.with_per_step)
    assert per_step_s == pytest.approx(PER_STEP_S, rel=0.01)
    found = compare(run, TABLE.with_per_step(per_step_s), per_step_s)
    assert found.requests == 120
    assert (found.preemptions > 0) == (kv_blocks is not None)
    assert found.order_agreement >= 0.99
    for figures in found.latency.values():
        for figure in figures.values():
            assert abs(figure.error) < 0.02


def test_the_replay_with_the_same_time_is_the_run_itself() -> None:
    run = recorded_by_the_engine(async_scheduling=True)
    found = compare(run, TABLE.with_per_step(PER_STEP_S), PER_STEP_S)
    assert found.order_agreement == 1.0
    assert list(found.latency) == ["ttft", "tpot", "e2e"]
    for figures in found.latency.values():
        assert list(figures) == ["mean", "p50", "p90", "p99"]
        for figure in figures.values():
            assert figure.simulated == pytest.approx(figure.measured, rel=1e-6)


def test_a_run_faster_than_its_tables_needs_no_time_per_step() -> None:
    run = recorded_by_the_engine(async_scheduling=True)
    assert fit_per_step(run, lambda extra: TABLE.with_per_step(PER_STEP_S + 0.001 + extra)) == 0.0


def test_tables_of_another_world_are_said_to_be_that() -> None:
    run = recorded_by_the_engine(async_scheduling=True)
    slow = [
        msgspec.structs.replace(r, last_token_ts=r.first_token_ts + 1e4 * r.output_toks)
        for r in run.requests
    ]
    with pytest.raises(InputError, match="another model or accelerator"):
        fit_per_step(msgspec.structs.replace(run, requests=tuple(slow)), TABLE.with_per_step)


# Files

GOOD: dict[str, object] = {
    "input_toks": 9,
    "output_toks": 3,
    "arrival_time": 5.0,
    "queued_ts": 1.0,
    "scheduled_ts": 1.1,
    "first_token_ts": 1.2,
    "last_token_ts": 1.3,
}
LATE = {"arrival_time": 6.5, "queued_ts": 3.0, "scheduled_ts": 3.0, "first_token_ts": 4.0}
META = {"model": "llama-3.1-8b", "vllm_version": "0.19.0", "engine_kwargs": {"max_num_seqs": 8}}


def write(folder: Path, meta: object = META, **changes: object) -> Path:
    (folder / "meta.json").write_text(json.dumps(meta))
    lines = [
        {**GOOD, **LATE, "last_token_ts": 5.0},
        {**GOOD, "request_id": "bench-0", **changes},
    ]
    text = "\n".join(json.dumps({k: v for k, v in x.items() if v is not None}) for x in lines)
    (folder / "requests.jsonl").write_text(text)
    return folder


def test_a_run_is_read_in_order_of_arrival(tmp_path: Path) -> None:
    run = read_run(write(tmp_path))
    assert [request.arrival_time for request in run.requests] == [5.0, 6.5]
    assert run.clocks_apart_s == pytest.approx(-4.0)
    assert (run.max_num_seqs, run.max_num_batched_tokens, run.kv_blocks) == (8, 2048, None)
    assert run.async_scheduling
    assert run.limits().kv_blocks == 2 + 1 + 1


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("0.13.2", {}, False),
        ("0.14.0", {}, True),
        ("1.0", {}, True),
        ("nightly", {}, True),
        ("0.19.0", {"async_scheduling": False}, False),
    ],
)
def test_scheduling_is_the_versions_unless_it_was_given(
    tmp_path: Path, version: str, given: dict[str, object], *, expected: bool
) -> None:
    meta = {"vllm_version": version, "engine_kwargs": given}
    assert read_run(write(tmp_path, meta)).async_scheduling is expected


def test_what_vllm_resolved_counts_more_than_what_it_was_given(tmp_path: Path) -> None:
    meta = {
        **META,
        "kv_cache": {"num_gpu_blocks": 2588, "block_size": 32},
        "resolved_config": {
            "scheduler_config": {"max_num_seqs": 64, "scheduler_reserve_full_isl": False}
        },
    }
    run = read_run(write(tmp_path, meta))
    assert (run.kv_blocks, run.block_size, run.max_num_seqs) == (2588, 32, 64)
    assert not run.reserve_full_prompt


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"output_toks": 0}, r"requests\.jsonl:2: not a request"),
        ({"input_toks": "many"}, "expected `int`, got `str`"),
        ({"queued_ts": None}, "missing required field `queued_ts`"),
        ({"scheduled_ts": 0.5}, "the times are out of order"),
        ({"last_token_ts": 1.2}, "several tokens came at one instant"),
        ({"last_token_ts": math.nan}, "the line is not JSON"),
        ({"last_token_ts": 1e999}, "the line is not JSON"),
        ({"arrival_time": 1e308}, r"requests\.jsonl:2: arrival_time is 1e\+308; allowed: seconds"),
        ({"queued_ts": -1e308}, r"requests\.jsonl:2: queued_ts is -1e\+308"),
    ],
)
def test_a_bad_request_is_a_sentence(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        read_run(write(tmp_path, **changes))


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        ([], r"meta\.json: the file is not a JSON object"),
        ({"engine_kwargs": {"max_num_seqs": "x"}}, "not the settings of a server"),
        ({"engine_kwargs": {"max_num_seqs": 0}}, "max_num_seqs or block_size is 0"),
        ({"engine_kwargs": {"max_num_batched_tokens": -5}}, "max_num_batched_tokens is -5"),
        ({"engine_kwargs": {"tensor_parallel_size": [1]}}, "not the settings of a server"),
        ({"engine_kwargs": {"data_parallel_size": 0}}, "not the settings of a server"),
        ({"engine_kwargs": {"max_model_len": 10**30}}, "max_model_len is 1.*; allowed: at most"),
        ({"engine_kwargs": {"max_num_batched_tokens": 1e30}}, r"max_num_batched_tokens is 1e\+30"),
        ({"kv_cache": {"num_gpu_blocks": 10**30}}, r"meta\.json: kv_blocks is 1"),
    ],
)
def test_bad_settings_are_a_sentence(tmp_path: Path, meta: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_run(write(tmp_path, meta))


def test_ranks_and_stages_have_limits_of_their_own(tmp_path: Path) -> None:
    degrees = {"tensor_parallel_size": 4, "data_parallel_size": 2, "pipeline_parallel_size": 3}
    given = {"max_num_seqs": 8, "max_num_batched_tokens": 100, "enable_expert_parallel": True}
    run = read_run(write(tmp_path, {**META, "engine_kwargs": given | degrees}))
    assert (run.gpus, run.expert_parallel) == (24, True)
    limits = run.limits()
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (16, 600)


def test_a_folder_without_a_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"requests\.jsonl: the file cannot be read: no such file"):
        read_run(tmp_path)
    write(tmp_path)
    (tmp_path / "requests.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no request has two output tokens"):
        read_run(tmp_path)


def test_a_request_that_the_settings_refuse_is_a_sentence(tmp_path: Path) -> None:
    meta = {**META, "engine_kwargs": {"max_num_seqs": 8, "max_model_len": 8}}
    with pytest.raises(InputError, match="request 1 cannot be replayed: prompt of 9 tokens"):
        simulate(read_run(write(tmp_path, meta)), TABLE)
