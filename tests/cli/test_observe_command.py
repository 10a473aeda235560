"""`windtunnel observe` against a server on a real port: what it writes, says and refuses."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.live.emulated import FALLS_SILENT_S, command
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest

SCENARIO = """\
name: small
workload:
  - name: chat
    count: {count}
    arrivals: {{process: constant, rate: 20/s}}
    prompt_tokens: 40
    output_tokens: {output}
serving:
  pools:
    - name: main
      engine: {{kv_blocks: 4000}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 0s, per_decode: 0s,
                   per_context_token: 0s}}
"""


def scenario(folder: Path, count: int = 10, output: int = 4) -> str:
    path = folder / "small.yaml"
    path.write_text(SCENARIO.format(count=count, output=output))
    return str(path)


def exit_code(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return left.value.code


def test_a_real_port_is_measured_and_the_key_is_written_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long things take is only bounded from below: this machine may be busy."""
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    file, trace = scenario(tmp_path), tmp_path / "trace.parquet"
    with command(file, "--fault", "429=0.2") as (_, said):
        url = said.split()[2]
        code = exit_code(
            "observe",
            file,
            "--endpoint",
            url,
            "-o",
            str(trace),
            "--key-env",
            "MY_KEY",
            "--json",
            "-",
        )
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    figures = json.loads(out)
    assert figures["requests"]["sent"] == 10
    assert figures["requests"]["completed"] + figures["requests"]["rejected"] == 10
    assert figures["latency"]["ttft"]["mean"] > 0.009
    assert figures["latency"]["e2e"]["mean"] > 0.037
    rows = pq.read_table(trace).to_pylist()
    assert [row["prompt_tokens"] for row in rows] == [40] * 10
    assert {row["output_tokens"] for row in rows if row["outcome"] == "completed"} == {4}
    assert {row["status"] for row in rows if row["outcome"] == "rejected"} <= {429}
    assert b"secret" not in trace.read_bytes()
    assert "secret" not in out
    assert exit_code("compare", "--real", str(trace), file, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"]["compared"] == figures["requests"]["completed"]


def test_figures_are_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, trace = scenario(tmp_path, count=3), tmp_path / "trace.parquet"
    with command(file) as (_, said):
        url = f"{said.split()[2]}/v1"
        assert exit_code("observe", file, "--endpoint", url, "-o", str(trace), "--api", "chat") == 0
        out, _ = capsys.readouterr()
        assert "3 requests in" in out
        assert "3 completed" in out
        assert "TTFT" in out
        assert f"trace is in {trace}" in out.replace("\n", "")
        assert exit_code("observe", file, "--endpoint", url, "-o", str(trace)) == 2
        assert "--force replaces it" in capsys.readouterr().err
        assert exit_code("observe", file, "--endpoint", url, "-o", str(trace), "--force",
                         "--model", "another") == 4  # fmt: skip
        assert "3 x 404 The model `another` does not exist" in capsys.readouterr().out


def test_progress_is_told_now_and_then_where_nothing_can_be_redrawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windtunnel.report.terminal.progress.LINE_S", 0.0)
    file, trace = scenario(tmp_path, count=3), tmp_path / "trace.parquet"
    with command(file) as (_, said):
        url = said.split()[2]
        assert exit_code("observe", file, "--endpoint", url, "-o", str(trace)) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "   3 sent   " in lines[-1]
    assert "completed" in lines[-1]


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    file, trace = scenario(tmp_path, count=10_000), tmp_path / "trace.parquet"
    with command(file) as (_, said):
        url = said.split()[2]
        arguments = ["observe", file, "--endpoint", url, "-o", str(trace)]
        process = subprocess.Popen(
            [sys.executable, "-m", "windtunnel", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        try:
            while answered(url) < 5:
                pass
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=FALLS_SILENT_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == "windtunnel: interrupted; the measurements so far are kept\n"
    assert "completed" in out
    outcomes = pq.read_table(trace).column("outcome").to_pylist()
    assert outcomes.count("completed") >= 4
    assert set(outcomes) <= {"completed", "unfinished"}


def test_what_was_measured_before_a_kill_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, trace = scenario(tmp_path, count=10_000), tmp_path / "trace.parquet"
    part = tmp_path / "trace.parquet.part"
    with command(file) as (_, said):
        observing = ["observe", file, "--endpoint", said.split()[2], "-o", str(trace)]
        with subprocess.Popen([sys.executable, "-m", "windtunnel", *observing]) as process:
            while not part.exists() or not rows_of(part):
                assert process.poll() is None
            assert exit_code(*observing) == 2
            assert "another run is writing it now" in capsys.readouterr().err
            process.kill()
        assert not trace.exists()
        kept = rows_of(part)
        assert exit_code(*observing) == 2
        assert "a killed run left its measurements there" in capsys.readouterr().err
        assert rows_of(part) == kept
    assert exit_code("compare", "--real", str(part), file, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["requests"]["compared"] == len(kept)
    assert exit_code("trace", "convert", str(part), str(trace)) == 0
    assert len(rows_of(trace)) == len(kept)


def rows_of(path: Path) -> list[TraceRequest]:
    """The requests of a trace that somebody may be writing."""
    try:
        return list(open_trace(path))
    except InputError:
        return []


def answered(url: str) -> int:
    """How many requests a server says that it has answered."""
    with urllib.request.urlopen(f"{url}/metrics") as reply:
        page = reply.read().decode()
    line = next(line for line in page.splitlines() if 'finished_reason="length"' in line)
    return int(float(line.split()[-1]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--endpoint", "localhost:80"], "--endpoint: 'localhost:80' is not an http"),
        (
            ["--endpoint", "http://127.0.0.1:9", "--wait", "10ms"],
            "http://127.0.0.1:9/v1: no answer within 10 ms: no connection: connection refused",
        ),
        (["--endpoint", "http://127.0.0.1:9", "--wait", "0s"], "--wait"),
        (["--endpoint", "http://127.0.0.1:9", "--timeout", "soon"], "--timeout"),
        (["--endpoint", "http://127.0.0.1:9", "--speedup", "0"], "--speedup"),
        (["--endpoint", "http://127.0.0.1:9", "--set", "workload.0.count=x"], "count"),
        (
            ["--endpoint", "http://127.0.0.1:9", "--set", "workload.0.media={tokens: 100}"],
            "only text can be sent",
        ),
        (
            ["--endpoint", "http://127.0.0.1:9", "-o", "x.csv"],
            "x.csv: a measured trace is Parquet",
        ),
        (
            ["--endpoint", "http://127.0.0.1:9", "-o", "/no/such/folder/x.parquet"],
            "cannot be written",
        ),
    ],
)
def test_what_cannot_be_observed_is_a_sentence(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario(tmp_path)
    output = [] if "-o" in options else ["-o", str(tmp_path / "trace.parquet")]
    assert exit_code("observe", file, *options, *output) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.yaml"]
