"""No command writes over what it reads, or one of its files over another."""

import gzip
from pathlib import Path

import pytest

from tests.twin.runs import one_server
from windtunnel.cli.main import main

TABLE = [
    ("simulate own --json own", "own", "--json would overwrite the scenario"),
    ("simulate own --perfetto own", "own", "--perfetto would overwrite the scenario"),
    ("simulate scenario.json -o .", "scenario.json", "scenario.json of -o would overwrite the"),
    ("simulate own -o f --json f/result.json", "own", "--json would overwrite result.json of -o"),
    ("simulate own --json x --perfetto x", "own", "--perfetto would overwrite --json"),
    ("compare own other --json other", "other", "--json would overwrite the scenario other"),
    ("compare compare.json own -o .", "compare.json", "compare.json of -o would overwrite the"),
    ("compare own --real t.csv --json t.csv", "t.csv", "--json would overwrite the trace"),
    ("compare own --real t.csv --json own", "own", "--json would overwrite the scenario own"),
    ("report run -o run/result.json", "run/result.json", "-o would overwrite result.json of the"),
    ("trace describe t.csv --json t.csv", "t.csv", "--json would overwrite the trace"),
    ("trace fit t.csv --force -o t.csv", "t.csv", "-o would overwrite the trace"),
    ("trace fit t.csv --json t.csv", "t.csv", "--json would overwrite the trace"),
    ("calibrate m.jsonl -o m.jsonl", "m.jsonl", "-o would overwrite the measurements"),
    ("calibrate m.jsonl --report m.jsonl", "m.jsonl", "--report would overwrite the measurements"),
    ("calibrate --evaluate m.jsonl --json m.jsonl", "m.jsonl", "--json would overwrite the meas"),
    ("calibrate --evaluate m.jsonl --profile p --json p", "p", "--json would overwrite --profile"),
    ("gangs status own --json own", "own", "--json would overwrite the manifests"),
    ("gangs status own --cluster other --json other", "other", "--json would overwrite --cluster"),
    ("observe own --endpoint http://localhost:1 --json own", "own", "--json would overwrite the"),
    ("observe own --endpoint http://localhost:1 --force -o own", "own", "-o would overwrite the"),
    ("observe own --endpoint http://localhost:1 -o x --json x", "own", "--json would overwrite -o"),
    ("batch out.errors.jsonl --endpoint http://localhost:1 -o out.jsonl", "out.errors.jsonl",
     "the list of errors of -o would overwrite the input"),
    ("batch own --endpoint http://localhost:1 --template @other -o x --json other", "other",
     "--json would overwrite the file of --template"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "kept", "sentence"), TABLE)
def test_nothing_is_written_over_what_is_read(
    command: str,
    kept: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("own", "other", kept):
        (tmp_path / name).write_text(one_server())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as left:
        main(command.split())
    assert left.value.code == 2
    assert sentence in capfd.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / kept).read_text() == one_server()


@pytest.mark.parametrize(
    "command",
    ["simulate own --json x --perfetto", "batch own --endpoint http://h:1 -o x --perfetto"],
)
def test_a_trace_for_perfetto_replaces_only_another(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("own", "other"):
        (tmp_path / name).write_text(one_server())
    (tmp_path / "other.gz").write_bytes(gzip.compress(b"{}"))
    for kept in ("other", "other.gz"):
        before = (tmp_path / kept).read_bytes()
        with pytest.raises(SystemExit) as left:
            main([*command.split(), kept])
        assert left.value.code == 2
        assert "overwrite a file that is not a trace for Perfetto" in capfd.readouterr().err
        assert (tmp_path / kept).read_bytes() == before


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_for_perfetto_is_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own").write_text(one_server())
    Path(name).touch()
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            main(["simulate", "own", "--json", "x", "--perfetto", name])
        assert left.value.code == 0
    assert Path(name).stat().st_size > 100


@pytest.mark.parametrize(
    "command",
    [
        "simulate own --json t.csv",
        "compare own own --json t.csv",
        "observe own --endpoint http://localhost:1 --json t.csv",
    ],
)
def test_a_trace_that_a_scenario_replays_is_read_too(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:01:51.1630340,10,5\n"
    (tmp_path / "t.csv").write_text(trace)
    serving = one_server().partition("serving:\n")[2]
    text = f"name: one\nworkload: [{{trace: {{path: t.csv}}}}]\nserving:\n{serving}"
    (tmp_path / "own").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(command.split())
    assert left.value.code == 2
    assert "--json would overwrite the trace" in capfd.readouterr().err
    assert (tmp_path / "t.csv").read_text() == trace


def test_a_file_by_another_name_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").write_text(one_server())
    (tmp_path / "link").symlink_to(tmp_path / "own")
    with pytest.raises(SystemExit):
        main(["simulate", "own", "--json", "link"])
    assert "--json would overwrite the scenario" in capfd.readouterr().err
