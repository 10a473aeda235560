"""The Perfetto trace: the fields its format wants, ordered, nested, bounded, true to the run."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.runs import GATED, SILENT, SPLIT, STUCK, TALKS, full
from tests.twin.runs import BUSY, one_server
from windtunnel.cli.main import main
from windtunnel.report.files import perfetto
from windtunnel.report.files.perfetto import PerfettoTrace
from windtunnel.report.files.requests import RowSinks
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import load_text

Event = dict[str, Any]


def traced(text: str, name: str = "trace.json") -> tuple[Run, dict[str, Any]]:
    plan = load_text(text)
    trace = PerfettoTrace(plan)
    done = run(plan, rows=RowSinks([trace]))
    content = trace.content(done, Path(name))
    return done, json.loads(gzip.decompress(content) if name.endswith(".gz") else content)


def check(trace: dict[str, Any]) -> None:
    """What the reader of the format insists on, as its source has it."""
    events: list[Event] = trace["traceEvents"]
    assert all(event["ph"] in "MCXbe" for event in events)
    assert all({"name", "pid", "tid"} <= event.keys() for event in events)
    assert all(event["pid"] > 0 < event["tid"] for event in events)  # 0 is the kernel's idle thread
    names = [event for event in events if event["ph"] == "M"]
    assert events[: len(names)] == names
    # A thread is known by its number alone, whatever process it says it is of.
    threads = {event["tid"]: event["pid"] for event in events}
    assert all(threads[event["tid"]] == event["pid"] for event in events)
    named = {(event["name"], event["tid"]) for event in names}
    assert len(named) == len(names)
    processes = {event["pid"] for event in names if event["name"] == "process_name"}
    assert {event["pid"] for event in events} <= processes
    timed = events[len(names) :]
    times = [event["ts"] for event in timed]
    assert times == sorted(times)
    assert all(time >= 0.0 and time * 1e3 == pytest.approx(round(time * 1e3)) for time in times)
    check_counters(timed)
    check_batches(timed, named)
    check_requests(timed)


def check_counters(events: list[Event]) -> None:
    for event in events:
        if event["ph"] == "C":
            assert event["args"]
            for value in event["args"].values():
                assert isinstance(value, int | float)
                assert value >= 0


def check_batches(events: list[Event], named: set[tuple[str, int]]) -> None:
    """Slices of one thread never overlap, not by a nanosecond."""
    ends: dict[int, int] = {}
    for event in events:
        if event["ph"] == "X":
            assert ("thread_name", event["tid"]) in named
            start, length = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            assert length >= 0
            assert start >= ends.get(event["tid"], 0)
            ends[event["tid"]] = start + length


def check_requests(events: list[Event]) -> None:
    """Every slice that begins ends, the inner one first; every arrow leaves before it arrives."""
    open_slices: dict[tuple[str, str], list[Event]] = defaultdict(list)
    left: set[int] = set()
    arrived: set[int] = set()
    for event in events:
        if event["ph"] not in "be":
            continue
        stack = open_slices[event["cat"], event["id"]]
        if event["ph"] == "b":
            stack.append(event)
        else:
            begun = stack.pop()
            assert (begun["name"], begun["pid"]) == (event["name"], event["pid"])
        if event.get("flow_out"):
            assert event["bind_id"] not in left
            left.add(event["bind_id"])
        if event.get("flow_in"):
            assert event["bind_id"] in left - arrived
            arrived.add(event["bind_id"])
    assert not any(open_slices.values())
    assert left == arrived


EVERY_KIND = [BUSY, STUCK, SILENT, SPLIT, TALKS, GATED, full(rate=60), one_server()]


@pytest.mark.parametrize("text", EVERY_KIND)
def test_the_trace_is_what_its_reader_insists_on(text: str) -> None:
    done, trace = traced(text)
    check(trace)
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    end_us = done.result["simulated_seconds"] * 1e6
    assert times[-1] <= end_us * (1 + 1e-9) + 1e5  # what a client sees may come after the last step
    assert trace["otherData"]["left out"] == "nothing"


def test_pools_are_processes_and_servers_are_tracks() -> None:
    _, trace = traced(BUSY)
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    assert names == {
        ("process_name", 1, 1): "pool main",
        ("process_name", 2, 2): "pool spare",
        ("process_name", 3, 3): "cluster",
        ("thread_name", 1, 4): "server 0",
        ("thread_name", 1, 5): "server 1",
        ("thread_name", 2, 6): "server 0",
    }


def requests_of(trace: dict[str, Any]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "be":
            found[event["id"]].append(event)
    return found


def phases_of(events: list[Event]) -> tuple[str, ...]:
    return tuple(event["name"] for event in events[1:-1] if event["ph"] == "b")


def test_requests_pass_through_their_phases_in_order() -> None:
    done, trace = traced(BUSY)
    requests = requests_of(trace)
    assert len(requests) == done.result["requests"]["arrived"]
    for events in requests.values():
        assert events[0]["name"] in ("chat", "nightly")
        assert events[0]["args"]["outcome"] in done.result["requests"]
    phases = {phases_of(events) for events in requests.values()}
    assert {("queue",), ("queue", "prefill", "decode")} <= phases
    whole = ("queue", "prefill", "decode")
    assert all(found in (whole[:1], whole[:2], whole, whole[1:]) for found in phases)


def test_a_split_request_is_on_both_servers_with_an_arrow_between() -> None:
    done, trace = traced(SPLIT)
    requests = requests_of(trace)
    prompts = {key: events for key, events in requests.items() if key.endswith("-prompt")}
    assert len(prompts) == done.result["disaggregation"]["split"]
    whole = ("queue", "prefill", "room", "transfer", "start", "decode")
    arrows = 0
    for key, events in prompts.items():
        request = requests[key.removesuffix("-prompt")]
        assert (events[0]["pid"], request[0]["pid"]) == (1, 2)
        assert events[0]["name"] == f"{request[0]['name']}, prompt"
        assert set(phases_of(events)) <= {"queue", "prefill"}
        found = phases_of(request)
        assert list(found) == [name for name in whole if name in found]
        arrows += any(event.get("flow_in") for event in request)
        assert ("transfer" in found) == any(event.get("flow_out") for event in events)
    assert arrows > 50


def test_the_line_at_the_gateway_is_a_phase_and_a_counter() -> None:
    done, trace = traced(GATED)
    assert done.result["latency"]["gateway"]["max"] > 0.0
    assert done.result["requests"]["rejected"] > 0
    phases = [phases_of(events) for events in requests_of(trace).values()]
    assert ("gateway", "queue", "prefill", "decode") in phases
    nowhere = [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "b" and "args" in event and event["args"]["outcome"] == "rejected"
    ]
    assert {event["pid"] for event in nowhere} == {2}
    assert all(event["args"]["reason"] for event in nowhere)
    waiting = [
        event["args"]["at the gateway"]
        for event in trace["traceEvents"]
        if event["ph"] == "C" and "at the gateway" in event["args"]
    ]
    assert max(waiting) > 0


def test_states_are_told_when_they_change() -> None:
    _, trace = traced(one_server(output=300))
    states: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            for key, value in event["args"].items():
                states[event["name"], key].append(value)
    assert states["server 0", "running"] == [0, 1, 0]
    assert states["cluster", "KV transfers"] == [0]
    assert all(a != b for values in states.values() for a, b in pairwise(values))


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
    ids = sorted(int(key) for key in requests_of(trace))
    assert 50 <= len(ids) <= 100
    step = ids[1] - ids[0]
    assert ids == list(range(0, arrived, step))
    said = f"the trace has one request in {step}, since more would make it hard to open"
    assert trace["otherData"]["left out"] == said
    check(trace)


def test_states_of_many_servers_are_thinned_out_evenly_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(perfetto, "MOST_COUNTS", 50)
    done, trace = traced(full(rate=60, replicas=4))
    check(trace)
    stride = -(-len(done.timeline.samples) * 4 // 50)
    said = f"the trace has one state of each server in {stride}, since more would make it hard "
    assert trace["otherData"]["left out"] == f"{said}to open"
    times = {event["ts"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert len(times) <= 13
    last_us = done.timeline.samples[-1].time_s * 1e6
    assert max(times) == pytest.approx(last_us)


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
    assert "windtunnel: trace.json.gz: the trace has one request in " in captured.err
    assert sorted(path.name for path in Path().iterdir()) == ["busy.yaml", "trace.json.gz"]
    trace = json.loads(gzip.decompress(Path("trace.json.gz").read_bytes()))
    assert trace["otherData"]["name"] == "busy"
