"""`windtunnel trace` on the command line."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.workload.traces.trace_files import (
    AZURE,
    BURSTGPT,
    MOONCAKE,
    conversations,
    requests_of,
    written,
)
from windtunnel.cli.simulation.trace import trace
from windtunnel.core.errors import InputError, OutputError
from windtunnel.report.terminal.traces import sparkline
from windtunnel.twin.scenario.load import load_text

SERVING = (
    "serving: {pools: [{name: main, replicas: 1, engine: {kv_blocks: 1000}, "
    "step_time: {model: linear, fixed: 1ms}}]}\n"
)


def run(*args: object) -> Result:
    result = CliRunner().invoke(
        trace, [str(arg) for arg in args], catch_exceptions=False, standalone_mode=False
    )
    assert result.exit_code == 0
    return result


def own(folder: Path, count: int = 100) -> Path:
    rows = "".join(f"{n / 4},{50 + 7 * n % 90},{5 + n % 11}\n" for n in range(count))
    return written(folder, "arrived,prompt_tokens,output_tokens\n" + rows, "own.csv")


def test_describe_is_for_people_and_for_programs(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    shown = run("describe", path).output
    assert shown.startswith("trace.txt (Mooncake, JSON lines with block hashes)\n")
    assert "3 requests over 27.5 s" in shown
    assert "an endless cache would find" in shown
    printed = json.loads(run("describe", path, "--json", "-").output)
    assert (printed["format"], printed["requests"]) == ("mooncake", 3)
    assert printed["prefix"]["segments"] == 5
    assert printed["left_out"] == {"empty": 0, "bad": 0}
    assert printed["repaired"] == {"late": 0, "first_late": 0, "blank": 0, "first_blank": 0}


def test_what_was_repaired_is_said(tmp_path: Path) -> None:
    columns = "arrived,prompt_tokens,output_tokens\n"
    path = written(tmp_path, columns + "0,5,5\n3,5,5\n\n1,5,5\n2,5,5\n")
    shown = run("describe", path).output
    assert "repaired: 2 rows were out of order (the first: 5) and sorted" in shown
    assert "repaired: 1 empty line was skipped (the first: 4)" in shown
    lines = '{"arrived": 0, "prompt_tokens": 5, "output_tokens": 5}\n\n \n'
    path = written(tmp_path, lines, "t.jsonl")
    assert "repaired: 2 empty lines were skipped (the first: 2)" in run("describe", path).output


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, BURSTGPT + "oops\n")
    shown = run("describe", path, "--skip-bad", 1).output
    assert "left out: 1 request without a prompt or an output" in shown
    assert "left out: 1 bad row," in shown
    assert "trace.txt:5" in shown.replace("\n", "")
    with pytest.raises(InputError, match=r":5: .*--skip-bad N"):
        run("describe", path)


def test_an_empty_trace_is_described(tmp_path: Path) -> None:
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n")
    assert "no requests" in run("describe", path).output
    assert json.loads(run("describe", path, "--json", "-").output)["rate_per_s"] is None


def test_an_empty_trace_is_converted(tmp_path: Path) -> None:
    path, out = written(tmp_path, "arrived,prompt_tokens,output_tokens\n"), tmp_path / "out.jsonl"
    said = run("convert", path, out, "--start", "1s")
    assert said.output == f"the trace has no requests\nWrote 0 requests to {out}\n"
    assert out.read_text() == ""


def test_rounded_times_are_noted(tmp_path: Path) -> None:
    rows = "".join(f"{n * n % 97},50,5\n" for n in range(300))
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n" + rows, "own.csv")
    assert "the trace's times are rounded to 1 s; " in run("describe", path, "--sort").output
    assert json.loads(run("describe", path, "--sort", "--json", "-").output)["rounded_to_s"] == 1.0
    precise = own(tmp_path)
    assert "rounded" not in run("describe", precise).output


def test_one_is_one(tmp_path: Path) -> None:
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n0,5,5\n", "one.csv")
    assert "1 request over 0 s" in run("describe", path).output
    assert run("convert", path, tmp_path / "o.csv").output.startswith("Wrote 1 request to ")
    cut = written(tmp_path, "arrived,prompt_tokens,output_tokens\n0,5,5\n9\n", "cut.csv")
    with pytest.raises(InputError, match="the row has 1 column, not 3"):
        run("describe", cut)


def test_head_prints_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    lines = run("head", path, "-n", 1).output.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"arrived": 0.0, "prompt_tokens": 374, "output_tokens": 44}
    ]


def test_convert_takes_a_part_and_changes_the_pace(tmp_path: Path) -> None:
    path, out = own(tmp_path), tmp_path / "out.parquet"
    said = run("convert", path, out, "--start", "5s", "--end", "10s", "--speedup", "2")
    assert said.output == f"Wrote 20 requests to {out}\n"
    times = [request.arrived_s for request in requests_of(out)]
    assert times == [n / 8 for n in range(20)]
    with pytest.raises(OutputError, match="--force"):
        run("convert", path, out)
    run("convert", path, out, "--force", "--first", 3, "--from", "windtunnel")
    assert len(requests_of(out)) == 3
    run("convert", out, tmp_path / "azure.csv.gz", "--to", "azure")
    assert requests_of(tmp_path / "azure.csv.gz", "azure") == requests_of(out)


def test_conversations_get_arrivals(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt_tokens": 5, "output_tokens": 6}\n' * 3)
    options = ("--rate", "30/min", "--process", "constant")
    lines = run("head", path, *options).output.splitlines()
    assert [json.loads(line)["arrived"] for line in lines] == [0.0, 2.0, 4.0]


def test_fit_writes_a_section_that_loads(tmp_path: Path) -> None:
    path, out = own(tmp_path), tmp_path / "workload.yaml"
    shown = run("fit", path, "-o", out).output
    assert "KS distance" in shown
    text = out.read_text()
    assert text.startswith("# Fitted by `windtunnel trace fit` to 100 requests of 'own.csv'.\n")
    (source,) = load_text(text + SERVING).sources
    assert (source.name, source.count) == ("own", 100)
    assert (source.arrivals.process, source.arrivals.drawn().rate_per_s) == ("constant", 4.0)
    with pytest.raises(OutputError, match="--force"):
        run("fit", path, "-o", out)
    figures = json.loads(run("fit", path, "-o", out, "--force", "--json", "-").output)
    assert figures["requests"] == figures["generated"] == 100


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["describe", "nowhere.csv"], "no such file"),
        (["describe", "own.csv", "--from", "asure"], "did you mean 'azure'"),
        (["convert", "own.csv", "out.xyz"], "format to write is not clear"),
        (["convert", "own.csv", "out.csv", "--speedup", "0"], "--speedup: 0.0 is out of range"),
        (["convert", "own.csv", "out.csv", "--speedup", "nan"], "--speedup"),
        (["convert", "own.csv", "out.csv", "--start", "soon"], "'soon' is not a duration"),
        (["convert", "own.csv", "out.csv", "--start", "1m", "--end", "30s"], "a time after 1 min"),
        (["convert", "own.csv", "out.csv", "--end", "0"], "--end: 0 s is not after the start"),
        (["convert", "own.csv", "out.csv", "--start", "1h"], "arrive from 0 s to 24.8 s"),
        (["convert", "own.csv", "out.csv", "--start=-5s"], "before the trace's start"),
        (["head", "own.csv", "--rate", "fast"], "--rate: 'fast' is not a rate"),
        (["head", "own.csv", "--rate", "0/s"], "--rate: 0/s is not above 0"),
    ],
)
def test_misuse_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], sentence: str
) -> None:
    own(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        run(*args)
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_no_digit_is_cut_at_any_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    columns = "arrived,prompt_tokens,output_tokens,ttft,e2e\n"
    rows = "".join(f"{n / 4},{9_000_000 + n},{5 + n % 11},{n + 0.5},{n + 60}\n" for n in range(100))
    monkeypatch.setenv("COLUMNS", str(width))
    shown = run("describe", written(tmp_path, columns + rows, "long.csv")).output
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    (prompt,) = (line for line in shown.splitlines() if line.startswith("prompt "))
    figures = prompt.split()[1:]
    assert len(figures) >= 3
    assert figures[0] in ("9000050", "9000049")
    table = shown.splitlines()[-5:]
    assert max(len(line) for line in table) <= max(width, 40)
    assert table[-1].split()[0] == ("observed" if width == 200 else "E2E")


def test_a_poor_fit_is_said_in_a_sentence(tmp_path: Path) -> None:
    prompts = [20, *[500] * 7, 12_040, 12_040] * 10
    rows = "".join(f"{n / 4},{tokens},{5 + n % 11}\n" for n, tokens in enumerate(prompts))
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n" + rows, "two.csv")
    shown = " ".join(run("fit", path, "--lengths", "formula").output.split())
    assert "a poor fit: the prompt lengths are not distributed like the trace's" in shown
    assert "the output lengths are not" not in shown
    assert "prompt tokens, p90 12,040" in shown


def test_a_sparkline_shows_every_count_that_is_not_zero() -> None:
    assert sparkline([0, 1, 100, 50]) == " ▁█▄"
    assert len(sparkline(list(range(1000)))) <= 60
    assert sparkline([]) == ""


@pytest.mark.parametrize("speedup", ["1e-320", "1e-7", "0", "-1", "nan", "inf", "1e7"])
def test_a_pace_is_within_bounds(tmp_path: Path, speedup: str) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(InputError, match=r"--speedup: .* is out of range; allowed: a number from"):
        run("convert", own(tmp_path), out, "--speedup", speedup)
    assert not out.exists()


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n0.0,1,1\n1e4,1,1\n")
    with pytest.raises(OutputError, match=r"of request 2, the time is 1e\+10 s"):
        run("convert", path, out, "--speedup", "1e-6")
    assert not out.exists()


def test_options_of_any_size_are_sentences(tmp_path: Path) -> None:
    talks, out = conversations(tmp_path, lines=True), tmp_path / "out.csv"
    with pytest.raises(click.UsageError, match="not in the range"):
        run("convert", own(tmp_path), out, "--first", "9" * 30)
    for rate in ("1e-320", "1e-7/s", "1e300"):
        with pytest.raises(InputError, match=r"--rate: .* is out of range"):
            run("describe", talks, "--rate", rate)
    with pytest.raises(InputError, match="--rate or a shorter --turn-gap"):
        run("describe", talks, "--rate", "1/s", "--turn-gap", "1e300")


def test_fit_prints_the_section_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own(tmp_path)
    result = run("fit", "own.csv", "-o", "-")
    (source,) = load_text(result.stdout + SERVING).sources
    assert source.count == 100
    assert "KS distance" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]
    with pytest.raises(InputError, match="-o and --json cannot both be printed alone"):
        run("fit", "own.csv", "-o", "-", "--json", "-")


def test_fit_follows_the_rate_over_time(tmp_path: Path) -> None:
    rows = "".join(f"{n / 4 if n < 200 else n / 2 - 50},50,5\n" for n in range(400))
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n" + rows, "t.csv")
    shown = run("fit", path, "--curve", "--window", "50s").output
    assert "rate_curve: [[0, " in shown
    assert "the rate changes every 50 s" in shown
    figures = json.loads(run("fit", path, "--curve", "--json", "-").output)
    assert figures["window_s"] == 15.0
    with pytest.raises(InputError, match="--window is for --curve"):
        run("fit", path, "--window", "50s")
    with pytest.raises(InputError, match="--window: 0s is not above 0"):
        run("fit", path, "--curve", "--window", "0s")
