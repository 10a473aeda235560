"""Where the time of a request went: phases without gaps, one at a time and many at once."""

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.page.runs import SPLIT, STUCK, full, run_into
from windtunnel.analysis.endings import EndingCounts
from windtunnel.analysis.explain.request import SlowRequest, slow_requests
from windtunnel.analysis.phases import PHASES, RequestRow
from windtunnel.analysis.rows import RowBatch
from windtunnel.analysis.run import read_run
from windtunnel.analysis.slowest import FINISHED, FIRST_TOKEN
from windtunnel.analysis.time_shares import MOMENTS, TimeShares, phases_of_many
from windtunnel.core.vocabulary import ENCODING

END_S = 1000.0


@st.composite
def requests(draw: st.DrawFn, *, completed: bool = False) -> RequestRow:
    """A request that came as far as it came: split, whole, or kept where its prompt was."""
    kind = draw(st.sampled_from(["whole", "split", "stayed"]))
    media = draw(st.booleans())
    tried = draw(st.booleans())
    names = ["admitted", *(["encoded"] if media else []), *(["restarted"] if tried else [])]
    names += ["routed", "scheduled"]
    split = MOMENTS[MOMENTS.index("prefilled") : MOMENTS.index("first_token")]
    names += {"whole": [], "split": split, "stayed": ["prefilled"]}[kind]
    names += ["first_token", "finished"]
    reached = len(names) if completed else draw(st.integers(0, len(names)))
    steps = draw(st.lists(st.floats(0.0, 50.0), min_size=len(names), max_size=len(names)))
    times: dict[str, float | None] = dict.fromkeys(MOMENTS)
    times["arrived"] = now_s = draw(st.floats(0.0, 100.0))
    for name, step in zip(names[:reached], steps, strict=False):
        now_s += step
        times[name] = now_s
    outcome = "completed" if times["finished"] is not None else "unfinished"
    if outcome == "unfinished" and draw(st.booleans()):
        outcome, times["finished"] = "timed_out", now_s + draw(st.floats(0.0, 50.0))
    owner: dict[str, Any] = {"pool": "decode", "replica": draw(st.integers(0, 2))}
    if kind != "whole":
        other = {"split": "prefill", "stayed": "decode"}[kind]
        owner |= {"prefill_pool": other, "prefill_replica": owner["replica"]}
    else:
        owner |= {"prefill_pool": None, "prefill_replica": None}
    if media and times["encoded"] is None:
        owner = dict.fromkeys(owner)  # it was sent nowhere
    about: dict[str, Any] = {"source": "chat", "slo": "standard", "reason": None}
    if media and outcome != "completed" and reached == 1:
        about["reason"] = f"the run ended during {ENCODING}"
    about |= {"prompt_tokens": 10, "output_tokens": 5, "prefix_hit_tokens": 0, "preemptions": 0}
    about |= times
    return RequestRow(id=0, outcome=outcome, **about, **owner)


@given(requests())
def test_phases_follow_each_other_from_arrival_to_end(request: RequestRow) -> None:
    phases = request.phases(END_S)
    assert [phase.name for phase in phases] == [
        name for name in PHASES if name in {phase.name for phase in phases}
    ]
    now_s = request.arrived
    for phase in phases:
        assert phase.start_s == now_s
        now_s = phase.end_s
    assert now_s == (END_S if request.finished is None else request.finished)


def batch_of(found: list[RequestRow]) -> Any:
    columns: dict[str, Any] = {
        name: [getattr(one, name) for one in found] for name in RequestRow.__struct_fields__
    }
    types: dict[str, Any] = dict.fromkeys(MOMENTS, pa.float64())
    types |= {"prefill_replica": pa.int32()}
    types |= dict.fromkeys(("prefill_pool", "reason"), pa.string())
    return pa.record_batch(
        {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    )


@given(st.lists(requests(completed=True), min_size=1, max_size=20))
def test_many_at_once_are_as_one_at_a_time(found: list[RequestRow]) -> None:
    batch = batch_of(found)
    many = phases_of_many(RowBatch(batch))
    for place, request in enumerate(found):
        one = dict.fromkeys(PHASES, 0.0)
        one |= {phase.name: phase.took_s for phase in request.phases(END_S)}
        assert {name: many[name][place] for name in PHASES} == pytest.approx(one)


def test_shares_add_up_and_the_slowest_are_slower(tmp_path: Any) -> None:
    done = run_into(tmp_path, SPLIT)
    all_of_them, to_first, to_end = read_run(tmp_path).shares.groups()
    assert all_of_them.count == done.result["requests"]["completed"]
    assert all_of_them.mean_s == pytest.approx(done.result["latency"]["e2e"]["mean"])
    assert 1 <= to_end.count <= 0.02 * all_of_them.count + 1
    assert to_end.mean_s >= done.result["latency"]["e2e"]["p99"]
    for group in (all_of_them, to_first, to_end):
        assert sum(part.share for part in group.shares) == pytest.approx(1.0)
        assert sum(part.mean_s for part in group.shares) == pytest.approx(group.mean_s)
    assert {"transfer", "room"} <= {part.phase for part in all_of_them.shares}
    run_into(tmp_path, STUCK)
    assert read_run(tmp_path).shares.groups() == []
    assert TimeShares(done.result).groups() == []


def slowest(folder: Any, upto: str) -> list[SlowRequest]:
    run = read_run(folder)
    return slow_requests(run, run.slowest.requests(upto), upto)


def test_the_worst_are_the_worst_and_who_gave_up_waited_until_then(tmp_path: Any) -> None:
    done = run_into(tmp_path, SPLIT)
    assert done.result["requests"]["timed_out"] > 8
    for upto in (FIRST_TOKEN, FINISHED):
        found = slowest(tmp_path, upto)
        times = [slow.took_s for slow in found]
        assert times == sorted(times, reverse=True)
        for slow in found:
            spent = sum(phase.took_s for phase in slow.phases)
            assert spent == pytest.approx(slow.took_s)
            if slow.request.outcome == "timed_out":
                assert slow.took_s <= 2.0 + 1e-9
                assert slow.still == "until it timed out"


def test_reasons_name_the_largest_part(tmp_path: Any) -> None:
    run_into(tmp_path, SPLIT)
    words = {
        "queue": "queued for ",
        "prefill": "prompt",
        "room": "for KV blocks on the decode server",
        "transfer": "its KV cache took ",
        "start": "for its first token",
        "decode": "tokens",
    }
    seen = set()
    for upto in (FIRST_TOKEN, FINISHED):
        for slow in slowest(tmp_path, upto):
            longest = max(slow.phases, key=lambda phase: phase.took_s).name
            assert words[longest] in slow.why
            seen.add(longest)
    assert seen & {"room", "transfer"}


def test_slow_tokens_and_long_answers_are_told_apart(tmp_path: Any) -> None:
    run_into(tmp_path, full(rate=10))
    found = slowest(tmp_path, FINISHED)
    assert any("a long response: " in slow.why or "its response of " in slow.why for slow in found)


def test_endings_are_counted_by_the_result_and_shown_by_their_first_request() -> None:
    reasons = {"rejected": {"bucket 2 is empty": 7}, "dropped": {"needs 9 blocks": 9}}
    counts = {name: reasons.get(name, {}) for name in ("completed", "rejected", "dropped")}
    endings = EndingCounts({"reasons": counts})
    columns = {
        "id": [5, 3, 8],
        "outcome": ["rejected", "rejected", "completed"],
        "reason": ["bucket 2 is empty", "bucket 1 is empty", None],
    }
    endings.add(RowBatch(pa.record_batch(columns)))
    assert [(one.outcome, one.count, one.example, one.reason) for one in endings.most()] == [
        ("dropped", 9, None, "needs 9 blocks"),
        ("rejected", 7, 3, "bucket 1 is empty"),
    ]


def test_a_batch_of_rows_goes_when_nobody_has_it() -> None:
    """It holds a column of every figure: those of a long run would fill the memory."""
    batch = RowBatch(pa.record_batch({"outcome": ["completed", "completed"]}))
    assert batch.completed is batch
    gone = weakref.ref(batch)
    gc.disable()
    try:
        del batch
        assert gone() is None
    finally:
        gc.enable()
