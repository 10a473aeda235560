"""Whatever is wrong with what `simulate` is given: a sentence a fault, exit 2, nothing left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.twin.runs import one_server
from windtunnel.cli.main import main

Fails = Callable[..., list[str]]

REAL = """\
name: real
model: llama-3.1-8b
workload:
  - name: chat
    count: 3
    arrivals: {process: poisson, rate: 1/s}
    prompt_tokens: 100
    output_tokens: 10
serving:
  pools:
    - {name: main, accelerator: h200}
    - {name: other, accelerator: h100}
"""


@pytest.fixture
def fails(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Fails:
    """Runs the command, sees that it failed as it should, and gives its sentences."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(one_server())
    Path("real.yaml").write_text(REAL)
    Path("a-file").write_text("content")

    def run_it(*args: str) -> list[str]:
        before = sorted(Path().rglob("*"))
        with pytest.raises(SystemExit) as left:
            main(["simulate", *args])
        captured = capfd.readouterr()
        assert left.value.code == 2
        assert captured.out == ""
        assert sorted(Path().rglob("*")) == before
        lines = captured.err.splitlines()
        assert all(line.startswith("windtunnel: ") for line in lines)
        return [line.removeprefix("windtunnel: ") for line in lines]

    return run_it


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "bad.yaml: there is no such file"),
        ("", "bad.yaml: the file is empty; allowed: a mapping with the keys"),
        ("a: [1,\nb: }", "bad.yaml:2: this is not YAML: "),
        ("- 1\n", "bad.yaml:1: "),
        ("a: 1\na: 2\n", "bad.yaml:2: "),
        (one_server(rate="-4/s"), "bad.yaml:5: workload[0].arrivals.rate: '-4/s' is too small"),
        (one_server(output=0), "bad.yaml:7: workload[0].output_tokens: 0 is too small"),
        (one_server().replace("name: main", "name: main\n      replicas: 0"), "bad.yaml:11: "),
        (one_server().replace("count: 1", "counts: 1"), "bad.yaml:4: workload[0].counts: unknown"),
        (one_server().replace("    count: 1\n", ""), "bad.yaml:3: workload[0].count: missing"),
        (one_server().replace("count: 1", "count: many"), "bad.yaml:4: workload[0].count: 'many'"),
    ],
)
def test_a_bad_file(fails: Fails, content: str | None, sentence: str) -> None:
    if content is not None:
        Path("bad.yaml").write_text(content)
    (said,) = fails("bad.yaml")
    assert said.startswith(sentence)


def test_several_faults_are_a_sentence_each(fails: Fails) -> None:
    text = one_server(rate="-4/s", prompt=0).replace("kv_blocks: 1000", "kv_blocks: some")
    Path("bad.yaml").write_text(text)
    assert [line.partition(": ")[0] for line in fails("bad.yaml")] == [
        "bad.yaml:5",
        "bad.yaml:6",
        "bad.yaml:11",
    ]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("a-file/below", "not a directory"),
        ("a-file/far/below", "not a directory"),
        ("/proc/nowhere/at/all", "no such file or directory"),
        ("new/" + "x" * 300, "file name too long"),
    ],
)
def test_a_folder_that_cannot_be(fails: Fails, place: str, reason: str) -> None:
    hint = "(choose another folder with -o)"
    assert fails("good.yaml", "-o", place) == [f"{place}: cannot write results: {reason} {hint}"]


def test_an_empty_path_is_not_the_current_folder(fails: Fails) -> None:
    assert fails("") == ["SCENARIO: the path is empty; allowed: a path"]


def test_a_file_is_no_folder(fails: Fails) -> None:
    (said,) = fails("good.yaml", "-o", "a-file")
    assert said == "a-file: is a file, not a folder (choose another folder with -o)"


@pytest.mark.parametrize(
    ("content", "kind"), [(b"PAR1\0\0", "Parquet"), (b"\x1f\x8b\x08", "gzip"), (b"PK\3\4", "zip")]
)
def test_a_file_of_another_kind_is_called_by_its_name(
    fails: Fails, content: bytes, kind: str
) -> None:
    Path("x.bin").write_bytes(content)
    assert fails("x.bin") == [f"x.bin: this is a {kind} file, not a scenario"]


@pytest.mark.parametrize("options", [[], ["-o", "out"]])
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("a-file/x.json", "not a directory"),
        ("missing/x.json", "no such file or directory"),
        (".", "is a directory"),
    ],
)
def test_a_file_that_cannot_be_is_known_before_the_run(
    fails: Fails, options: list[str], place: str, reason: str
) -> None:
    hint = "(choose another file with --json)"
    said = fails("good.yaml", "--json", place, *options)
    assert said == [f"{place}: cannot write results: {reason} {hint}"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--seed", "-1"], "--seed -1: seed: -1 is too small"),
        (["--seed", "x"], "Invalid value for '--seed': 'x' is not a whole number."),
        (["--seeds", "x"], "Invalid value for '--seeds': 'x' is not a whole number."),
        (["-o", ""], "-o: there is no name after it; allowed: a path"),
        (["--json", " "], "--json: there is no name after it; allowed: a path"),
        (["--set", "nonsense"], "--set nonsense: this is not a path and a value"),
        (["--set", "nonsense=1"], "--set nonsense=1: nonsense: unknown key"),
        (["--set", "serving.pools.7.replicas=1"], "--set serving.pools.7.replicas=1: "),
        (["--nonsense"], "No such option"),
        (["second.yaml"], "Got unexpected extra argument"),
    ],
)
def test_a_bad_option(fails: Fails, args: list[str], sentence: str) -> None:
    (said,) = fails("good.yaml", *args)
    assert said.startswith(sentence)


POOL = "serving.pools[0]: "
POOL_PROFILE = "serving.pools[0].step_time.profile: "


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("model=llama-9", "model: model 'llama-9' is not in the catalog; allowed: "),
        ("model=./config.json", "model: config.json: the model configuration cannot be read"),
        (
            "serving.pools.0.accelerator=h900",
            "serving.pools[0].accelerator: accelerator 'h900' is not in the catalog",
        ),
        ("serving.pools.0.tensor_parallel=3", POOL + "model llama-3.1-8b: tensor_parallel is 3"),
        (
            "serving.pools.0.engine={memory_utilization: 0.1}",
            POOL + "llama-3.1-8b does not fit on h200",
        ),
        (
            "serving.pools.0.step_time={model: physics, profile: nonsense}",
            POOL_PROFILE + "there is no profile 'nonsense'; allowed: ",
        ),
        (
            "serving.pools.0.step_time={model: physics, profile: ./none.json}",
            POOL_PROFILE + "none.json: the profile cannot be read",
        ),
        (
            "serving.pools.0.step_time={model: table, path: none.csv}",
            POOL.removesuffix(": ") + ".step_time.path: none.csv: ",
        ),
    ],
)
@pytest.mark.parametrize("options", [["--json", "-"], ["-o", "deep/out"]])
def test_hardware_and_models_that_are_not_there(
    fails: Fails, override: str, sentence: str, options: list[str]
) -> None:
    (said,) = fails("real.yaml", "--set", override, *options)
    assert said.startswith(f"--set {override}: {sentence}")


def test_every_pool_is_heard(fails: Fails) -> None:
    bad = ["--set", "serving.pools.0.accelerator=x", "--set", "serving.pools.1.tensor_parallel=3"]
    said = fails("real.yaml", *bad)
    assert sorted(line.split(": ")[:2] for line in said) == [
        ["--set serving.pools.0.accelerator=x", "serving.pools[0].accelerator"],
        ["--set serving.pools.1.tensor_parallel=3", "serving.pools[1]"],
    ]


def test_a_model_that_fits_nowhere_is_told_what_would_help(fails: Fails) -> None:
    said = fails("real.yaml", "--set", "model=llama-3.1-405b")
    assert len(said) == 2
    place = "--set model=llama-3.1-405b: "
    assert said[0].startswith(place + POOL + "llama-3.1-405b does not fit on h200: it needs ")
    assert "tensor_parallel" in said[0]
