"""The Perfetto trace: the fields its format wants, ordered, nested, bounded, true to the run."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.runs import STUCK, full
from tests.twin.runs import BUSY, one_server
from windtunnel.cli.main import main
from windtunnel.report import perfetto
from windtunnel.report.perfetto import PerfettoTrace
from windtunnel.report.sinks import RowSinks
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import load_text

Event = dict[str, Any]


def traced(text: str, name: str = "trace.json") -> tuple[Run, dict[str, Any]]:
    plan = load_text(text)
    trace = PerfettoTrace(plan)
    done = run(plan, rows=RowSinks([trace]))
    content = trace.content(done, Path(name))
    return done, json.loads(gzip.decompress(content) if name.endswith(".gz") else content)


@pytest.mark.parametrize("text", [BUSY, STUCK, full(rate=60), one_server()])
def test_every_event_has_what_the_format_wants(text: str) -> None:
    done, trace = traced(text)
    end_us = done.result["simulated_seconds"] * 1e6
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] >= 0.0
    assert times[-1] <= end_us * (1 + 1e-9) + 1e5  # what a client sees may come after the last step
    for event in trace["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert event["ph"] in "MCXbe"
        if event["ph"] == "X":
            assert event["dur"] >= 0.0
        elif event["ph"] == "C":
            assert event["args"]["value"] >= 0
        elif event["ph"] in "be":
            assert event["cat"] == "request"


def test_pools_are_processes_and_servers_are_tracks() -> None:
    _, trace = traced(BUSY)
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    assert names == {
        ("process_name", 1, 0): "pool main",
        ("process_name", 2, 0): "pool spare",
        ("thread_name", 1, 1): "server 0",
        ("thread_name", 1, 2): "server 1",
        ("thread_name", 2, 1): "server 0",
    }


def test_requests_pass_through_their_phases_in_order() -> None:
    done, trace = traced(BUSY)
    requests: dict[int, list[Event]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "be":
            requests[event["id"]].append(event)
    assert len(requests) == done.result["requests"]["arrived"]
    phases = []
    for events in requests.values():
        open_slices: list[str] = []
        for event in events:
            if event["ph"] == "b":
                open_slices.append(event["name"])
            else:
                assert open_slices.pop() == event["name"]
        assert open_slices == []
        assert events[0]["name"] in ("chat", "nightly")
        assert events[0]["args"]["outcome"] in done.result["requests"]
        phases.append(tuple(event["name"] for event in events[1:-1] if event["ph"] == "b"))
    assert {("queue",), ("queue", "prefill", "decode")} <= set(phases)
    assert set(phases) <= {("queue",), ("queue", "prefill"), ("queue", "prefill", "decode")}


def test_slices_of_a_server_follow_each_other_and_count_its_steps() -> None:
    _, trace = traced(one_server(output=300))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for before, after in pairwise(slices):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.001
    assert slices[0]["name"] == "batch 1"
    # The last steps end between the last two samples, the latter of which finds nobody running.
    assert 270 < sum(event["args"]["steps"] for event in slices) <= 300


def test_many_requests_are_thinned_out_evenly_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(perfetto, "MOST_REQUESTS", 100)
    done, trace = traced(full(rate=60))
    arrived = done.result["requests"]["arrived"]
    ids = sorted({event["id"] for event in trace["traceEvents"] if event["ph"] == "b"})
    assert 50 <= len(ids) <= 100
    step = ids[1] - ids[0]
    assert ids == list(range(0, arrived, step))
    said = f"the trace has every {step}th request, since more than 100 make it hard to open"
    assert trace["otherData"]["requests"] == said


def test_a_name_that_ends_in_gz_is_compressed_the_same_each_time() -> None:
    plan = load_text(BUSY)
    contents = []
    for _ in range(2):
        trace = PerfettoTrace(plan)
        contents.append(trace.content(run(plan, rows=trace), Path("a.json.gz")))
    assert contents[0] == contents[1]
    assert json.loads(gzip.decompress(contents[0])) == traced(BUSY)[1]


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("busy.yaml").write_text(BUSY)
    monkeypatch.setattr(perfetto, "MOST_REQUESTS", 100)
    with pytest.raises(SystemExit) as left:
        main(["simulate", "busy.yaml", "--json", "-", "--perfetto", "trace.json.gz"])
    assert left.value.code == 0
    captured = capsys.readouterr()
    arrived = json.loads(captured.out)["requests"]["arrived"]
    assert arrived > 100
    assert "windtunnel: trace.json.gz: the trace has every " in captured.err
    assert sorted(path.name for path in Path().iterdir()) == ["busy.yaml", "trace.json.gz"]
    trace = json.loads(gzip.decompress(Path("trace.json.gz").read_bytes()))
    assert trace["otherData"]["name"] == "busy"
