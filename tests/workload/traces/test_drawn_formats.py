"""Files that describe a workload and do not list it: ServeGen's pools, inference-perf's stages."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.traces.formats.registry import detected
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest, key_of


def client(folder: Path, number: int, rows: str, windows: dict[str, dict[str, str]]) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text(rows)
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(windows))


LENGTHS = {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{7: 1.0}"}
LONGER = {"input_tokens": "{1000: 1}", "output_tokens": "{70: 0.5, 71: 0.5}"}


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    rows = "0,2.0,1.0,Weibull,0.8,0.4\n600,0,0,,0,0\n1200,1.0,2.0,Gamma,0.25,4.0\n"
    client(tmp_path, 1, rows, {"0": LENGTHS, "1000": LONGER})
    client(tmp_path, 10, "0,0.5,1.0,,0,0\n", {"0": LENGTHS})
    return tmp_path


def read(path: Path) -> list[TraceRequest]:
    return list(open_trace(path))


def test_a_pool_of_clients_has_the_rates_and_lengths_of_its_windows(pool: Path) -> None:
    assert detected(pool) == "servegen"
    found = read(pool)
    times = [request.arrived_s for request in found]
    assert times == sorted(times)
    first = [one for one in found if one.tenant == "client-1"]
    early = [one for one in first if one.arrived_s < 600]
    late = [one for one in first if one.arrived_s >= 1200]
    assert len(early) + len(late) == len(first), "nothing comes while the rate is 0"
    assert len(early) == pytest.approx(1200, rel=0.1)
    assert len(late) == pytest.approx(600, rel=0.3)
    assert max(times) < 1800
    share = sum(one.prompt_tokens == 200 for one in early) / len(early)
    assert share == pytest.approx(0.75, abs=0.05)
    assert {one.output_tokens for one in early} == {7}
    assert {one.prompt_tokens for one in late} == {1000}
    assert {one.output_tokens for one in late} == {70, 71}
    gaps = [b.arrived_s - a.arrived_s for a, b in pairwise(late)]
    mean = sum(gaps) / len(gaps)
    cv = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean
    assert 1.5 < cv < 2.5  # a gamma distribution of shape 0.25 has 2
    assert read(pool) == found


@pytest.mark.parametrize(
    ("rows", "windows", "said"),
    [
        ("0,1,1,Weibull,0.8\n", {"0": LENGTHS}, "trace.csv:1: the row has 5 columns, not 6"),
        ("0,1,1,Cauchy,1,1\n", {"0": LENGTHS}, "'Cauchy' is not Gamma, Weibull"),
        ("0,nan,1,Gamma,1,1\n", {"0": LENGTHS}, "'nan' is not a number"),
        ("5,1,1,,1,1\n5,1,1,,1,1\n", {"0": LENGTHS}, "trace.csv:2: the window starts at 5 s"),
        ("0,1,1,Gamma,-3,1\n", {"0": LENGTHS}, "the shape is -3"),
        ("", {"0": LENGTHS}, "the file is empty"),
        ("0,1,1,,1,1\n", {}, "the file has no window"),
        ("0,1,1,,1,1\n", {"x": LENGTHS}, "not a JSON object of windows"),
        ("0,1,1,,1,1\n", {"0": {"input_tokens": "{1: 1}"}}, "output_tokens: no length has"),
        (
            "0,1,1,,1,1\n",
            {"0": {**LENGTHS, "input_tokens": "{__import__('os'): 1}"}},
            "is not a number of tokens and its share",
        ),
    ],
)
def test_a_bad_pool_gets_a_sentence(
    rows: str, windows: dict[str, dict[str, str]], said: str, tmp_path: Path
) -> None:
    client(tmp_path, 3, rows, windows)
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert said in str(caught.value)


def test_a_folder_without_clients_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder"):
        read(tmp_path)


SHARED = """\
load:
  type: constant
  stages: [{rate: 10, duration: 3}, {rate: 20, duration: 2}]
  lora_traffic_split: [{name: sql, split: 0.75}, {name: chat, split: 0.25}]
server: {type: vllm, model_name: small, base_url: "http://0.0.0.0:8000"}
data:
  type: shared_prefix
  shared_prefix: {num_groups: 3, num_prompts_per_group: 10, system_prompt_len: 100,
                  question_len: 50, output_len: 20}
"""
DRAWN = """\
load: {type: poisson, interval: 1, stages: [{rate: 50, duration: 60}]}
api: {type: completion}
data:
  type: random
  input_distribution: {min: 10, max: 500, mean: 200, std_dev: 50, total_count: 100}
  output_distribution: {type: uniform, min: 10, max: 30, mean: 20}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yml"
    path.write_text(text)
    return path


def test_stages_follow_each_other_and_groups_share_prefixes(tmp_path: Path) -> None:
    path = written(tmp_path, SHARED)
    assert detected(path) == "inference-perf"
    found = read(path)
    assert [one.arrived_s for one in found[:3]] == [0.0, 0.1, 0.2]
    assert [round(one.arrived_s, 6) for one in found[29:32]] == [2.9, 4.0, 4.05]
    assert len(found) == 70
    assert {(one.prompt_tokens, one.output_tokens, one.model) for one in found} == {
        (150, 20, "small")
    }
    assert {one.prefix_keys for one in found} == {(key_of(f"group-{n}"),) for n in range(3)}
    assert {one.prefix_ends for one in found} == {(100,)}
    assert sum(one.adapter == "sql" for one in found) / 70 == pytest.approx(0.75, abs=0.15)
    assert read(path) == found


def test_answers_of_no_tokens_are_left_out_of_a_pool(tmp_path: Path) -> None:
    lengths = {**LENGTHS, "output_tokens": "{0: 0.25, 9: 0.75}"}
    client(tmp_path, 1, "0,10,1.0,,0,0\n", {"0": lengths})
    found = read(tmp_path)
    assert {one.output_tokens for one in found} == {9}
    assert len(found) == pytest.approx(0.75 * 6000, rel=0.05)


@pytest.mark.parametrize(
    ("spread", "mean", "deviation"),
    [
        ("{type: normal, mean: 300, std_dev: 40}", 300, 40),
        ("{type: lognormal, mean: 150, std_dev: 60, min: 1, max: 4096}", 150, 60),
        ("{type: poisson, mean: 400}", 400, 20),
        ("{mean: 300, variance: 900, std_dev: 0}", 300, 30),
        ("{type: uniform, min: 100, max: 700}", 400, 173.2),
        ("{type: fixed, mean: 2000}", 2000, 0),
        ("2000", 2000, 0),
        # Azzalini's: mean + d sqrt(2/pi), and a variance of 1 - 2 d^2/pi, with d = 2/sqrt(5).
        ("{type: skew_normal, mean: 300, std_dev: 50, skew: 2}", 335.7, 35.0),
        ("{}", 512, 192.7),  # as inference-perf: 200, cut at 10 and 1024
    ],
)
def test_distributions_of_lengths(
    spread: str, mean: float, deviation: float, tmp_path: Path
) -> None:
    text = SHARED.replace("question_len: 50", f"question_len: {spread}")
    text = text.replace("{rate: 20, duration: 2}", "{rate: 1000, duration: 20}")
    found = [one.prompt_tokens - 100 for one in read(written(tmp_path, text))]
    assert sum(found) / len(found) == pytest.approx(mean, rel=0.01)
    spread_found = math.sqrt(sum((one - mean) ** 2 for one in found) / len(found))
    assert spread_found == pytest.approx(deviation, rel=0.03, abs=0.01)


def test_every_group_has_a_system_prompt_of_its_own_length(tmp_path: Path) -> None:
    text = SHARED.replace("system_prompt_len: 100", "system_prompt_len: {mean: 400, max: 800}")
    found = read(written(tmp_path, text))
    assert len({(one.prefix_keys, one.prefix_ends) for one in found}) == 3
    assert len({one.prefix_ends for one in found}) == 3
    assert all(one.prompt_tokens == one.prefix_ends[0] + 50 for one in found)


def test_lengths_are_drawn_within_their_bounds(tmp_path: Path) -> None:
    found = read(written(tmp_path, DRAWN))
    assert len(found) == pytest.approx(3000, rel=0.06)
    prompts = [one.prompt_tokens for one in found]
    assert sum(prompts) / len(prompts) == pytest.approx(200, rel=0.02)
    assert min(prompts) >= 10
    answers = [one.output_tokens for one in found]
    assert (min(answers), max(answers)) == (10, 30)


def test_chats_grow_by_what_was_said(tmp_path: Path) -> None:
    text = SHARED.replace("output_len: 20", "output_len: 20, enable_multi_turn_chat: true")
    text = text.replace("num_prompts_per_group: 10", "num_prompts_per_group: 2")
    found = read(written(tmp_path, text))
    chats: dict[str | None, list[TraceRequest]] = {}
    for one in found:
        chats.setdefault(one.session, []).append(one)
    assert len(chats) == 6
    for turns in chats.values():
        for turn, one in enumerate(turns):
            assert (one.turn, one.output_tokens) == (turn, 20)
            assert one.prompt_tokens == one.prefix_ends[-1] == 100 + 50 + 70 * turn
            if turn:
                before = turns[turn - 1]
                assert one.prefix_keys[:-1] == (*before.prefix_keys, before.answer_key)


CONCURRENT = """\
load: {type: concurrent, stages: [{num_requests: 60, concurrency_level: 4}]}
data:
  type: conversation_replay
  conversation_replay: {num_conversations: 3, shared_system_prompt_len: 100,
    turns_per_conversation: 5, input_tokens_per_turn: 30, output_tokens_per_turn: 10}
"""


def test_a_concurrent_load_has_so_many_requests_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, CONCURRENT)
    assert [one.prompt_tokens for one in read(path)][::4] == [130, 170, 210, 250, 290] * 3
    scenario = f"""
workload: [{{trace: {{path: {path}, sessions: closed}}}}]
serving:
  pools:
    - {{name: main, replicas: 1, engine: {{kv_blocks: 1000}},
       step_time: {{model: linear, fixed: 10ms, per_prefill_token: 1us, per_decode: 1us}}}}
"""
    result = run(load_text(scenario)).result
    assert result["requests"]["completed"] == 60
    assert result["latency"]["e2e"]["mean"] * result["throughput"][
        "requests_per_s"
    ] == pytest.approx(4.0, rel=0.02)
    with pytest.raises(InputError, match="add `sessions: closed`"):
        run(load_text(scenario.replace(", sessions: closed", "")))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate: 50", "rate: -1", "load.stages.0.rate: input should be greater than 0"),
        ("type: poisson", "type: trace_replay", "load.type: input should be 'constant'"),
        ("type: random", "type: shareGPT", "data.type: input should be 'synthetic'"),
        ("mean: 200", "mean: .nan", "data.input_distribution.mean"),
        ("min: 10, max: 500", "min: 600, max: 500", "min is 600, and max is 500"),
        ("type: poisson", "type: concurrent", "stages.0.num_requests is missing"),
        ("type: random", "type: conversation_replay", "goes with a concurrent load"),
        ("output_distribution", "outputs", "data.output_distribution is missing"),
        ("data:", "data: [", "the file is not YAML"),
    ],
)
def test_a_bad_configuration_gets_a_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(written(tmp_path, DRAWN.replace(old, new)))
    assert said in str(caught.value)
