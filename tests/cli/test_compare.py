"""`windtunnel compare`: what makes a design, what it prints and leaves, how it exits."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.search.test_comparison import SHARED
from tests.twin.runs import one_server
from windtunnel.cli.main import main
from windtunnel.core.invariants import Invariant
from windtunnel.search.sweep.axes import split_values
from windtunnel.twin import run as run_module

Run = Callable[..., tuple[int, str, str]]
ROUTERS = "serving.router.policy=round-robin,least-loaded"


@pytest.fixture
def compare(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command in an empty folder with two scenarios in it."""
    (tmp_path / "shared.yaml").write_text(SHARED)
    (tmp_path / "other.yaml").write_text(SHARED.replace("replicas: 3", "replicas: 2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["compare", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def left_behind() -> list[str]:
    found = {path.as_posix() for path in Path().rglob("*")}
    return sorted(found - {"shared.yaml", "other.yaml"})


def names(out: str) -> list[str]:
    found: dict[str, Any] = json.loads(out)
    return [design["name"] for design in found["designs"]]


def test_two_scenarios_are_held_against_each_other(compare: Run) -> None:
    code, out, err = compare("shared.yaml", "other.yaml", "--seeds", "3")
    assert (code, err) == (0, "")
    assert out.startswith("other against shared  seeds 0 to 2\n")
    assert "TTFT mean" in out
    assert "worse" in out
    assert "no difference seen" in out or "the same" in out
    assert out.splitlines()[-1] == "open runs/compare-shared/compare.html"
    folder = "runs/compare-shared"
    assert left_behind() == ["runs", folder, f"{folder}/compare.html", f"{folder}/compare.json"]
    found = json.loads(Path(folder, "compare.json").read_text())
    assert found["seeds"] == [0, 1, 2]
    page = Path(folder, "compare.html").read_text()
    assert "<h1>other against shared</h1>" in page


def test_one_scenario_varies_and_the_first_value_is_the_measure(compare: Run) -> None:
    args = ("shared.yaml", "--vary", ROUTERS, "--seeds", "2", "--json", "-")
    code, out, err = compare(*args)
    assert (code, err) == (0, "")
    assert names(out) == ["policy=round-robin", "policy=least-loaded"]
    assert left_behind() == []
    assert compare(*args, "--workers", "2")[1] == out, "the same bytes, whoever ran it"
    code, out, err = compare(*args, "--vary", "serving.pools.0.replicas=3,2", "--seed", "9")
    assert names(out) == [
        f"policy={policy}, replicas={servers}"
        for policy in ("round-robin", "least-loaded")
        for servers in (3, 2)
    ]
    assert json.loads(out)["seeds"] == [9, 10]
    sections = "serving.router={policy: random},{policy: weighted, scorers: {queue-depth: 1}}"
    code, out, err = compare("shared.yaml", "--vary", sections, "--seeds", "2", "--json", "-")
    assert names(out) == ["policy: random", "policy: weighted, scorers: {queue-depth: 1}"]
    code, out, err = compare("shared.yaml", "other.yaml", *args[1:])
    assert names(out)[0] == "shared, policy=round-robin"
    assert len(names(out)) == 4


def test_folders_of_runs_are_compared_as_they_are(compare: Run) -> None:
    for name in ("shared", "other"):
        with pytest.raises(SystemExit):
            main(["simulate", f"{name}.yaml", "-o", f"runs/{name}"])
    compare("shared.yaml", "other.yaml", "--seeds", "2")
    code, out, err = compare("runs/shared", "runs/other")
    assert (code, err) == (
        0,
        "windtunnel: runs/compare-shared has earlier results: they are replaced; "
        "-o DIR keeps them\n",
    )
    assert out.startswith("other against shared  seed 0\n")
    assert "finished runs: one sample each" in " ".join(out.split())
    found = json.loads(Path("runs/compare-shared/compare.json").read_text())
    results = [json.loads(Path(f"runs/{n}/result.json").read_text()) for n in ("shared", "other")]
    ttft = next(one for one in found["metrics"] if one["path"] == "latency.ttft.mean")
    assert [one["values"] for one in ttft["designs"]] == [
        [result["latency"]["ttft"]["mean"]] for result in results
    ]
    assert [one["path"] for one in found["settings"]] == ["serving.pools.0.replicas"]
    for args, sentence in (
        (["runs/shared", "other.yaml"], "runs/shared: a folder of a run can be compared with oth"),
        (["runs/shared", "runs/other", "--seeds", "3"], "--seeds: the runs have ended; allowed: "),
        (["runs/shared", "runs"], "runs/result.json: there is no such file (give a folder that"),
    ):
        code, _, err = compare(*args)
        assert (code, err.startswith(f"windtunnel: {sentence}")) == (2, True)


def test_a_scenario_that_is_given_twice_keeps_what_was_varied(compare: Run) -> None:
    _, out, _ = compare("shared.yaml", "shared.yaml", "--vary", ROUTERS, "--json", "-")
    values = ("policy=round-robin", "policy=least-loaded")
    assert names(out) == [f"shared.yaml, {value} ({n})" for n in (1, 2) for value in values]


def test_json_goes_to_a_file_and_the_folder_where_it_is_told(compare: Run) -> None:
    code, out, _ = compare(
        "shared.yaml", "other.yaml", "--seeds", "2", "--json", "c.json", "-o", "x"
    )
    assert code == 0
    assert out.splitlines()[-1] == "open x/compare.html"
    assert Path("c.json").read_bytes() == Path("x/compare.json").read_bytes()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "there is nothing to compare (give two scenarios, or one and --vary)"),
        (
            ["shared.yaml", "--vary", "a.b=1,2", "--vary", "a.b=3,4"],
            "--vary a.b: this path is varied twice (give all values at once: --vary a.b=A,B,C)",
        ),
        (
            ["shared.yaml", "--vary", "name=a,b"],
            "--vary name=a,b: varying the name changes",
        ),
        (["shared.yaml"], "shared.yaml: there is one design, and nothing to compare it with (give"),
        (["shared.yaml", "nowhere.yaml"], "nowhere.yaml: "),
        (["shared.yaml", "--vary", "x"], "--vary x: there is no '=' after the path; allowed: "),
        (
            ["shared.yaml", "--vary", "a=1"],
            "--vary a=1: a single value cannot be varied; ",
        ),
        (
            ["shared.yaml", "--vary", "seed=1,2"],
            "--vary seed=1,2: every point runs with the same seeds, so the seed cannot be varied "
            "(--seeds says how many, --seed the first of them)",
        ),
        (["shared.yaml", "--vary", "a=1,,2"], "--vary a=1,,2: a value is empty; allowed: "),
        (["shared.yaml", "--vary", "a=1,1"], "--vary a=1,1: the value 1 is listed twice"),
        (
            ["shared.yaml", "--vary", "serving.pools.0.replicas=1,none"],
            "--vary serving.pools.0.replicas=none: ",
        ),
        (
            ["shared.yaml", "--vary", "serving.pools.0.replicas=1..13"],
            "these are 13 designs; allowed: up to 12",
        ),
        (
            ["shared.yaml", "--vary", "workload.0.prompt_tokens=1.5..2"],
            "--vary workload.0.prompt_tokens=1.5..2: a range without steps makes no designs; allo",
        ),
        (["shared.yaml", "other.yaml", "--seeds", "1"], "Invalid value for '--seeds': 1 is not in"),
        (
            ["shared.yaml", "other.yaml", "-o", " "],
            "-o: there is no name after it; allowed: a path",
        ),
        (
            ["shared.yaml", "other.yaml", "-o", "shared.yaml"],
            "shared.yaml: is a file, not a folder",
        ),
    ],
)
def test_what_makes_no_comparison_is_a_sentence(
    compare: Run, args: list[str], sentence: str
) -> None:
    code, out, err = compare(*args)
    assert (code, out) == (2, "")
    assert err.startswith(f"windtunnel: {sentence}")
    assert err.count("\n") == 1
    assert left_behind() == []


def test_policies_that_need_options_of_their_own_say_how_to_vary_them(compare: Run) -> None:
    code, _, err = compare("shared.yaml", "--vary", "scaling.policy=saturation,hpa")
    assert code == 2
    missing, how = err.splitlines()
    assert "scaling.metrics: missing" in missing
    assert how.endswith(
        "policy=hpa: a policy may need options of its own, and refuse those of another "
        "(vary the section: --vary 'scaling={policy: A, ...},{policy: B, ...}')"
    )


def test_commas_in_brackets_and_quotes_are_part_of_a_value() -> None:
    assert split_values("{a: 1, b: 2},[3, 4],'5,6',7") == ["{a: 1, b: 2}", "[3, 4]", "'5,6'", "7"]


def test_a_broken_invariant_names_its_design(compare: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Invariant[Any] = Invariant("never", "it is never so", lambda _: "it is so")
    monkeypatch.setattr(run_module, "INVARIANTS", [broken])
    code, out, err = compare("shared.yaml", "other.yaml", "--workers", "1")
    assert (code, out) == (3, "")
    assert "shared: " in err
    assert left_behind() == []


def test_an_interrupt_leaves_nothing(compare: Run) -> None:
    Path("long.yaml").write_text(one_server(count=10**9, rate="100/s"))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        code, _, err = compare("long.yaml", "--vary", "serving.pools.0.replicas=1,2")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert code == 130
    assert err.endswith("interrupted\n")
    assert left_behind() == ["long.yaml"]
