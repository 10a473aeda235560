"""requests.parquet: its schema, a row per request, in agreement with result.json."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.page.runs import SPLIT
from tests.twin.runs import BUSY, one_server
from windtunnel.analysis.run_folder import REQUESTS
from windtunnel.report.files import requests as requests_file
from windtunnel.report.files.folder import RunFolder
from windtunnel.report.files.requests import TIMES
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run as run_plan
from windtunnel.twin.scenario.load import load_text

NAME, COUNT, TIME = pa.dictionary(pa.int32(), pa.string()), pa.int64(), pa.float64()
SCHEMA = {
    "id": COUNT,
    "source": NAME,
    "tenant": NAME,
    "slo": NAME,
    "adapter": NAME,
    "session": COUNT,
    "turn": pa.int32(),
    "deadline": TIME,
    "arrived": TIME,
    "admitted": TIME,
    "encoded": TIME,
    "restarted": TIME,
    "routed": TIME,
    "scheduled": TIME,
    "prefilled": TIME,
    "transfer_start": TIME,
    "transfer_end": TIME,
    "first_token": TIME,
    "finished": TIME,
    "outcome": NAME,
    "reason": NAME,
    "prompt_tokens": COUNT,
    "output_tokens": COUNT,
    "media_tokens": COUNT,
    "prefix_hit_tokens": COUNT,
    "preemptions": pa.int32(),
    "redirects": pa.int32(),
    "retries": pa.int32(),
    "pool": NAME,
    "replica": pa.int32(),
    "prefill_pool": NAME,
    "prefill_replica": pa.int32(),
    "lost_tries": pa.list_(
        pa.struct(
            [
                ("pool", pa.string()),
                ("replica", pa.int32()),
                *((name, TIME) for name in ("routed", "scheduled", "first_token", "ended")),
                ("reason", pa.string()),
            ]
        )
    ),
    "pauses": pa.list_(TIME),
}

Row = dict[str, Any]


def run(text: str, folder: Path) -> tuple[dict[str, Any], pa.Table]:
    plan = load_text(text)
    with RunFolder(folder) as place:
        done = run_plan(plan, rows=place.rows())
        place.finish(done)
    return done.result, pq.read_table(folder / REQUESTS)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Row]]:
    result, table = run(BUSY, tmp_path_factory.mktemp("busy"))
    return result, table.to_pylist()


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    "text", [BUSY, one_server().replace("name: one", "duration: 500ms")], ids=["busy", "none"]
)
def test_the_schema_is_the_same_with_and_without_rows(text: str, tmp_path: Path) -> None:
    result, table = run(text, tmp_path)
    assert {field.name: field.type for field in table.schema} == SCHEMA
    assert table.num_rows == result["requests"]["arrived"]


def test_every_request_has_a_row_and_an_outcome(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    assert sorted(row["id"] for row in rows) == list(range(result["requests"]["arrived"]))
    outcomes = Counter(row["outcome"] for row in rows)
    assert {**dict.fromkeys(result["requests"], 0), **outcomes} == (
        result["requests"] | {"arrived": 0}
    )


def test_completed_rows_add_up_to_the_result(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    done = [row for row in rows if row["outcome"] == "completed"]
    latency = result["latency"]
    for name, end in (("ttft", "first_token"), ("e2e", "finished"), ("queue", "scheduled")):
        times = [row[end] - row["arrived"] for row in done]
        assert latency[name]["mean"] == pytest.approx(mean(times), rel=1e-9)
        assert latency[name]["max"] == pytest.approx(max(times), rel=1e-9)
    for name in ("prompt", "output", "prefix_hit"):
        assert result["tokens"][name] == sum(row[f"{name}_tokens"] for row in done)


def test_times_are_in_order_and_there_as_far_as_a_request_came(
    busy: tuple[dict[str, Any], list[Row]],
) -> None:
    _, rows = busy
    for row in rows:
        assert row["admitted"] == row["arrived"]
        times = [row[name] for name in ("arrived", "scheduled", "first_token", "finished")]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        if row["outcome"] == "completed":
            assert None not in times
        elif row["outcome"] == "dropped":
            assert (row["scheduled"], row["first_token"]) == (None, None)
            assert row["finished"] >= row["arrived"]
        else:
            assert row["finished"] is None
            assert row["first_token"] is None or row["scheduled"] is not None


def test_whoever_did_not_complete_has_a_reason(busy: tuple[dict[str, Any], list[Row]]) -> None:
    _, rows = busy
    reasons = {
        outcome: {row["reason"] for row in rows if row["outcome"] == outcome}
        for outcome in ("completed", "dropped", "unfinished")
    }
    assert reasons["completed"] == {None}
    assert all(reason and reason.startswith("needs ") for reason in reasons["dropped"])
    assert reasons["unfinished"] == {
        "the run ended before prefill began",
        "the run ended during decode",
    }


def test_a_split_request_has_all_its_times_in_order(tmp_path: Path) -> None:
    result, table = run(SPLIT, tmp_path)
    rows = table.to_pylist()
    for row in rows:
        known = [row[name] for name in TIMES if row[name] is not None]
        assert known == sorted(known)
    split = [row for row in rows if row["prefill_pool"] and row["outcome"] == "completed"]
    assert len(split) > 50
    passed = [name for name in TIMES if name not in ("encoded", "restarted")]
    assert all(None not in [row[name] for name in passed] for row in split)
    whole = [row for row in rows if not row["prefill_pool"]]
    assert {row["prefilled"] for row in whole} == {None}
    assert {(row["prefill_pool"], row["pool"]) for row in split} == {("first", "second")}
    assert result["disaggregation"]["split"] == len(rows) - len(whole)


def test_rows_name_their_source_and_their_server(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    kinds = {(row["source"], row["tenant"], row["slo"]) for row in rows}
    assert kinds == {("chat", "default", "critical"), ("nightly", "acme", "batch")}
    servers = {(row["pool"], row["replica"]) for row in rows}
    assert servers == {("main", 0), ("main", 1), ("spare", 0)}
    assert {row["session"] for row in rows} == {row["turn"] for row in rows} == {None}
    for name, slo in result["slo"].items():
        assert slo["requests"] == sum(row["slo"] == name for row in rows)


def test_an_answer_that_was_cut_short_says_so(tmp_path: Path) -> None:
    text = one_server(output=50).replace("kv_blocks: 1000", "kv_blocks: 1000, max_model_len: 20")
    result, table = run(text, tmp_path)
    (row,) = table.to_pylist()
    assert result["tokens"]["output"] == row["output_tokens"] == 12
    assert row["reason"] == "the answer was cut short at max_model_len"


def test_rows_come_in_order_of_ending_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written does not depend on how many rows are handed over or written at a time."""
    _, whole = run(BUSY, tmp_path)
    monkeypatch.setattr(requests_file, "ROWS_PER_GROUP", 50)
    with RunFolder(tmp_path) as place:
        rows = place.rows()
        write = rows.write

        def in_parts(requests: list[Any], outcomes: list[str], names: RecordNames) -> None:
            for start in range(0, len(requests), 30):
                part = slice(start, start + 30)
                write(requests[part], outcomes[part], names)

        monkeypatch.setattr(rows, "write", in_parts)
        place.finish(run_plan(load_text(BUSY), rows=rows))
    groups = pq.ParquetFile(tmp_path / REQUESTS).num_row_groups
    assert groups == -(-whole.num_rows // 60) > 1
    assert pq.read_table(tmp_path / REQUESTS).to_pylist() == whole.to_pylist()
    finished = [row["finished"] for row in whole.to_pylist() if row["outcome"] == "completed"]
    assert len(finished) > 10


LOST = one_server(count=3, output=40).replace(
    "serving:\n", "serving:\n  startup: {load: {mean: 5s}}\n"
)


def test_tries_that_were_lost_keep_their_times(tmp_path: Path) -> None:
    crash = "faults: [{at: 2300ms, kind: engine-crash}]\n"
    rows = run(LOST + crash, tmp_path)[1].to_pylist()
    first, second, third = sorted(rows, key=lambda row: row["id"])
    assert (first["lost_tries"], first["restarted"], first["routed"]) == (None, None, 1.0)
    (lost,) = second["lost_tries"]
    assert lost == {
        "pool": "main",
        "replica": 0,
        "routed": 2.0,
        "scheduled": 2.0,
        "first_token": pytest.approx(2.018),
        "ended": pytest.approx(2.3),
        "reason": "its engine crashed",
    }
    assert (second["restarted"], second["routed"]) == (lost["ended"], pytest.approx(7.3))
    assert (third["lost_tries"], third["routed"]) == (None, second["routed"])
    assert (first["replica"], second["replica"], third["replica"]) == (0, 1, 1)


def test_pauses_are_waits_after_preemptions(busy: tuple[dict[str, Any], list[Row]]) -> None:
    _, rows = busy
    assert any(row["preemptions"] for row in rows)
    for row in rows:
        pauses = row["pauses"] or []
        assert bool(pauses) <= bool(row["preemptions"])
        assert len(pauses) <= 2 * row["preemptions"]
        assert pauses == sorted(pauses)
        if pauses:
            assert row["scheduled"] < pauses[0]
            assert row["finished"] is None or pauses[-1] < row["finished"]
            assert len(pauses) % 2 == 0 or row["outcome"] != "completed"
