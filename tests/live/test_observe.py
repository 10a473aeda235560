"""An observed server is measured as it is: held against the simulation, both in virtual time."""

import asyncio
import math
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.live.inside import InsideReply
from tests.live.observed import CLOSED, OPEN, TALKS, observe, plan_of, simulated
from tests.live.virtual import run
from windtunnel.cli.live.emulate import EmulateOptions
from windtunnel.cli.live.observe import targets_of, traffic_of
from windtunnel.core.errors import OutputError
from windtunnel.live.emulate.faults import RequestRateLimit, ResponseFault
from windtunnel.live.observe.observer import Observer, SendOptions
from windtunnel.live.observe.prompts import APIS, PromptWriter
from windtunnel.live.observe.stream import Answered, BadStream
from windtunnel.live.observe.tally import ObservationTally
from windtunnel.live.wire.client import CANNOT_CONNECT, NoReply
from windtunnel.twin.run import run as simulate
from windtunnel.workload.request import PrefixChain, Request
from windtunnel.workload.settings.sources import AdapterMix
from windtunnel.workload.traces.measured import Measured, MeasuredTrace
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest

EMULATED = EmulateOptions(served_name="emulated")


@pytest.mark.parametrize("text", [OPEN, CLOSED, TALKS], ids=["open", "closed", "talks"])
@pytest.mark.parametrize("speedup", [1.0, 8.0])
def test_what_is_measured_is_what_is_simulated(text: str, speedup: float) -> None:
    """Arrivals, first tokens, ends and cached tokens of every request."""
    plan = plan_of(text)
    expected = simulated(plan)
    measured = observe(plan, SendOptions("emulated", speedup), EMULATED._replace(speedup=speedup))
    assert len(measured) == len(expected)
    for one in measured:
        row = one.request
        assert row.id is not None
        assert row.ttft_s is not None
        assert row.e2e_s is not None
        request = expected[int(row.id)]
        assert one.outcome == "completed"
        assert row.prompt_tokens == request.prompt_tokens
        assert row.output_tokens == request.output_tokens
        assert row.arrived_s == pytest.approx(request.arrived_s, abs=1e-6)
        assert row.arrived_s - one.due_s == pytest.approx(0.0, abs=1e-6)
        assert row.arrived_s + row.ttft_s == pytest.approx(request.first_token_s, abs=1e-6)
        assert row.arrived_s + row.e2e_s == pytest.approx(request.finished_s, abs=1e-6)
        assert one.cached_tokens == request.prefix_hit_tokens
        assert len(one.gaps_s) == row.output_tokens - 1
        assert math.fsum(one.gaps_s) == pytest.approx(row.e2e_s - row.ttft_s)


@pytest.mark.parametrize("text", [OPEN, CLOSED, TALKS], ids=["open", "closed", "talks"])
def test_a_trace_replays_as_it_was_measured(text: str, tmp_path: Path) -> None:
    plan = plan_of(text)
    path = tmp_path / "trace.parquet"
    with MeasuredTrace(path, replace=False) as trace:
        for one in observe(plan):
            trace.add(one)
    replayed = plan_of(text, f"workload=[{{trace: {{path: {path}}}}}]")
    before, after = simulate(plan).result, simulate(replayed).result
    assert after["requests"] == before["requests"]
    assert after["tokens"] == before["tokens"]
    for kind in ("ttft", "tpot", "e2e"):
        for name, value in before["latency"][kind].items():
            assert after["latency"][kind][name] == pytest.approx(value, rel=1e-5), (kind, name)


@pytest.mark.parametrize("api", APIS)
def test_prompts_have_their_length_however_they_are_sent(api: str) -> None:
    measured = observe(plan_of(OPEN), api=api)
    expected = simulated(plan_of(OPEN))
    frames = 8 if api == "chat" else 0
    for one in measured:
        assert one.request.id is not None
        assert one.request.prompt_tokens == expected[int(one.request.id)].prompt_tokens + frames
    # Prompts of three groups: most find the first 96 of their 100 shared tokens.
    hits = [one.cached_tokens for one in measured]
    assert sum(hit == 96 for hit in hits if hit is not None) > 40


def test_turns_of_a_chat_contain_what_the_server_said() -> None:
    measured = observe(plan_of(TALKS), api="chat")
    turns = [[one for one in measured if one.request.turn == turn] for turn in range(4)]
    assert [len(turn) for turn in turns] == [12] * 4
    for turn in turns[1:]:
        assert all((one.cached_tokens or 0) > 0.3 * one.request.prompt_tokens for one in turn)


def test_too_many_in_flight_are_sent_late_and_it_is_said() -> None:
    plan = plan_of(OPEN, "workload.0.arrivals.rate=100/s")
    measured = observe(plan, SendOptions("emulated", most_in_flight=2))
    lags = [one.request.arrived_s - one.due_s for one in measured]
    assert max(lags) > 5.0
    assert min(lags) == pytest.approx(0.0, abs=1e-9)
    ends = sorted(
        (one.request.arrived_s, one.request.arrived_s + (one.request.e2e_s or 0.0))
        for one in measured
    )
    for start_s, _ in ends:
        assert sum(s <= start_s < e - 1e-9 for s, e in ends) <= 2
    tally = ObservationTally(targets_of(plan))
    for one in measured:
        tally.add(one)
    assert tally.figures(1.0)["lag"]["max"] == pytest.approx(max(lags))


def test_a_request_that_takes_too_long_is_given_up() -> None:
    plan = plan_of(OPEN, "workload.0.timeout=300ms", "workload.0.output_tokens=30")
    measured = observe(plan)
    assert {one.outcome for one in measured} == {"timed_out"}
    for one in measured:
        assert one.request.e2e_s is None
        assert one.request.deadline_s == pytest.approx(0.3)
        assert one.request.output_tokens == len(one.gaps_s) + (one.request.ttft_s is not None)
    # Whoever has left holds nothing any more, so nobody waits for long.
    assert sum(one.request.ttft_s is not None for one in measured) > 50


def test_faults_and_limits_are_told_apart() -> None:
    faults = (
        ResponseFault(0.2, status=500),
        ResponseFault(0.2, status=429),
        ResponseFault(0.2, breaks=True),
    )
    measured = observe(plan_of(OPEN), settings=EMULATED._replace(faults=faults))
    statuses = {(one.outcome, one.status) for one in measured}
    assert statuses == {("completed", 200), ("failed", 500), ("rejected", 429), ("cut_off", 200)}
    for one in measured:
        assert (one.error is None) == (one.outcome == "completed")
    limited = observe(
        plan_of(OPEN), settings=EMULATED._replace(rate_limit=RequestRateLimit(1.0, 1.0))
    )
    assert {one.outcome for one in limited} == {"completed", "rejected"}


def test_users_go_on_after_a_failure_and_conversations_end() -> None:
    faults = EMULATED._replace(faults=(ResponseFault(0.3, status=500),))
    closed = observe(plan_of(CLOSED), settings=faults)
    assert len(closed) == 50
    talks = observe(plan_of(TALKS), settings=faults)
    ended = {one.request.session for one in talks if one.outcome == "failed"}
    for session in ended:
        turns = [one for one in talks if one.request.session == session]
        assert [one.outcome for one in turns].index("failed") == len(turns) - 1


def test_stopping_keeps_what_was_measured() -> None:
    def stop_early(observer: Observer) -> None:
        if observer.sent == 20:
            observer.stop()

    measured = observe(plan_of(OPEN), during=stop_early)
    assert len(measured) == 20
    unfinished = [one for one in measured if one.outcome == "unfinished"]
    assert 0 < len(unfinished) < 20
    assert all(one.request.e2e_s is None for one in unfinished)


def test_adapters_are_models_and_lengths_are_pinned() -> None:
    bodies: list[Any] = []

    class Deaf:
        @asynccontextmanager
        async def post(
            self, end: str, body: bytes, headers: Mapping[str, str] | None = None
        ) -> AsyncIterator[InsideReply]:
            assert headers is None
            bodies.append(msgspec.json.decode(body))
            if bodies:
                raise NoReply(CANNOT_CONNECT, "nobody is there")
            yield InsideReply(200, {})

        def redact(self, text: str) -> str:
            return text.replace("nobody", "[key]")

    async def main() -> list[Measured]:
        plan = plan_of(OPEN, "workload.0.count=2")
        source = plan.workload[0].model_copy(
            update={"adapters": AdapterMix(weights={"german": 1.0})}
        )
        plan = plan.changed(workload=[source])
        found: list[Measured] = []
        writer = PromptWriter("chat", "salt")
        options = SendOptions("base", pins_length=True)
        await Observer(traffic_of(plan), Deaf(), writer, options, found.append).run()
        return found

    measured = run(main())
    assert [one.error for one in measured] == ["[key] is there"] * 2
    for body, one in zip(bodies, measured, strict=True):
        assert body["model"] == one.request.adapter == "german"
        assert body["stream"] is body["ignore_eos"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert one.status == 0
        assert one.request.output_tokens == 0


# The parts


def test_prompts_follow_from_their_keys() -> None:
    def prompt(*keys: int, ends: list[int], number: int = 0, salt: str = "salt") -> str:
        request = Request(number, 0.0, 20, 5, prefix=PrefixChain(list(keys), ends))
        text: str = PromptWriter("completions", salt).fields(request)["prompt"]
        return text

    first = prompt(1, 2, ends=[8, 16])
    assert len(first) == 80
    assert prompt(1, 2, ends=[8, 16], number=1)[:64] == first[:64]
    assert prompt(1, 3, ends=[8, 16])[:32] == first[:32]
    assert prompt(1, 2, ends=[5, 13])[:20] == first[:20]
    assert prompt(1, 2, ends=[8, 16], number=1) != first
    assert prompt(1, 2, ends=[8, 16], salt="other")[:32] != first[:32]


def test_a_stream_may_come_in_any_pieces() -> None:
    lines = [
        b': a comment\n\ndata: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":" one"}}]}\r\n\r\n',
        b'data:{"choices":[{"text":" two"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":3}}}\n\n',
        b"data: [DONE]\n\n",
    ]
    text = b"".join(lines)
    for size in (1, 7, 1000):
        answered = Answered()
        for at in range(0, len(text), size):
            answered.feed(text[at : at + size], float(at))
        assert (answered.text, answered.tokens, answered.whole) == (" one two", 2, True)
        assert (answered.prompt_tokens, answered.cached_tokens) == (7, 3)
        assert len(answered.times_s) == 2


def test_a_long_line_in_small_pieces_is_not_copied_for_each() -> None:
    """Otherwise these would be ten gigabytes."""
    answered = Answered()
    answered.feed(b'data: {"choices": [{"text": "', 0.0)
    for _ in range(25_000):
        answered.feed(b"x" * 32, 1.0)
    answered.feed(b'"}]}\n', 2.0)
    assert (len(answered.text), answered.times_s) == (800_000, [2.0])


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\n",
        b"data: []\n",
        b'data: {"choices": [], "usage": {"completion_tokens": -1}}\n',
        b'data: {"choices": [], "usage": {"prompt_tokens": 99999999999999999999}}\n',
        b"x" * (2 << 20),
    ],
)
def test_what_is_no_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BadStream):
        Answered().feed(data, 0.0)


# The file


def measured(number: int, arrived_s: float) -> Measured:
    row = TraceRequest(arrived_s, 10, 3, id=str(number), ttft_s=0.5, e2e_s=1.0)
    return Measured(row, arrived_s, "completed", 200, None, None, [0.25, 0.25000051])


def test_rows_are_read_by_arrival_and_gaps_are_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    with MeasuredTrace(path, replace=False) as trace:
        for number in range(10_000):
            trace.add(measured(number, 10_000.0 - number))
        assert not path.exists()
    rows = list(open_trace(path))
    assert [row.id for row in rows] == [str(number) for number in reversed(range(10_000))]
    table = pq.read_table(path)
    assert table.column("gaps_us")[0].as_py() == [250_000, 250_001]
    assert table.column("outcome")[0].as_py() == "completed"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.parquet"]


@pytest.mark.parametrize("flushed", [0, 1])
def test_on_a_full_disk_the_part_that_is_kept_is_a_trace(flushed: int, tmp_path: Path) -> None:
    part = tmp_path / "trace.parquet.part"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write() -> None:
        with MeasuredTrace(tmp_path / "trace.parquet", replace=False) as trace:
            for number in range(flushed):
                trace.add(measured(number, float(number)))
                trace.flush()
            resource.setrlimit(resource.RLIMIT_FSIZE, (part.stat().st_size, before[1]))
            trace.add(measured(7, 7.0))
            trace.flush()

    try:
        with pytest.raises(OutputError, match="cannot be written: file too large") as said:
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (f"what was written before is in {part.name}" in str(said.value)) == (flushed > 0)
    assert (len(list(open_trace(part))) if part.exists() else 0) == flushed


def test_a_stream_of_rows_is_a_trace_however_it_is_cut(tmp_path: Path) -> None:
    """What a killed run leaves: every batch that is whole, and never an error."""
    trace = MeasuredTrace(tmp_path / "trace.parquet", replace=False)
    part = tmp_path / "trace.parquet.part"
    sizes = []
    for number in range(4):
        trace.add(measured(number, float(number)))
        trace.flush()
        sizes.append(part.stat().st_size)
    whole = part.read_bytes()
    cut = tmp_path / "cut"
    for size in range(sizes[0], len(whole), 97):
        cut.write_bytes(whole[:size])
        kept = sum(size >= end for end in sizes)
        assert len(list(open_trace(cut))) == kept
    with pytest.raises(OutputError, match="another run is writing it now"):
        MeasuredTrace(tmp_path / "trace.parquet", replace=True)
    trace.close()
    assert len(list(open_trace(tmp_path / "trace.parquet"))) == 4


def test_nothing_measured_is_no_file(tmp_path: Path) -> None:
    with MeasuredTrace(tmp_path / "trace.parquet", replace=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"

    def fail() -> None:
        with MeasuredTrace(path, replace=False) as trace:
            trace.add(measured(0, 1.0))
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError):
        fail()
    assert len(list(open_trace(path))) == 1
    with pytest.raises(OutputError, match="--force"):
        MeasuredTrace(path, replace=False)
    with pytest.raises(OutputError, match="cannot be written"):
        MeasuredTrace(tmp_path / "missing" / "trace.parquet", replace=False)


def test_virtual_time_needs_none() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await asyncio.sleep(3600.0)
        return loop.time() - start_s

    assert run(main()) == pytest.approx(3600.0)


LOADS_LATER = """\
import sys
from pathlib import Path
import pyarrow as pa
from windtunnel.workload.traces.measured import MeasuredTrace
with MeasuredTrace(Path(sys.argv[1]), replace=True) as trace:
    before = "pandas" in sys.modules
    pa.array([1.0])
    print(before == ("pandas" in sys.modules))
"""


def test_writing_rows_imports_nothing_while_requests_are_measured(tmp_path: Path) -> None:
    """The first Arrow array imports pandas where it is installed, which takes up to a second."""
    made = subprocess.run(
        [sys.executable, "-c", LOADS_LATER, str(tmp_path / "m.parquet")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert made.stdout == "True\n"
