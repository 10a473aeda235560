"""What a shadow knows of a gateway from its files, whatever state they are in."""

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.analysis.shadow.window import ServedRequest, TrafficWindow, figures_of
from windtunnel.core.errors import InputError
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.shadow.following import GatewayFollower
from windtunnel.workload.traces.record import fault_of


def row(number: int, arrived_s: float, e2e_s: float = 2.0, **more: Any) -> bytes:
    data = {
        "arrived": arrived_s,
        "prompt_tokens": 100,
        "output_tokens": 21,
        "id": str(number),
        "slo": "standard",
        "ttft": 1.0,
        "e2e": e2e_s,
    }
    return json.dumps(data | more).encode() + b"\n"


def follower_of(folder: Path, log: Path | None = None) -> GatewayFollower:
    return GatewayFollower(TrafficWindow(100.0), folder, log)


def write_log(path: Path, arrivals: int, ended: int) -> None:
    """The log of a gateway with two servers, of which one is lost."""
    head: dict[str, Any] = {"settings": {}, "seed": 1, "folder": "."}
    with closing(EventLogFile(path, head)) as log:
        log.open()
        core = GatewayCore(GatewayFile.read({}).policies(Path(), 1, {}), log.record)
        for number in range(2):
            core.join(f"s{number}", 8, 0.0, "both")
            core.healthy(number, [ModelCard("m")], 0.0)
        for number in range(arrivals):
            core.arrive(RequestArrival(number, "m", 0, 0, 50, 400), 1.0 + number)
            while core.take() is not None:
                pass
        for number in range(ended):
            core.ended(number, "completed", 10.0 + number, 0.1, 0.01)
            while core.take() is not None:
                pass
        core.unhealthy(1, "no answer", 30.0)


def test_requests_in_flight_and_healthy_servers_are_known_from_the_log(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    write_log(tmp_path / "log", arrivals=5, ended=2)
    (trace / "trace-000001.jsonl").write_bytes(row(0, 1.0) + row(1, 2.0))
    found = follower_of(trace, tmp_path / "log")
    found.look()
    present = found.window.present()
    assert present.now_s == 30.0
    assert [one.id for one in present.in_flight] == ["2", "3", "4"]
    assert [one.arrived_s for one in present.in_flight] == [3.0, 4.0, 5.0]
    assert {(one.slo, one.tenant) for one in present.in_flight} == {("standard", "default")}
    assert [one.id for one in present.ended] == ["0", "1"]
    assert (present.servers, found.bad_lines) == (1, 0)
    assert found.window.measured(0.0, 3.0) is not None
    assert found.window.measured(0.0, 4.0) is None, "a request of it is still being answered"


def test_lines_come_in_pieces_late_and_out_of_order_and_some_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "trace-000001.jsonl"
    whole = row(1, 200.0) + b"{damaged\n" + b"[]\n" + row(2, 190.0) + row(3, 145.0)
    file.write_bytes(whole[:40])
    found = follower_of(tmp_path)
    found.look()
    assert found.window.present().ended == []
    file.write_bytes(whole[:-5])
    found.look()
    assert [one.id for one in found.window.present().ended] == ["2", "1"]
    assert found.bad_lines == 2
    file.write_bytes(whole + row(4, 201.0, prompt_tokens=0) + row(5, 150.0))
    (tmp_path / "trace-000002.jsonl").write_bytes(row(6, 202.0))
    found.look()
    assert [one.id for one in found.window.present().ended] == ["3", "5", "2", "1", "6"]
    assert found.window.now_s == 204.0


def test_a_gateway_that_was_started_again_begins_anew(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    log = tmp_path / "log"
    write_log(log, arrivals=9, ended=2)
    found = follower_of(trace, log)
    found.look()
    assert len(found.window.present().in_flight) == 7
    (trace / "trace-000001.jsonl").write_bytes(row(0, 9.0) + row(1, 2.0))
    found.look()
    assert [one.id for one in found.window.present().ended] == ["1"], "0 is of an earlier start"
    write_log(log, arrivals=1, ended=0)
    found.look()
    present = found.window.present()
    assert ([one.id for one in present.in_flight], found.window.restarts) == (["0"], 1)
    (trace / "trace-000002.jsonl").write_bytes(row(0, 1.0))
    found.look()
    assert [one.id for one in found.window.present().ended] == ["0"]
    (trace / "trace-000003.jsonl").write_bytes(row(1, 500.0))
    (trace / "trace-000004.jsonl").write_bytes(row(0, 1.0))
    alone = follower_of(trace)
    alone.look()
    assert (alone.window.restarts, alone.window.now_s) == (2, 3.0)


def test_without_a_log_one_late_row_or_broken_answer_is_no_restart(tmp_path: Path) -> None:
    file = tmp_path / "trace-000001.jsonl"
    file.write_bytes(b"".join(row(at, 100.0 + at) for at in range(0, 90, 2)))
    found = follower_of(tmp_path)
    found.look()
    more = row(200, 105.0) + row(201, 102.0, e2e=None) + row(202, 190.0)
    file.write_bytes(file.read_bytes() + more)
    found.look()
    assert (found.window.restarts, found.window.now_s) == (0, 192.0)
    assert {"200", "202"} <= {one.id for one in found.window.present().ended}
    file.write_bytes(file.read_bytes() + b"".join(row(at, 1.0 + at) for at in range(20)))
    found.look()
    assert (found.window.restarts, found.window.now_s) == (1, 22.0), "twenty in a row are one"


def test_time_goes_on_while_nothing_is_written_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "trace-000001.jsonl"
    file.write_bytes(b"".join(row(at, 1.0 + at / 2) for at in range(300)))
    found = GatewayFollower(TrafficWindow(1000.0), tmp_path, None)
    found.look_at(5000.0)
    assert (found.window.now_s, found.says) == (152.5, "")
    found.look_at(5030.0)
    assert (found.window.now_s, found.says) == (182.5, "")
    assert found.window.measured(100.0, 180.0) is not None
    found.look_at(5090.0)
    assert found.window.now_s == 242.5
    assert "has stopped" in found.says
    assert found.window.measured(150.0, 210.0) is None, "a gap, or no traffic?"
    file.write_bytes(file.read_bytes() + row(998, 290.0))
    found.look_at(5140.0)
    assert (found.window.now_s, found.says, found.window.gaps) == (292.0, "", 1)
    assert found.window.late == 0
    anew = GatewayFollower(TrafficWindow(10.0), tmp_path, None)
    anew.look_at(1.0)
    file.write_bytes(file.read_bytes() + row(999, 5.0) + row(1000, 291.0))
    assert anew.window.late == 0, "what was there before the first look is old"
    anew.look_at(2.0)
    assert anew.window.late == 1
    empty = follower_of(tmp_path / "..")
    empty.look_at(1.0)
    empty.look_at(100.0)
    assert empty.window.now_s == 0.0, "a gateway that has not started has no time"


def test_a_prompt_that_is_estimated_to_end_before_its_prefix_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, arrivals=1, ended=0)
    facts = log.read_text().replace(
        '"prefix_keys":[],"prefix_ends":[]', '"prefix_keys":[7,8],"prefix_ends":[32,64]'
    )
    log.write_text(facts)
    found = follower_of(tmp_path, log)
    found.look()
    (one,) = found.window.present().in_flight
    assert (one.prompt_tokens, one.prefix_keys, one.prefix_ends) == (50, (7,), (32,))
    assert found.bad_lines == 0


@pytest.mark.parametrize("is_seen_empty", [True, False])
@pytest.mark.parametrize("arrivals", [1, 9, 60])
def test_a_restart_is_seen_while_the_log_is_empty_and_when_it_has_grown(
    is_seen_empty: bool, arrivals: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    write_log(log, arrivals=9, ended=2)
    found = follower_of(tmp_path, log)
    found.look()
    if is_seen_empty:
        log.write_bytes(b"")
        found.look()
    write_log(log, arrivals, ended=0)
    found.look()
    assert found.window.restarts == 1
    assert len(found.window.present().in_flight) == arrivals
    found.look()
    assert (found.window.restarts, found.bad_lines) == (1, 0)


def test_a_time_far_ahead_is_believed_when_the_next_record_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "trace-000001.jsonl"
    file.write_bytes(row(1, 100.0) + row(2, 9e7) + row(3, 101.0))
    found = follower_of(tmp_path)
    found.look()
    assert (found.window.now_s, found.bad_lines) == (103.0, 1)
    file.write_bytes(file.read_bytes() + row(4, 50_000.0) + row(5, 50_010.0))
    found.look()
    assert (found.window.now_s, found.bad_lines) == (50_012.0, 2)
    assert [one.id for one in found.window.present().ended] == ["5"]


def test_a_gap_in_the_records_is_told_and_not_held_against_a_forecast(tmp_path: Path) -> None:
    file = tmp_path / "trace-000001.jsonl"
    steady = [row(at, 1.0 + at / 2) for at in range(300)]
    file.write_bytes(b"".join(steady))
    found = GatewayFollower(TrafficWindow(1000.0), tmp_path, None)
    found.look()
    assert found.window.gaps == 0
    file.write_bytes(b"".join(steady) + row(998, 300.0) + row(999, 301.0))
    found.look()
    present = found.window.present()
    assert (found.window.gaps, len(present.gaps)) == (1, 1)
    assert present.gaps[0] == (152.5, 302.0)
    measured = found.window.measured(100.0, 200.0)
    assert measured is not None
    assert set(measured.values()) == {None}
    assert found.window.measured(50.0, 100.0) == pytest.approx(
        {"ttft_p50": 1.0, "ttft_p95": 1.0, "tpot_p50": 0.05, "tpot_p95": 0.05, "waiting": 1.98,
         "rate": 2.0}, rel=0.05
    )  # fmt: skip
    slow = GatewayFollower(TrafficWindow(1000.0), tmp_path, None)
    file.write_bytes(b"".join(row(at, 100.0 * at) for at in range(9)))
    slow.look()
    assert slow.window.gaps == 0, "a request every 100 s is no gap"


def test_requests_whose_end_is_missing_are_given_up(tmp_path: Path) -> None:
    write_log(tmp_path / "log", arrivals=5, ended=2)
    found = follower_of(tmp_path, tmp_path / "log")
    found.look()
    assert len(found.window.present().in_flight) == 3
    found.window.see(500.0)
    assert found.window.present().in_flight == []
    assert found.window.lost == 3
    assert found.window.measured(0.0, 5.0) is not None


def test_a_clock_that_is_set_back_begins_the_window_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, arrivals=9, ended=2)
    facts = log.read_bytes()
    later = [json.loads(one) for one in facts.splitlines()[1:]]
    found = follower_of(tmp_path, log)
    ahead = [{**one, "time": one["time"] + 2000.0} for one in later]
    log.write_bytes(facts + b"".join(json.dumps(one).encode() + b"\n" for one in ahead))
    found.look()
    assert (found.window.now_s, found.window.restarts) == (2030.0, 0)
    log.write_bytes(log.read_bytes() + b"".join(facts.splitlines(keepends=True)[1:]))
    found.look()
    assert (found.window.now_s, found.window.restarts) == (30.0, 1)
    assert (found.bad_lines, found.window.late) == (0, 0)


ODD: Any = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5),
    st.lists(st.integers(), max_size=3), st.just({}),
)  # fmt: skip
FIELDS = ("arrived", "prompt_tokens", "output_tokens", "id", "ttft", "e2e", "slo", "prefix_keys")


@settings(max_examples=150, deadline=None)
@given(
    changes=st.lists(st.dictionaries(st.sampled_from(FIELDS), ODD), max_size=8),
    noise=st.binary(max_size=40),
)
def test_no_line_stops_a_shadow(
    changes: list[dict[str, Any]], noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    lines = [row(number, 10.0 + number, **change) for number, change in enumerate(changes)]
    (folder / "trace-000001.jsonl").write_bytes(noise + b"\n" + b"".join(lines) + row(99, 20.0))
    (folder / "log").write_bytes(noise + b"\n" + b"".join(lines))
    for log in (None, folder / "log"):
        found = follower_of(folder, log)
        found.look()
        present = found.window.present()
        assert all(fault_of(one) is None for one in present.ended)
        assert all(isinstance(one.slo, str | None) for one in present.ended)
        assert found.window.measured(0.0, 1.0) is not None or found.window.now_s < 1.0


def test_a_trace_or_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such trace"):
        follower_of(tmp_path / "none")
    with pytest.raises(InputError, match="there is no such log"):
        follower_of(tmp_path, tmp_path / "none")


def test_a_line_that_is_nested_too_deeply_is_a_bad_one(tmp_path: Path) -> None:
    deep = b'{"a":' * 100_000 + b"\n"
    (tmp_path / "trace-000001.jsonl").write_bytes(deep + row(1, 5.0))
    (tmp_path / "log").write_bytes(deep)
    found = follower_of(tmp_path, tmp_path / "log")
    found.look()
    assert found.bad_lines == 2


def test_figures_of_a_stretch_worked_by_hand() -> None:
    requests = [ServedRequest(float(at), 0.5 * at, 0.5 * at + 2.0, 11) for at in range(5)]
    found = figures_of(requests, 1.0, 3.0)
    assert found["ttft_p50"] == 0.75
    assert found["tpot_p95"] == pytest.approx(0.2)
    assert found["rate"] == 1.0
    not_streamed = ServedRequest(1.5, math.nan, 2.0, 11)
    with_it = figures_of([*requests, not_streamed], 1.0, 3.0)
    assert with_it["rate"] == 1.5, "it arrived, too"
    assert (with_it["ttft_p50"], with_it["tpot_p95"]) == (found["ttft_p50"], found["tpot_p95"])
    assert with_it["waiting"] == pytest.approx(1.5 * (found["waiting"] or 0.0))
    assert found["waiting"] == pytest.approx((0.5 + 1.0) / 2.0)
    assert figures_of([], 0.0, 1.0)["ttft_p95"] is None
