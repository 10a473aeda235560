"""Defects of other simulators' results that must not be here, each by its name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.core.sinks import MemorySink
from tests.report.page.runs import GATED, SPLIT, STUCK, TALKS, full, run_into
from tests.twin.runs import BUSY, one_server, run
from windtunnel.analysis import run_folder as contents
from windtunnel.analysis.saturation import stretches
from windtunnel.cli.main import main
from windtunnel.core.statistics.histogram import Histogram
from windtunnel.twin import run as runs
from windtunnel.twin.results.timeline import SAMPLES
from windtunnel.twin.run import Run
from windtunnel.twin.scenario.load import load_text

EVERY_KIND = [BUSY, STUCK, SPLIT, TALKS, GATED, one_server()]


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("text", EVERY_KIND)
def test_standard_output_is_one_document_and_not_several_amid_text(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer prints a document for each server and one for all, between headings."""
    monkeypatch.chdir(tmp_path)
    Path("scenario.yaml").write_text(text)
    assert command("simulate", "scenario.yaml", "--json", "-") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out, parse_constant=pytest.fail)  # and no NaN in it
    assert result["name"] == load_text(text).name
    assert captured.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]


@pytest.mark.parametrize("text", EVERY_KIND)
def test_who_arrived_includes_who_was_turned_away(text: str) -> None:
    """The peer's `injected` is a sum of outcomes without rejections."""
    result = run(text, check=False)
    requests = result["requests"]
    assert requests["arrived"] == sum(requests.values()) - requests["arrived"]
    for key in ("slo", "sources", "tenants"):
        assert sum(one["requests"] for one in result[key].values()) == requests["arrived"]
        assert sum(one["rejected"] for one in result[key].values()) == requests["rejected"]
    if text == GATED:
        assert requests["rejected"] > 0


def figures(value: Any) -> Iterator[dict[str, Any]]:
    """Every set of figures in a result, wherever it is."""
    if isinstance(value, dict):
        if "p99" in value:
            yield value
        else:
            for below in value.values():
                yield from figures(below)


def test_wherever_there_is_a_p99_there_is_a_p50() -> None:
    """The peer has mean, p90, p95 and p99."""
    for text in EVERY_KIND:
        result = run(text, check=False)
        del result["trust"]
        found = list(figures(result))
        assert len(found) > 10
        assert all("p50" in one for one in found)
        for one in found:
            if one["p50"] is not None:
                assert one["p50"] <= one["p90"] <= one["p95"] <= one["p99"] <= one["max"]


def test_the_time_to_find_saturation_does_not_grow_with_the_square_of_requests() -> None:
    """The peer sorts all completions again at every event; here samples are looked at once."""
    looks = []
    for rate in (30, 120):
        done: Run = runs.run(load_text(full(rate=rate)))
        samples = done.timeline.samples
        assert len(samples) <= 2 * SAMPLES
        assert stretches(samples, [8])
        looks.append(len(samples))
    assert looks[0] == looks[1]


def test_a_run_in_which_nothing_completes_is_saturated_and_says_so() -> None:
    """The peer's detectors look at completed requests alone."""
    result = run(STUCK, check=False)
    assert result["requests"]["completed"] == 0
    found = result["trust"]["saturated"]["stretches"]
    assert found
    assert found[-1]["cause"] == "all batch slots taken"


def test_a_share_in_time_is_of_all_that_arrived() -> None:
    """Of those that completed it would look good in the worst of overloads."""
    result = run(full(rate=60), check=False)
    critical = result["slo"]["critical"]
    assert critical["completed"] < critical["requests"]
    assert critical["attained"] <= critical["completed"] / critical["requests"]


def test_decisions_are_written_and_not_only_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The peer keeps them in memory and prints a summary."""
    monkeypatch.chdir(tmp_path)
    Path("gated.yaml").write_text(GATED)
    assert command("simulate", "gated.yaml", "-o", "out", "--events") == 0
    events = [json.loads(line) for line in Path("out", contents.EVENTS).read_bytes().splitlines()]
    result = json.loads(Path("out", contents.RESULT).read_text())
    kinds = [event["kind"] for event in events]
    assert kinds.count("request.rejected") == result["requests"]["rejected"]
    ended = [event for event in events if event["kind"] == "request.ended"]
    assert len(ended) == result["requests"]["arrived"] - result["requests"]["unfinished"]
    assert all(event["reason"] for event in events if event["kind"] == "request.rejected")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"every decision with its reason: {Path('out', contents.EVENTS)}"


def test_a_run_has_its_history_and_its_cost(tmp_path: Path) -> None:
    """The peer has no time series, no history of servers or of their use, and no cost."""
    done = run_into(tmp_path, SPLIT)
    names = pq.read_table(tmp_path / contents.TIMELINE).column_names
    wanted = {"replicas", "waiting", "running", "kv_used", "busy", "arrived", "completed", "cost"}
    assert wanted <= set(names)
    assert done.result["cost"]["total"] > 0.0
    assert done.result["cost"]["per_million_output_tokens"] > 0.0


def test_gaps_of_parts_add_up_to_the_gaps_of_the_whole() -> None:
    """Percentiles of parts do not; counts in the same buckets do."""
    done = runs.run(load_text(BUSY))
    whole = Histogram()
    for part in done.token_gaps.values():
        whole.merge(part)
    itl = done.result["latency"]["itl"]
    assert (whole.mean(), whole.quantile(0.99)) == (itl["mean"], itl["p99"])


def test_a_heavy_trace_is_replayed_to_its_end(tmp_path: Path) -> None:
    """The peer stops at twice the last arrival and says nothing: 168 of 500 requests."""
    lines = ["arrived,prompt_tokens,output_tokens", *(f"{n / 100},200,60" for n in range(300))]
    (tmp_path / "heavy.csv").write_text("\n".join(lines) + "\n")
    text = full().replace("duration: 8s\n", "")
    start, end = text.index("workload:"), text.index("slo:\n  critical")
    trace = "workload:\n  - {trace: {path: heavy.csv}, slo: critical}\n"
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(text[:start] + trace + text[end:])
    result = runs.simulate(load_text(scenario.read_text(), str(scenario)))
    assert result["ended_by"] == "last request"
    assert result["simulated_seconds"] > 2 * (299 / 100)
    assert result["requests"]["completed"] == result["requests"]["arrived"] == 300


def test_every_request_that_did_not_complete_has_a_reason() -> None:
    """The peer counts them by kind alone."""
    for text in EVERY_KIND:
        result = run(text, check=False)
        for outcome, reasons in result["reasons"].items():
            if outcome != "completed":
                assert sum(reasons.values()) == result["requests"][outcome]
                assert all(reasons)


def test_results_are_the_same_twice_and_with_listeners() -> None:
    """Who looks on changes nothing."""
    plan = load_text(GATED)
    plain = runs.run(plan).result
    heard = runs.run(plan, events=MemorySink()).result
    assert json.dumps(plain) == json.dumps(heard)
