"""`windtunnel plan`: what it prints and leaves, how it exits, and how it refuses."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.search.plan.plans import SHOP
from windtunnel.cli.main import main
from windtunnel.search.execution import workers
from windtunnel.search.execution.workers import Outcome
from windtunnel.search.plan import planner

Run = Callable[..., tuple[int, str, str]]
EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK = ("--seeds", "2", "--jobs", "1")


@pytest.fixture
def plan(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with one scenario in it."""
    (tmp_path / "shop.yaml").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["plan", "shop.yaml", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def test_the_answer_comes_first(plan: Run) -> None:
    code, out, err = plan("--routers", "round-robin,least-loaded", "--replicas", "1..4", *QUICK)
    assert (code, err) == (0, "")
    first, second, third, *rest = out.splitlines()
    assert first == "2 servers, least-loaded: $5.00/h"
    assert second.startswith("It attains critical ")
    assert re.search(r"\(at least 9[0-9.]*% with 95% confidence\)", second)
    assert third.startswith("windtunnel simulate shop.yaml --set serving.pools.0.replicas=2")
    assert any(line.startswith("runners-up") for line in rest)
    at = next(place for place, line in enumerate(rest) if line.startswith("why not"))
    assert [line.split("  ")[0] for line in rest[at + 1 : at + 3]] == [
        "2 servers, round-robin",
        "1 server, least-loaded",
    ]
    assert rest[at + 1].endswith(": not sure enough")
    assert "trust  caution" in rest
    assert any(line.startswith("  caution: The step times of ") for line in rest)
    assert any(line.startswith("8 candidates of 2 kinds: ") for line in rest)
    assert "  autoscalers: plan.autoscalers is not set" in rest
    assert rest[-1] == "open runs/plan-shop/report.html"
    assert all(len(line) <= 80 for line in rest)
    folder = Path("runs/plan-shop")
    found: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    assert found["best"]["servers"] == [2]
    page = (folder / "report.html").read_text()
    assert "2 servers, least-loaded: $5.00/h" in page
    assert "<circle" in page
    assert "Why not the others" in page
    assert "the closest to the target first" in page
    assert "The step times of main (linear) were not measured" in page


def test_the_line_that_simulates_the_answer_has_what_was_asked(plan: Run) -> None:
    """But for what a plan chooses from, which a run does without."""
    asked = ("--set", "workload.0.count=120", "--set", "plan.replicas={max: 4}", "--seed", "5")
    _, out, _ = plan(*asked, *QUICK)
    words = shlex.split(out.splitlines()[2])
    assert words[:5] == ["windtunnel", "simulate", "shop.yaml", "--set", "workload.0.count=120"]
    assert words[-2:] == ["--seed", "5"]
    assert "plan.replicas" not in out.splitlines()[2]
    assert "--seed 5" in Path("runs/plan-shop/report.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", ["plan", "plan-budget"])
def test_the_guide_shows_what_the_command_prints(
    name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (EXAMPLES.parent / "docs/how-to/plan-a-deployment.md").read_text()
    shown = guide.partition(f"$ windtunnel plan examples/{name}.yaml\n")[2]
    if name == "plan":  # an indented block after the command; `...` stands for lines left out
        shown = shown.partition("```\n")[2].partition("\n- ")[0]
    else:
        shown = shown.partition("```")[0]
    monkeypatch.chdir(EXAMPLES.parent)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["plan", f"examples/{name}.yaml", "-o", str(tmp_path / "plan")])
    printed = {line.strip() for line in capfd.readouterr().out.splitlines()}
    lines = [line.strip() for line in shown.splitlines()]
    kept = [line for line in lines if line and not line.endswith("...")]
    assert len(kept) >= 2
    assert [line for line in kept if line not in printed] == []


def test_why_not_has_rows_or_is_not_there(plan: Run) -> None:
    _, out, _ = plan("--replicas", "1..4", *QUICK)
    assert out.splitlines()[4].startswith("why not")
    assert out.splitlines()[5].startswith("1 server, least-loaded")
    _, out, _ = plan("--replicas", "3..4", *QUICK)
    assert out.startswith("3 servers, least-loaded")
    assert "why not" not in out


def test_a_long_reason_is_wrapped_and_not_cut(plan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = plan("--replicas", "1..4", *QUICK)
    rows = out[out.index("why not") :].partition("\n\n")[0].splitlines()[1:]
    assert len(rows) > 1
    assert all(len(row) <= 60 for row in rows)
    found: dict[str, Any] = json.loads(Path("runs/plan-shop/plan.json").read_text())
    why = next(row["why"] for row in found["candidates"] if row["servers"] == [1])
    assert " ".join(" ".join(rows).split()).endswith(why)


def test_what_has_ended_is_not_run_again(plan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, first, _ = plan(*QUICK)
    kept = sorted(Path("runs/plan-shop/points").rglob("*.json"))
    assert code == 0
    assert len(kept) >= 5

    def refuse(_: object) -> Outcome:
        raise AssertionError("this has been run")

    monkeypatch.setattr(workers, "measured", refuse)
    says = "points that have ended are used again, the rest is replaced; -o DIR keeps them"
    note = f"windtunnel: runs/plan-shop has earlier results: {says}\n"
    assert plan(*QUICK) == (0, first, note)


def test_an_interrupt_says_how_to_go_on(plan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(planner, "answer", interrupt)
    code, out, err = plan(*QUICK)
    assert (code, out) == (130, "")
    assert "what has ended is kept in runs/plan-shop/points; the same command continues" in err


def test_json_alone(plan: Run) -> None:
    code, out, _ = plan("--json", "-", *QUICK)
    assert code == 0
    assert json.loads(out)["best"]["reason"] == "best"
    assert not Path("runs").exists()


@pytest.mark.parametrize("find", ["load", "knee"])
def test_loads(plan: Run, find: str) -> None:
    code, out, err = plan("--find", find, "--json", "found.json", *QUICK)
    assert (code, err) == (0, "")
    assert out.startswith("Carries " if find == "load" else "The knee is at ")
    assert "x its traffic" in out
    found: dict[str, Any] = json.loads(Path("found.json").read_text())
    assert found["find"] == find
    assert "Loads that were tried" in Path(f"runs/plan-shop-{find}/report.html").read_text()
    assert not Path("runs/plan-shop").exists()


def test_nothing_is_good_enough(plan: Run) -> None:
    code, out, _ = plan("--replicas", "1", "--attained", "99%", *QUICK)
    assert code == 1
    assert out.startswith("None of 1 candidate attains critical 99%.\nClosest: 1 server, ")


def test_a_budget_that_no_candidate_fits_names_what_is_nearest_to_it(plan: Run) -> None:
    """Of each kind the cheapest that could carry the load, not the dearest; of all, how far off."""
    (Path("shop.yaml")).write_text((EXAMPLES / "plan.yaml").read_text())
    code, out, _ = plan("--set", "plan.dollars_per_hour=4", *QUICK)
    assert code == 1
    nearest = "2 x h100-sxm (2 servers, tp 1), round-robin"
    said = f"Beyond the budget, the cheapest that could carry the load is {nearest}, $5.20/h."
    assert said in " ".join(out.split())
    table = [line for line in out.partition("why not")[2].splitlines() if " x " in line]
    assert table[0].split() == [
        *nearest.split(),
        "5.20",
        "$5.20",
        "an",
        "hour",
        "is",
        "more",
        "than",
    ]
    costs = [float(re.sub(r".*tp \d\), \S+ +([\d.]+) .*", r"\1", line)) for line in table]
    assert costs == sorted(costs)
    assert costs[-1] < 14
    code, out, _ = plan("--set", "plan.dollars_per_hour=0.1", *QUICK)  # none was simulated
    assert code == 1
    assert "None within the budget could be simulated. " + said in " ".join(out.split())


def test_no_load_is_light_enough(plan: Run) -> None:
    code, out, _ = plan("--find", "load", "--set", "slo.critical.tpot=1ms", "--seeds", "2")
    assert code == 1
    assert out.startswith("No load attains critical 95%, not even 0.0009")


def test_a_limit_of_runs_is_kept(plan: Run) -> None:
    code, out, _ = plan("--max-runs", "2", *QUICK)
    assert code == 1
    assert out.startswith("The run limit ended the search before a candidate was sure")
    assert "\nClosest: 3 servers" in out
    code, out, _ = plan("--max-runs", "1", "--routers", "round-robin,least-loaded", *QUICK)
    assert code == 1
    assert "No candidate was simulated: a limit of 1 full-length run is too small for one." in out
    assert "A limit of 1 full-length run allows none (give more with --max-runs).\n" in out


@pytest.mark.parametrize("find", ["knee", "load"])
def test_a_search_that_the_limit_ends_has_no_verdict_of_trust(plan: Run, find: str) -> None:
    code, out, _ = plan("--find", find, "--seeds", "2", "--max-runs", "7")
    assert code == 1
    assert "the run limit ended the search" in out or "The run limit ended the search" in out
    assert "A limit of 7 full-length runs allows no further step (give more with" in out
    assert not re.search(r"^trust ", out, re.MULTILINE)


def test_a_budget_in_dollars_is_not_a_number_of_runs(plan: Run) -> None:
    code, out, err = plan("--budget", "12", *QUICK)
    assert (code, out) == (2, "")
    assert err == (
        "windtunnel: --budget 12: plan has no option --budget (--max-runs limits how long it "
        "searches, and --set plan.dollars_per_hour=12 what a deployment may cost)\n"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--accelerators", "h200"), "would be the same for all of them"),
        (("--routers", "least-load"), "did you mean 'least-loaded'"),
        (("--routers", "a,,b"), "this is not a list of words"),
        (("--replicas", "5..2"), "5 is more than max, which is 2"),
        (("--replicas", "many"), "this is not a range"),
        (("--attained", "120%"), "is not a share; allowed: a share above 0 and below 1"),
        (("--find", "load", "--replicas", "2..3"), "looks at the scenario's own servers"),
        (("--slo", "gold"), "'gold' is not a class of service"),
        (("--set", "slo={}"), "nothing could miss one"),
        (("-o", " "), "there is no name after it"),
        (("--json", "shop.yaml"), "would overwrite the scenario"),
        (("--find", "cheapest"), "'cheapest' is not one of"),
    ],
)
def test_refusals(plan: Run, args: tuple[str, ...], says: str) -> None:
    code, out, err = plan(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert sorted(path.name for path in Path().iterdir()) == ["shop.yaml"]
