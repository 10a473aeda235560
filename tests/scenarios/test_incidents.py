"""The five incidents, each the old way and ours, come to the figures that their page has."""

import io
import json
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.cli.controllers.gangs import gangs
from windtunnel.core.units import format_duration
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "incidents"
PAGE = (ROOT / "docs" / "explanation" / "incidents.md").read_text(encoding="utf-8")


def said(*cells: str) -> None:
    """The page has a row of these cells."""
    assert f"| {' | '.join(cells)} |" in PAGE


def run(name: str, *sets: str) -> dict[str, Any]:
    return simulate(load(FOLDER / f"{name}.yaml", sets))


NOBODY = (
    "serving.pools.0.replicas=0",
    "scaling={policy: blis, wake: false, pools: {main: {min: 0}}}",
)


def test_a_run_ends_with_its_requests_or_gives_up() -> None:
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("as it is", ()),
        ("`--set duration=1h`", ("duration=1h",)),
        ("`--set duration=1d`", ("duration=1d",)),
        ("no server starts", NOBODY),
    ]
    ended = []
    for words, sets in rows:
        result = run("no-end", *sets)
        seconds, looks = result["simulated_seconds"], result["scaling"]["ticks"]
        completed = result["requests"]["completed"]
        said(words, f"{seconds:,.0f} s", f"{looks:,}", str(completed))
        ended.append((result["ended_by"], completed + result["requests"]["unfinished"]))
    assert ended == [
        ("last request", 200),
        ("duration", 200),
        ("duration", 200),
        ("nothing to wait for", 200),
    ]


def gang(name: str) -> dict[str, Any]:
    arguments = ["status", str(FOLDER / "gang" / f"{name}.yaml"), "--json", "-"]
    arguments += ["--cluster", str(FOLDER / "gang" / "cluster.yaml"), "--at", "2h"]
    done = CliRunner().invoke(gangs, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.output)
    return found


def held_for_nothing(found: dict[str, Any]) -> int:
    """GPUs under pods that run and belong to a gang that does not."""
    idle = [gang["name"] for gang in found["gangs"] if gang["phase"] != "Running"]
    running = [pod for pod in found["pods"] if pod["status"] == "Running"]
    return 8 * len([pod for pod in running if pod["gang"] in idle])


def test_a_gang_below_its_minimum_is_ended_and_placed_anew() -> None:
    both = gang("never"), gang("ten-minutes")
    fired = [
        [event["at_s"] for event in found["events"] if "terminated" in event["message"]]
        for found in both
    ]
    assert fired == [[], [2440.0]]
    said("the gang is terminated after", "never", format_duration(2440.0))
    available = [f"{one['available']} of {one['replicas']}" for f in both for one in f["sets"]]
    said("engines available after 2 h", *available)
    held = [str(held_for_nothing(found)) for found in both]
    said("GPUs of healthy machines, held by the broken gang", *held)
    why = both[0]["pending"]["chat-0"]
    assert why.endswith(
        "in rack gpu-rack-0, where the others of chat-0 are; 0 fit there, 2 elsewhere"
    )
    assert both[1]["pending"] == {}


def test_the_two_sets_differ_in_one_line() -> None:
    old, ours = (
        [line for line in (FOLDER / "gang" / name).read_text().splitlines() if line[0] != "#"]
        for name in ("never.yaml", "ten-minutes.yaml")
    )
    differ = [(one, other) for one, other in zip(old, ours, strict=True) if one != other]
    assert differ == [("    terminationDelay: Never", "    terminationDelay: 10m")]


def test_replicas_go_where_the_pressure_is() -> None:
    old, ours = run("pressure", "scaling.coordination=null"), run("pressure")
    results = (old, ours)
    sizes = [[pool["replicas"]["final"] for pool in r["pools"].values()] for r in results]
    assert [sum(both) for both in sizes] == [12, 12]
    words = "replicas for prompts and for answers in the end"
    said(words, *(f"{prompts} and {answers}" for prompts, answers in sizes))
    said("SLO attainment", *(f"{r['slo']['standard']['attained']:.1%}" for r in results))
    late = [r["latency"]["ttft"]["p99"] for r in results]
    said("time to the first token, p99", *(f"{seconds:.3g} s" for seconds in late))
    said("cost", *(f"${r['cost']['total']:.2f}" for r in results))
    assert [r["requests"]["completed"] for r in results] == [2800, 2800]


def script(name: str) -> tuple[dict[str, float], dict[str, float]]:
    """What a script finds the old way and ours; it prints both, too."""
    path = str(FOLDER / f"{name}.py")
    old, ours = runpy.run_path(path)["both"]()
    printed = io.StringIO()
    with redirect_stdout(printed):
        runpy.run_path(path, run_name="__main__")
    assert len(printed.getvalue().splitlines()) == 2
    return old, ours


def test_callers_who_are_told_are_refused_next_to_never() -> None:
    old, ours = script("storm")
    said("refusals", *(f"{found['refusals']:,}" for found in (old, ours)))
    said("polls", *(f"{found['polls']:,}" for found in (old, ours)))
    said("done after", *(f"{found['seconds']:.1f} s" for found in (old, ours)))


def test_no_machine_is_ordered_twice() -> None:
    old, ours = script("bootstraps")
    said("orders", *(f"{found['orders']:,}" for found in (old, ours)))
    said("orders for a machine that had one", *(f"{f['repeated']:,}" for f in (old, ours)))
    said("machines that have joined", *(f"{found['joined']:,}" for found in (old, ours)))
    assert ours["repeated"] == 0


def test_every_incident_is_told_of() -> None:
    told = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    files = [*FOLDER.glob("*.yaml"), *FOLDER.glob("*.py"), *FOLDER.glob("*/")]
    assert len(files) == 5
    for path in files:
        name = f"incidents/{path.name}"
        assert f"`{name}`" in told
        assert f"examples/{name}" in PAGE
