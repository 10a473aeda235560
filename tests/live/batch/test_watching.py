"""What is seen of a run while it goes, and how it is asked to stop."""

import asyncio
import io
import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.live.batch.running import PATIENCE_S, batch, prompts, start, write_rows
from tests.live.server import Asked, Said, Server, answer
from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import ObservedLimit, ObservedLimits
from windtunnel.admission.requests.endpoint import RequestAsk, RequestLease, TokenEstimate
from windtunnel.core.random import Streams
from windtunnel.live.batch.tally import BatchView, ColumnView, ModelView, held_by
from windtunnel.report.terminal.batch_progress import BatchPace, line, picture, showing

Serve = Callable[..., Server]


class Gate:
    """Replies after the first few wait until the test lets them go."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.seen = 0
        self.opened = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    def reply(self, asked: Asked) -> Said:
        self.loop = asyncio.get_running_loop()
        self.seen += 1
        said = answer(asked)
        if self.seen > self.free:
            said.hold = self._wait
        return said

    async def _wait(self) -> None:
        await self.opened.wait()

    def open(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.opened.set)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_drains_what_is_in_flight_and_says_how_to_go_on(
    tmp_path: Path, serve: Serve, number: signal.Signals, code: int
) -> None:
    gate = Gate(free=10)
    server = serve(gate.reply)
    write_rows(tmp_path / "in.jsonl", prompts(100))
    args = ("--endpoint", server.url, "--concurrency", 4)
    with start(tmp_path, *args) as process:
        server.wait_for(14)
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("windtunnel: waiting for 4 calls in flight")
        gate.open()
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "14 of 100 rows are in" in said
    assert "86 rows are left; this continues with them:" in said
    assert said.rstrip().endswith("--resume")
    assert len(server.asked) == 14
    done = batch(tmp_path, *args, "--resume")
    assert (done.code, len(server.asked), len(done.lines)) == (0, 100, 100)


def test_a_second_signal_leaves_what_is_in_flight(tmp_path: Path, serve: Serve) -> None:
    gate = Gate(free=3)
    server = serve(gate.reply)
    write_rows(tmp_path / "in.jsonl", prompts(20))
    with start(tmp_path, "--endpoint", server.url, "--concurrency", 2) as process:
        server.wait_for(5)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert "3 of 20 rows are in" in said
    assert "Traceback" not in said


def test_prometheus_metrics_while_it_runs(tmp_path: Path, serve: Serve) -> None:
    gate = Gate(free=5)
    server = serve(gate.reply)
    write_rows(tmp_path / "in.jsonl", prompts(8))
    with start(tmp_path, "--endpoint", f"e={server.url}", "--metrics-port", 0) as process:
        assert process.stdout is not None
        place = process.stdout.readline().split()[-1]
        server.wait_for(8)
        page = ""
        while 'windtunnel_batch_rows{state="finished"} 5.0' not in page:
            with urllib.request.urlopen(place, timeout=PATIENCE_S) as reply:
                page = reply.read().decode()
        gate.open()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    for said in (
        'windtunnel_batch_rows{state="open"} 3.0',
        'windtunnel_batch_cells_total{column="answer"} 5.0',
        'windtunnel_batch_in_flight{endpoint="e",model="m"} 3.0',
        'windtunnel_batch_calls_total{endpoint="e",model="m",outcome="success"} 5.0',
        'windtunnel_batch_tokens_total{endpoint="e",kind="completion",model="m"} 35.0',
        'windtunnel_batch_call_seconds_count{endpoint="e",model="m"} 5.0',
        'windtunnel_batch_cooldown_seconds{endpoint="e",model="m"} 0.0',
    ):
        assert said in page


def test_a_trace_has_every_call_and_what_was_allowed(tmp_path: Path, serve: Serve) -> None:
    refused = iter([True])

    def reply(asked: Asked) -> Said:
        if next(refused, False):
            return Said(429, {}, {"retry-after-ms": "10"})
        return answer(asked)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(20))
    done = batch(
        tmp_path,
        *("--endpoint", f"e={server.url}", "--concurrency", 2, "--group-rows", 8),
        *("--perfetto", tmp_path / "t.json", "--events", tmp_path / "e.jsonl"),
    )
    assert done.code == 0, done.said
    trace = json.loads((tmp_path / "t.json").read_text())
    events = trace["traceEvents"]
    calls = [event for event in events if event.get("cat") == "call"]
    assert sum(1 for event in calls if event["ph"] == "b") == 21
    assert sorted(event["id"] for event in calls if event["ph"] == "e") == list(range(1, 22))
    groups = [event for event in events if event.get("cat") == "row group"]
    assert [event["ph"] for event in groups].count("b") == 3
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"rows", "e/m/chat"}
    assert [event["name"] for event in events if event["ph"] == "i"].count("refused") == 1
    marks = [event["name"] for event in events if event["ph"] == "i"]
    assert (marks[0], marks[-1]) == ("job started", "job completed")
    counted = [event for event in events if event["ph"] == "C"]
    health = [event["args"] for event in counted if event["name"] == "job"]
    assert health[-1] == dict.fromkeys(("in_flight", "queued", "resting", "parked", "open_rows"), 0)
    counters = [event["args"] for event in counted if event["name"] == "calls"]
    assert all(counter["in_flight"] <= 2 and 1 <= counter["limit"] <= 2 for counter in counters)
    assert len(counters) > 40
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    told = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    acquired = [event for event in told if event["kind"] == "request_lease_acquired"]
    assert len({event["data"]["attempt"] for event in acquired}) == 21
    assert acquired[0]["data"]["run"] == "batch"
    assert {event["data"]["task"] for event in acquired} == {
        f"{number}/answer" for number in range(1, 21)
    }


def view(elapsed_s: float, done: int, cooldown_s: float = 0.0) -> BatchView:
    model = ModelView(
        "local", "llama", 12, 16, 3, cooldown_s, done + 9, done, 7, 2, 100, 10 * done, 0.5, 0.1
    )
    column = ColumnView("summary", done, done, 1000)
    return BatchView(elapsed_s, 1000, done, 0, 4, 1, (column,), (model,))


def drawn(seen: BatchView, pace: BatchPace) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=120).print(picture(seen, pace))
    return stream.getvalue()


def test_the_picture_shows_columns_and_models() -> None:
    pace = BatchPace()
    for second in range(31):
        seen = view(float(second), 10 * second, cooldown_s=4.5)
        pace.look(seen)
    text = drawn(seen, pace)
    assert "300 of 1,000 rows finished   4 dropped   1 given up   30 s so far" in text
    row = next(part for part in text.splitlines() if part.startswith("summary"))
    assert "300 of 1,000" in row
    assert " 10/s " in row
    assert "1 min 10 s" in row
    model = next(part for part in text.splitlines() if part.startswith("llama at local"))
    assert model.split()[3:8] == ["12", "16", "3", "7", "2"]
    assert "100/s" in model
    assert "waits 4.5 s" in model


def test_the_line_for_logs() -> None:
    pace = BatchPace()
    pace.look(view(0.0, 0))
    seen = view(10.0, 100)
    pace.look(seen)
    assert line(seen, pace) == (
        "100 of 1,000 rows, 10/s, 12 in flight, 7 times refused (429), 4 dropped, 1 given up, "
        "1 min 30 s left"
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_showing_ends_with_the_run(is_terminal: bool) -> None:
    stream = io.StringIO()

    async def main() -> None:
        async with showing(lambda: view(1.0, 5), stream, is_terminal=is_terminal):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) <= 2

    asyncio.run(main())
    assert ("5 of 1,000" in stream.getvalue()) == is_terminal


def test_a_budget_that_holds_a_run_back_is_shown() -> None:
    seen = view(10.0, 100)
    held = msgspec.structs.replace(
        seen.models[0], budget_wait_s=22.2, budget="100 tokens a minute, as its replies say"
    )
    seen = msgspec.structs.replace(seen, models=(held,))
    pace = BatchPace()
    pace.look(seen)
    said = "local is held to 100 tokens a minute, as its replies say"
    assert said in line(seen, pace)
    assert "waits 23 s: 100 tokens" in drawn(seen, pace)


def test_which_budget_a_call_waits_for() -> None:
    admission = RequestAdmission("test", Streams(1))
    admission.register("p", "m", "m", 9, 0.0)
    ask = RequestAsk("p", "m", Domain.CHAT, tokens=TokenEstimate(90))
    lease = admission.acquire(ask, 0.0)
    assert isinstance(lease, RequestLease)
    learned = ObservedLimits(tokens=ObservedLimit(limit=100, left=40))
    admission.release(lease, Outcome.SUCCESS, 0.0, tokens_used=60, observed=learned)
    (endpoint,) = admission.endpoints()
    assert held_by(endpoint, 0.0) == ("", 0.0)
    admission.acquire(ask, 1.0)
    assert held_by(endpoint, 1.0) == ("100 tokens a minute, as its replies say", 60.0)
