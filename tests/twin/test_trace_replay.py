"""A trace in a scenario: its requests at its times, with all that the file knows of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.traces.trace_files import AZURE, BLIS, BLIS_HEADER, BURSTGPT, MOONCAKE, written
from windtunnel.cli.simulation.simulate import simulate as simulate_command
from windtunnel.core.errors import InputError
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe, run, simulate
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.workload.request import Request
from windtunnel.workload.traces.reading import LeftOut

SCENARIO = """\
name: replay
workload:
  - trace: {{path: {path}{trace}}}{entry}
slo:
  vip: {{priority: 9, ttft: 1s}}
serving:
  pools:
    - name: main
      engine: {{kv_blocks: {blocks}, async_scheduling: false}}
      step_time: {{model: linear, fixed: 10ms}}
"""
OWN = "arrived,prompt_tokens,output_tokens,source,tenant,slo,session,turn,deadline,media_tokens\n"


def scenario(path: Path | str, trace: str = "", entry: str = "", blocks: int = 4000) -> str:
    return SCENARIO.format(path=path, trace=trace, entry=entry, blocks=blocks)


class Rows:
    """Keeps the requests of a run by number."""

    def __init__(self) -> None:
        self.found: dict[int, Request] = {}

    def write(self, requests: list[Request], *_: object) -> None:
        self.found |= {request.id: request for request in requests}


def replayed(text: str) -> tuple[dict[str, Any], list[Request]]:
    rows = Rows()
    result = run(load_text(text), rows=rows, check=True).result
    return result, [rows.found[number] for number in sorted(rows.found)]


@pytest.mark.parametrize(
    ("text", "name", "requests"),
    [
        (AZURE, "azure.csv", 2),
        (BURSTGPT, "b.csv.gz", 2),
        (MOONCAKE, "m.jsonl", 3),
        (BLIS, "r.csv", 2),
    ],
)
def test_every_format_is_replayed(tmp_path: Path, text: str, name: str, requests: int) -> None:
    result, _ = replayed(scenario(written(tmp_path, text, name)))
    assert result["requests"]["completed"] == requests
    assert result["ended_by"] == "last request"


def test_what_a_file_knows_of_a_request_stays_with_it(tmp_path: Path) -> None:
    rows = "0.5,40,4,app,acme,vip,a,0,,16\n0.75,30,3,,,,a,1,0.001,\n1.5,20,2,,,,b,,,\n"
    path = written(tmp_path, OWN + rows, "t.csv")
    result, (first, second, third) = replayed(scenario(path))
    assert (first.arrived_s, first.prompt_tokens, first.output_tokens) == (0.5, 40, 4)
    assert (first.priority, first.media_tokens) == (9, 16)
    assert (first.session, first.turn, second.turn) == (second.session, 0, 1)
    assert third.session != first.session
    assert result["slo"]["vip"]["attained"] == 1.0
    assert {name: one["requests"] for name, one in result["tenants"].items()} == {
        "acme": 1,
        "default": 2,
    }
    assert {name: one["requests"] for name, one in result["sources"].items()} == {"t": 2, "app": 1}
    assert result["requests"]["timed_out"] == 1
    assert second.finished_s == pytest.approx(0.751)
    assert (result["sessions"]["count"], result["sessions"]["turns"]) == (2, 3)


def test_sessions_at_a_traces_times_end_in_one_state_each(tmp_path: Path) -> None:
    rows = "0,40,4,,,,a,0,,\n0.5,40,4,,,,a,1,,\n"  # both turns completed
    rows += "0,40,400,,,,b,0,0.1,\n0.5,40,4,,,,b,1,,\n"  # the first is given up
    rows += "0.7,40,400,,,,c,0,,\n1.9,40,4,,,,d,0,,\n"  # under way at the end; never came
    text = scenario(written(tmp_path, OWN + rows, "t.csv"))
    result, _ = replayed(text.replace("name: replay", "name: replay\nduration: 1s"))
    assert result["sessions"]["count"] == 3
    assert result["sessions"]["ended"] == {"completed": 1, "cancelled": 1, "interrupted": 1}
    whole, _ = replayed(text)
    assert whole["sessions"]["ended"] == {"completed": 3, "cancelled": 1, "interrupted": 0}


def test_a_scenario_has_the_last_word(tmp_path: Path) -> None:
    rows = "0.5,40,4,app,acme,batch,,,9,\n0.75,30,3,,,,,,,\n9,1,1,,,,,,,\n"
    path = written(tmp_path, OWN + rows, "t.csv")
    entry = "\n    name: mine\n    tenant: me\n    slo: vip\n    count: 2\n    timeout: 30ms"
    result, requests = replayed(scenario(path, ", speedup: 2", entry))
    assert [request.arrived_s for request in requests] == [0.25, 0.375]
    assert [request.deadline_s for request in requests] == pytest.approx([0.28, 0.405])
    assert list(result["sources"]) == ["mine"]
    assert list(result["tenants"]) == ["me"]
    assert result["slo"]["vip"]["requests"] == 2


def test_a_stretch_of_a_trace_counts_from_where_it_begins(tmp_path: Path) -> None:
    rows = "".join(f"{second},40,4,,,,,,,\n" for second in (0, 1, 2.5, 3, 9))
    path = written(tmp_path, OWN + rows, "t.csv")
    _, requests = replayed(scenario(path, ", speedup: 2, start: 1500ms"))
    assert [request.arrived_s for request in requests] == [0.5, 0.75, 3.75]


def test_a_trace_with_classes_is_replayed_at_a_rate(tmp_path: Path) -> None:
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens,slo\n0,9,9,vip\n8,9,9,vip\n")
    _, requests = replayed(scenario(path, ", rate: 2/s"))
    assert [one.arrived_s for one in requests] == [0.0, 1.0]


def test_a_trace_is_replayed_at_the_rate_that_is_asked_for(tmp_path: Path) -> None:
    rows = "".join(f"{second},40,4,,,,,,,\n" for second in (0, 1, 2.5, 3, 10))
    path = written(tmp_path, OWN + rows, "t.csv")
    _, requests = replayed(scenario(path, ", rate: 5/s"))
    assert [request.arrived_s for request in requests] == [0.0, 0.1, 0.25, 0.3, 1.0]
    _, requests = replayed(scenario(path, ", rate: 2/s, start: 1s", "\n    count: 3"))
    assert [request.arrived_s for request in requests] == [0.0, 1.125, 1.5]
    with pytest.raises(InputError, match="a replay has one speed"):
        replayed(scenario(path, ", rate: 5/s, speedup: 2"))
    at_once = written(tmp_path, OWN + "0,40,4,,,,,,,\n0,40,4,,,,,,,\n", "o.csv")
    with pytest.raises(InputError, match="come at once"):
        replayed(scenario(at_once, ", rate: 5/s"))


def test_a_replay_ends_with_its_last_request_and_not_before(tmp_path: Path) -> None:
    """However far behind the server is: no horizon of its own cuts a replay short."""
    rows = "".join(f"{number / 1000},600,50,,,,,,,\n" for number in range(200))
    path = written(tmp_path, OWN + rows, "t.csv")
    result, _ = replayed(scenario(path, blocks=100))
    assert result["requests"]["completed"] == result["requests"]["arrived"] == 200
    assert result["simulated_seconds"] > 20 * 0.2


@pytest.mark.parametrize(
    ("row", "line", "sentence"),
    [
        ("0.9,5,5,,,golden,,,,", 4, "'golden' is not a class of service"),
        ("0.9,5,x,,,,,,,", 4, "'x' is not a number"),
        ("-1,5,5,,,,,,,", 4, "time is negative"),
        ("0.9,5", 4, "2 columns, not 10, perhaps truncated"),
        ("nan,5,5,,,,,,,", 4, "'nan' is not a number"),
        ("0.9,5,5,,,,,,,9", 4, "media_tokens is 9, but the prompt has 5 tokens"),
    ],
)
def test_a_bad_row_ends_the_run_with_its_place(
    tmp_path: Path, row: str, line: int, sentence: str
) -> None:
    path = written(tmp_path, OWN + "0.1,5,5,,,vip,,,,\n0.2,5,5,,,,,,,\n" + row + "\n", "t.csv")
    with pytest.raises(InputError, match=sentence) as caught:
        simulate(load_text(scenario(path)))
    assert caught.value.where == f"{path}:{line}"


def test_a_class_of_the_scenario_stands_in_for_one_that_nobody_knows(tmp_path: Path) -> None:
    path = written(tmp_path, OWN + "0.1,5,5,,,golden,,,,\n", "t.csv")
    assert replayed(scenario(path, entry="\n    slo: batch"))[0]["slo"]["batch"]["requests"] == 1


def test_nothing_is_left_of_a_run_whose_trace_is_bad(tmp_path: Path) -> None:
    rows = "".join(f"{number},5,5,,,,,,,\n" for number in range(9000))
    written(tmp_path, OWN + rows + "9000,5,lots,,,,,,,\n", "t.csv")
    file = tmp_path / "s.yaml"
    file.write_text(scenario("t.csv"))
    with pytest.raises(InputError, match=r"t\.csv:9002: 'lots' is not a number"):
        CliRunner().invoke(
            simulate_command,
            [str(file), "-o", str(tmp_path / "out")],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.yaml", "t.csv"]


def test_a_few_bad_rows_may_be_left_out_and_are_told(tmp_path: Path) -> None:
    rows = "0.1,5,5,,,,,,,\noops\n0.2,5,0,,,,,,,\n0.3,5,5,,,,,,,\n"
    path = written(tmp_path, OWN + rows, "t.csv")
    simulation = compose(load_text(scenario(path, ", skip_bad: 1")))
    simulation.run(breathe)
    assert simulation.recorder.arrived == 2
    assert simulation.traffic.left_out() == [LeftOut(str(path), empty=1, bad=1, adapters=0)]


def test_a_header_may_be_named_instead_of_its_rows(tmp_path: Path) -> None:
    written(tmp_path, BLIS, "run.csv")
    header = written(tmp_path, BLIS_HEADER, "run.yaml")
    assert replayed(scenario(header))[0]["requests"]["completed"] == 2


def test_files_count_from_the_folder_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    written(tmp_path / "traces", MOONCAKE, "m.jsonl")
    file = tmp_path / "s.yaml"
    file.write_text(scenario("traces/m.jsonl"))
    assert simulate(load(file))["requests"]["completed"] == 3


@st.composite
def mooncake_rows(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Prompts as walks in a tree of blocks, each with a partial block at its end or none."""
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        path = draw(st.lists(st.integers(0, 1), max_size=4))
        keys = [1 + int("1" + "".join(map(str, path[: end + 1]))) for end in range(len(path))]
        rest = draw(st.sampled_from([0, 1, 16, 40, 500]))
        if rest or not keys:
            rest = rest or 7
            keys.append(rest * 10**6 + len(keys))
        rows.append((keys, (len(keys) - 1) * 512 + (rest or 512)))
    return rows


@given(mooncake_rows())
@settings(max_examples=60, deadline=None)
def test_hashes_of_blocks_are_hits_as_if_prompts_were_compared(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[int], int]]
) -> None:
    """With room for all, a prompt finds what an earlier one began with, in whole blocks.

    As vLLM has it, the last token is always computed, since its logits are wanted.
    """
    path = tmp_path_factory.getbasetemp() / "hits.jsonl"
    lines = [
        {"timestamp": 1e5 * at, "input_length": tokens, "output_length": 1, "hash_ids": keys}
        for at, (keys, tokens) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, requests = replayed(scenario(path))
    before: list[list[int]] = []
    for request, (keys, tokens) in zip(requests, rows, strict=True):
        longest = 0
        for other in before:
            same = 0
            while same < min(len(keys), len(other)) and keys[same] == other[same]:
                same += 1
            longest = max(longest, same)
        found = min(longest * 512, tokens) // 16 * 16
        assert request.prefix_hit_tokens == min(found, (tokens - 1) // 16 * 16)
        before.append(keys)


SESSIONS = "arrived,prompt_tokens,output_tokens,session,turn,e2e,think\n"
TALKS = """\
0,40,10,a,0,3,
2,60,10,a,1,,
4,10,1,,,,
5,40,10,b,0,2,
9,80,10,a,2,,1.5
11,60,10,b,1,,
"""
CLOSED = ", sessions: closed"


def talks(tmp_path: Path, trace: str, *sets: str) -> tuple[dict[str, Any], list[Request]]:
    path = written(tmp_path, SESSIONS + TALKS, "talks.csv")
    rows = Rows()
    result = run(load_text(scenario(path, trace), sets=sets), rows=rows, check=True).result
    return result, [rows.found[number] for number in sorted(rows.found)]


def test_open_sessions_come_at_the_trace_s_times(tmp_path: Path) -> None:
    result, requests = talks(tmp_path, "")
    assert [request.arrived_s for request in requests] == [0, 2, 4, 5, 9, 11]
    assert (result["sessions"]["count"], result["sessions"]["turns"]) == (2, 5)
    assert result["sessions"]["ended"] == {"completed": 2, "cancelled": 0, "interrupted": 0}


def test_closed_sessions_go_on_as_their_turns_end(tmp_path: Path) -> None:
    """An answer takes 10 steps of 10 ms here; the pauses are those of the trace."""
    result, requests = talks(tmp_path, CLOSED)
    by_time = [(round(request.arrived_s, 6), int(request.prompt_tokens)) for request in requests]
    assert by_time == [
        (0.0, 40),
        (0.1, 60),  # came 2 s after a turn that took 3: nobody thought
        (1.7, 80),  # at 0.2 its `think` begins, 1.5 s
        (4.0, 10),  # of no session, at its own time
        (5.0, 40),
        (9.1, 60),  # 6 s after a turn of 2 s: a pause of 4
    ]
    assert [int(request.turn) for request in requests] == [0, 1, 2, 0, 0, 1]
    assert result["sessions"]["ended"] == {"completed": 2, "cancelled": 0, "interrupted": 0}
    assert result["sessions"]["count"] == 2


def test_closed_sessions_faster_and_with_a_pause_of_one_s_own(tmp_path: Path) -> None:
    _, faster = talks(tmp_path, f"{CLOSED}, speedup: 2")
    assert [round(request.arrived_s, 6) for request in faster] == [0, 0.1, 0.95, 2, 2.5, 4.6]
    _, own = talks(tmp_path, f"{CLOSED}, speedup: 2, think: 7s")
    assert [round(request.arrived_s, 6) for request in own] == [0, 2, 2.5, 7.1, 9.6, 14.2]


def test_a_closed_session_ends_with_a_turn_that_failed(tmp_path: Path) -> None:
    result, requests = talks(tmp_path, CLOSED, "workload.0.timeout=95ms")
    assert [request.arrived_s for request in requests] == [0, 4, 5]
    assert result["requests"]["timed_out"] == 2
    assert result["sessions"]["ended"] == {"completed": 0, "cancelled": 2, "interrupted": 0}


@pytest.mark.parametrize(
    ("duration", "interrupted"), [("50ms", 1), ("1s", 1), ("5.05s", 1), ("3s", 0)]
)
def test_a_closed_session_may_be_cut_off_in_a_turn_or_in_thought(
    tmp_path: Path, duration: str, interrupted: int
) -> None:
    result, _ = talks(tmp_path, CLOSED, f"duration={duration}")
    ended = result["sessions"]["ended"]
    assert ended["interrupted"] == interrupted
    assert sum(ended.values()) == result["sessions"]["count"]


def test_adapters_of_a_trace_are_loaded_or_told(tmp_path: Path) -> None:
    columns = "arrived,prompt_tokens,output_tokens,adapter,prefix_keys,prefix_ends\n"
    rows = "0,64,5,law,7,48\n1,64,5,,7,48\n2,64,5,law,7,48\n3,64,5,med,7,48\n"
    path = written(tmp_path, columns + rows, "t.csv")
    result, requests = replayed(scenario(path))
    assert [int(request.adapter) for request in requests] == [-1] * 4
    (finding,) = (one for one in result["trust"]["findings"] if one["code"] == "left-out")
    assert "3 for adapters that no pool has slots for went to the base model" in finding["says"]
    rows_of = Rows()
    slots = ["serving.pools.0.engine.lora={slots: 2, load: 10ms}"]
    result = run(load_text(scenario(path), sets=slots), rows=rows_of, check=True).result
    assert {name: one["requests"] for name, one in result["adapters"].items()} == {
        "law": 2,
        "med": 1,
    }
    # Each adapter has a cache of its own.
    hits = [int(rows_of.found[number].prefix_hit_tokens) for number in range(4)]
    assert hits == [0, 0, 48, 0]
