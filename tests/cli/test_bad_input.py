"""Bad files and options of commands that fit, measure, compare and plan: a sentence, and exit 2."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live.emulated import command
from windtunnel.cli.main import main

SCENARIO = """\
name: ok
workload:
  - {name: chat, count: 5, arrivals: {process: constant, rate: 20/s}, prompt_tokens: 10,
     output_tokens: 5}
slo: {standard: {ttft: 1s}}
serving:
  pools: [{name: main, engine: {kv_blocks: 100}, step_time: {model: linear, fixed: 10ms}}]
"""
MANIFEST = """\
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: AutoscalingPolicy
metadata: {name: p}
spec:
  tolerancePercent: 10
  metrics: [{metricName: num_requests_waiting, targetValue: 10}]
  behavior: {scaleUp: {stablePolicy: {instances: 1}}}
---
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: AutoscalingPolicyBinding
metadata: {name: b}
spec:
  policyRef: {name: p}
  homogeneousTarget: {target: {targetRef: {name: main}}, minReplicas: 1, maxReplicas: 4}
"""
MEASURED = '{"shape": "llama-3.1-8b", "decodes": 1}\n'

FILES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "binary": lambda _: bytes(range(256)) * 20,
    "zeros": lambda _: bytes(4096),
    "Latin-1": lambda good: "# caf\xe9\n".encode("latin-1") + good,
    "cut": lambda good: good[: len(good) // 2 - 3],
    "a list": lambda _: b"[1, 2, 3]\n",
    "a number": lambda _: b"5\n",
    "NaN": lambda _: b'{"seed": NaN, "shape": NaN, "tokens": 1e999}\n',
    "many digits": lambda _: b'{"seed": ' + b"9" * 10_000 + b"}\n",
    "nested lists": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "nested maps": lambda _: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a key twice": lambda good: b"name: a\nname: b\n" + good,
    "a key twice in JSON": lambda _: b'{"tokens": 1, "tokens": 2}\n',
    "aliases of aliases": lambda _: (
        b"a: &a [1]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 115)
        )
    ),
}
"""What a file may hold that is no good, from a good one."""
PLACES = ("missing", "folder", "loop", "device")


def bad_file(place: Path, name: str, good: str) -> Path:
    path = place / "given.yaml"
    if name == "folder":
        path.mkdir()
    elif name == "loop":
        path.symlink_to(path)
    elif name == "device":
        path.symlink_to("/dev/null")
    elif name != "missing":
        path.write_bytes(FILES[name](good.encode()))
    return path


VARY = ("--metric", "latency.ttft.p95", "--vary", "workload[0].output_tokens=5..6")
COMMANDS: dict[str, tuple[str, Callable[[str, str], list[str]]]] = {
    "compare": (SCENARIO, lambda bad, good: ["compare", bad, good]),
    "check": (SCENARIO, lambda bad, good: ["check", good, bad]),
    "sensitivity": (SCENARIO, lambda bad, _: ["sensitivity", bad, *VARY]),
    "plan": (SCENARIO, lambda bad, _: ["plan", bad]),
    "observe": (SCENARIO, lambda bad, _: ["observe", bad, "--endpoint", "http://127.0.0.1:9"]),
    "compare --real": (MEASURED, lambda bad, good: ["compare", good, "--real", bad]),
    "calibrate": (MEASURED, lambda bad, _: ["calibrate", bad]),
    "calibrate --evaluate": (MEASURED, lambda bad, _: ["calibrate", "--evaluate", bad]),
    "calibrate --profile": (
        MEASURED,
        lambda bad, _: ["calibrate", "--evaluate", bad, "--profile", bad],
    ),
    "calibrate --replay": (MEASURED, lambda bad, _: ["calibrate", "--replay", bad]),
    "calibrate --operators": (MEASURED, lambda bad, _: ["calibrate", "--operators", bad]),
    "a manifest": (
        MANIFEST,
        lambda bad, good: ["simulate", good, "--set", f"scaling.manifests=[{bad}]"],
    ),
    "profile --shapes": (MEASURED, lambda bad, _: ["profile", "--shapes", bad]),
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said by a command that has to refuse, and leave nothing behind."""
    before = sorted(Path().rglob("*"))
    with pytest.raises(SystemExit) as left:
        main(arguments)
    said = capsys.readouterr()
    assert left.value.code == 2, said
    assert said.out == ""
    assert "Traceback" not in said.err
    assert len(said.err) < 20_000
    assert sorted(Path().rglob("*")) == before
    return said.err


@pytest.mark.parametrize("kind", [*FILES, *PLACES])
@pytest.mark.parametrize("command_name", COMMANDS)
def test_a_bad_file_is_named_in_a_sentence(
    command_name: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good_text, arguments = COMMANDS[command_name]
    good = tmp_path / "good.yaml"
    good.write_text(SCENARIO)
    bad = bad_file(tmp_path, kind, good_text)
    said = refused(arguments(str(bad), str(good)), capsys)
    assert said.startswith("windtunnel: ")
    assert "given.yaml" in said


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_byte_order_mark_and_other_ends_of_lines_change_nothing(
    start: bytes, end: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [b'{"shape": "x"}'] * 3
    (tmp_path / "m.jsonl").write_bytes(start + end.join(lines) + end)
    said = refused(["calibrate", str(tmp_path / "m.jsonl")], capsys)
    assert "m.jsonl:1: not a measurement: " in said
    assert "not JSON" not in said


MANIFEST_CHANGES = {
    "text": ("targetValue: 10", "targetValue: ten"),
    "nan": ("targetValue: 10", "targetValue: .nan"),
    "infinite": ("targetValue: 10", "targetValue: .inf"),
    "below zero": ("targetValue: 10", "targetValue: -5"),
    "too large": ("targetValue: 10", "targetValue: 1e400"),
    "a date": ("targetValue: 10", "targetValue: 2020-01-01"),
    "binary": ("targetValue: 10", "targetValue: !!binary aGk="),
    "code": ("targetValue: 10", "targetValue: !!python/object/apply:os.system [id]"),
    "no mapping": ("metadata: {name: p}", "metadata: 5"),
    "no list": ("metrics: [{metricName: num_requests_waiting, targetValue: 10}]", "metrics: 5"),
    "no text": ("policyRef: {name: p}", "policyRef: {name: [p]}"),
    "no kind": ("kind: AutoscalingPolicy\n", "kind: [1]\n"),
    "a truth": ("tolerancePercent: 10", "tolerancePercent: true"),
    "twice": ("tolerancePercent: 10", "tolerancePercent: 10\n  tolerancePercent: 11"),
    "a part": ("maxReplicas: 4", "maxReplicas: 1.5"),
    "too many": ("maxReplicas: 4", "maxReplicas: 99999999999999999999"),
    "min above max": ("minReplicas: 1", "minReplicas: 9"),
}


@pytest.mark.parametrize("change", MANIFEST_CHANGES)
def test_a_bad_value_in_a_manifest_is_named_with_its_line(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = MANIFEST_CHANGES[change]
    assert old in MANIFEST
    (tmp_path / "policy.yaml").write_text(MANIFEST.replace(old, new, 1))
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO + "scaling: {manifests: [policy.yaml]}\n")
    said = refused(["simulate", str(scenario), "-o", str(tmp_path / "run")], capsys)
    line = MANIFEST[: MANIFEST.index(old)].count("\n") + 1
    assert any(f"policy.yaml:{line + more}: " in said for more in (0, 1)), said


GEMM: dict[str, Any] = {
    "gemm_dtype": ["bfloat16"],
    "m": [64],
    "n": [4096],
    "k": [4096],
    "latency": [1.0],
}
TABLES: dict[str, dict[str, Any]] = {
    "no column": {"a": [1]},
    "nothing": GEMM | {"m": pa.array([None], pa.int64())},
    "not a number": GEMM | {"m": [float("nan")]},
    "text": GEMM | {"m": ["x"]},
    "below zero": GEMM | {"m": [-1]},
    "no time": GEMM | {"latency": pa.array([None], pa.float64())},
}


def of_json(name: str, path: str, value: Any) -> Callable[[Path], None]:
    """Puts another value into a file of a run."""

    def harm(folder: Path) -> None:
        place = folder / name
        found = inner = msgspec.json.decode(place.read_bytes())
        *way, last = path.split(".")
        for key in way:
            inner = inner[int(key)] if isinstance(inner, list) else inner[key]
        inner[last] = value
        place.write_bytes(msgspec.json.encode(found))

    return harm


def of_column(name: str, column: str, value: Any) -> Callable[[Path], None]:
    """Puts one value into all rows of a column of a run."""

    def harm(folder: Path) -> None:
        table = pq.read_table(folder / name)
        place = table.column_names.index(column)
        values = pa.array([value] * table.num_rows)
        pq.write_table(table.set_column(place, column, values), folder / name)

    return harm


def without_latencies(folder: Path) -> None:
    place = folder / "result.json"
    found = msgspec.json.decode(place.read_bytes())
    del found["latency"]
    place.write_bytes(msgspec.json.encode(found))


def cut_requests(folder: Path) -> None:
    place = folder / "requests.parquet"
    place.write_bytes(place.read_bytes()[:-200])


DAMAGE: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "latencies are a number": (
        of_json("result.json", "latency", 5),
        ("explain", "report", "compare"),
    ),
    "no latencies": (without_latencies, ("compare", "report", "explain")),
    "a mean is a word": (of_json("result.json", "latency.ttft.mean", "x"), ("compare",)),
    "trust says nothing": (of_json("result.json", "trust.findings", []), ("compare",)),
    "another pool": (of_json("scenario.json", "serving.pools.0.name", "other"), ("explain",)),
    "words for times": (of_column("timeline.parquet", "time", "x"), ("explain", "report")),
    "cut off": (cut_requests, ("compare", "explain", "report")),
    "no pool": (of_column("timeline.parquet", "pool", None), ("explain",)),
    "numbers for words": (of_column("requests.parquet", "source", 1), ("explain",)),
    "fractions of tokens": (of_column("requests.parquet", "prompt_tokens", 0.5), ("explain",)),
}


@pytest.mark.parametrize(
    ("harm", "name"), [(harm, name) for harm, (_, names) in DAMAGE.items() for name in names]
)
def test_a_damaged_run_is_a_sentence(
    harm: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "good.yaml"
    scenario.write_text(SCENARIO)
    for folder in ("run", "other"):
        with pytest.raises(SystemExit) as left:
            main(["simulate", str(scenario), "-o", folder])
        assert left.value.code == 0
    (tmp_path / "run/report.html").unlink()
    DAMAGE[harm][0](tmp_path / "run")
    capsys.readouterr()
    said = refused([name, "run", *(["other"] if name == "compare" else [])], capsys)
    assert said.startswith("windtunnel: run")
    assert re.search("incomplete, or have another form|is missing|is not a number|is damaged", said)
    assert "Error" not in said, "no name of a Python exception"


def test_a_router_of_a_plan_without_a_policy_has_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "good.yaml"
    scenario.write_text(
        SCENARIO + "plan: {slo: [standard], routers: [{}], replicas: {min: 1, max: 2}}\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["plan", str(scenario), "--jobs", "1", "--json", "-"])
    assert left.value.code == 0, capsys.readouterr()
    assert '"round-robin"' in capsys.readouterr().out


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_operators_without_numbers_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table(TABLES[name]), tmp_path / "gemm_perf.parquet")
    said = refused(["calibrate", "--operators", str(tmp_path)], capsys)
    assert str(tmp_path) in said


PLAN, OBSERVE = ("plan", "GOOD"), ("observe", "GOOD", "--endpoint", "http://127.0.0.1:9")
SENSITIVITY = ("sensitivity", "GOOD", *VARY)
OPTIONS = [
    (*PLAN, "--max-runs", "nan"),
    (*PLAN, "--max-runs", "inf"),
    (*PLAN, "--max-runs", "0"),
    (*PLAN, "--attained", "nan"),
    (*PLAN, "--attained", "1e999"),
    (*PLAN, "--confidence", "1"),
    (*PLAN, "--replicas", "9..1"),
    (*PLAN, "--replicas", "1..99999999999999999999"),
    (*PLAN, "--tensor-parallel", "0"),
    (*PLAN, "--accelerators", ","),
    (*PLAN, "--routers", "x"),
    (*PLAN, "--slo", "x"),
    (*PLAN, "--set", "plan=5"),
    (*PLAN, "--seed", "-1"),
    (*PLAN, "--seed", "9" * 30),
    (*PLAN, "--memory", "nan"),
    (*PLAN, "--on", "x"),
    (*SENSITIVITY, "--samples", "0"),
    (*SENSITIVITY, "--samples", "9" * 25),
    (*SENSITIVITY, "--metric", "x.y"),
    (*SENSITIVITY, "--vary", "x=1..2"),
    (*SENSITIVITY, "--vary", "=1..2"),
    (*SENSITIVITY, "--vary", "workload[0].prompt_tokens=6..5"),
    (*SENSITIVITY, "--vary", "workload[0].prompt_tokens=nan..5"),
    (*SENSITIVITY, "--vary", "workload[9].prompt_tokens=1..2"),
    (*SENSITIVITY, "--seed", "-1"),
    ("compare",),
    ("compare", "GOOD"),
    ("compare", "GOOD", "GOOD", "--seeds", "0"),
    ("compare", "GOOD", "--vary", "x=1,2"),
    ("compare", "GOOD", "--vary", "serving.router.policy="),
    ("compare", "GOOD", "GOOD", "--seed", "-1"),
    ("check", "GOOD", "GOOD", "--block", "0s"),
    ("check", "GOOD", "GOOD", "--min-attainment", "x"),
    (*OBSERVE, "--speedup", "nan"),
    (*OBSERVE, "--speedup", "inf"),
    (*OBSERVE, "--speedup", "1e-400"),
    (*OBSERVE, "--concurrency", "0"),
    (*OBSERVE, "--timeout", "-1s"),
    (*OBSERVE, "--wait", "1e400s"),
    (*OBSERVE, "--key-env", "NO_SUCH_VARIABLE"),
    (*OBSERVE, "--endpoint", "ftp://x"),
    (*OBSERVE, "--endpoint", "http://[::1"),
    (*OBSERVE, "--endpoint", "http://x:99999999"),
    ("calibrate",),
    ("calibrate", "GOOD", "--accelerator", "x"),
    ("calibrate", "--replay", ".", "--kv-blocks", "-4"),
    ("profile", "--limit-minutes", "nan"),
    ("profile", "--limit-minutes", "-1"),
    ("profile", "--shapes", ""),
]


@pytest.mark.parametrize("given", OPTIONS, ids=lambda given: " ".join(given)[:60])
def test_a_bad_option_is_a_sentence_that_names_it(
    given: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "good.yaml").write_text(SCENARIO)
    said = refused([argument.replace("GOOD", "good.yaml") for argument in given], capsys)
    assert "Error: " in said or said.startswith("windtunnel: ")
    named = [one.replace("GOOD", "good.yaml") for one in given if one.startswith(("--", "GOOD"))]
    assert len(given) < 3 or given[-1] in said or any(one in said for one in (*named, "--set "))


FULL_DISK_BYTES = 4096


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "good.yaml", "-o", "out"),
        ("sweep", "good.yaml", *VARY, "-o", "out"),
        ("compare", "good.yaml", "good.yaml", "-o", "out"),
        ("compare", "good.yaml", "good.yaml", "--json", "/dev/full"),
        ("plan", "good.yaml", "-o", "out"),
        ("plan", "good.yaml", "--json", "/dev/full"),
        ("sensitivity", "good.yaml", *VARY, "--samples", "2", "-o", "out"),
        ("sensitivity", "good.yaml", *VARY, "--samples", "2", "--json", "/dev/full"),
    ],
    ids=" ".join,
)
def test_a_full_disk_is_a_sentence(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A limit on the size of files is a disk that is full at that size."""
    (tmp_path / "good.yaml").write_text(SCENARIO)
    done = limited(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert "cannot write results: " in said
    assert "draft" not in said  # the folder that was asked for
    assert "file too large" in said or "no space left on device" in said
    assert not list(tmp_path.rglob("*.html"))
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_observe_on_a_full_disk_is_a_sentence_and_keeps_what_was_written(tmp_path: Path) -> None:
    scenario = tmp_path / "good.yaml"
    scenario.write_text(SCENARIO.replace("count: 5", "count: 400").replace("20/s", "400/s"))
    with command(str(scenario)) as (_, said):
        url = said.split()[2]
        done = limited(tmp_path, "observe", str(scenario), "--endpoint", url, "-o", "trace.parquet")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert "trace.parquet: cannot be written: file too large" in done.stderr
    assert "what was written before is in trace.parquet.part" in done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["good.yaml", "trace.parquet.part"]


def limited(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))

    return subprocess.run(
        [sys.executable, "-B", "-m", "windtunnel", *arguments],
        cwd=folder,
        env=dict(os.environ),
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
