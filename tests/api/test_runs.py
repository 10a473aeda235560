"""`wt.simulate`, `wt.compare` and `wt.explain`: single runs from Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import windtunnel as wt
from tests.search.test_comparison import SHARED
from tests.twin.runs import BUSY
from windtunnel.api.runs import FigurePage
from windtunnel.cli.main import main


def test_a_scenario_is_loaded_and_run(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    result = wt.simulate(wt.load(path, sets=["workload.1.count=3"], seed=5))
    assert (result["name"], result["seed"]) == ("busy", 5)
    assert result["slo"]["batch"]["requests"] == 3
    assert wt.simulate(wt.load(str(path)), check=True)["invariants"]["checked"] > 1000


def test_a_fault_is_one_error_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(wt.WindtunnelError, match="there is no such file"):
        wt.load(tmp_path / "missing.yaml")


def test_a_file_a_dictionary_and_a_plan_are_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    of_file = wt.simulate(path)
    assert wt.simulate(yaml.safe_load(BUSY)) == of_file == wt.simulate(wt.load(path))
    assert wt.simulate(path, seed=9)["seed"] == 9
    texts = wt.simulate(path, sets=["workload.1.count=3"])
    assert wt.simulate(path, sets={"workload.1.count": 3}) == texts != of_file


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ({"name": "x", "workloads": []}, "scenario.yaml"),
        ({"name": float("nan")}, "a scenario cannot have the value"),
        ({"name": object()}, "a scenario cannot have the value"),
    ],
)
def test_a_dictionary_that_is_no_scenario_is_a_sentence(
    scenario: dict[str, object], says: str
) -> None:
    with pytest.raises(wt.WindtunnelError, match=says):
        wt.simulate(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: wt.simulate(None),  # type: ignore[arg-type]
        lambda: wt.simulate("a\0b"),
        lambda: wt.simulate({}, sets=5),  # type: ignore[arg-type]
        lambda: wt.simulate({}, sets=[None]),  # type: ignore[list-item]
        lambda: wt.sweep({}, {"seed": [1]}),  # type: ignore[arg-type]
        lambda: wt.plan({}),  # type: ignore[arg-type]
        lambda: wt.explain({}, request=1),  # type: ignore[arg-type]
        lambda: wt.check("a.yaml", "b.yaml", max_cost=5),  # type: ignore[arg-type]
        lambda: FigurePage("").save("/"),
    ],
)
def test_values_of_a_wrong_kind_are_sentences(wrong: Callable[[], object]) -> None:
    with pytest.raises(wt.WindtunnelError):
        wrong()


def test_wrong_input_names_every_form_that_is_accepted(tmp_path: Path) -> None:
    forms = "allowed: the path of a file, its content as a dictionary, or what wt.load returned"
    with pytest.raises(wt.WindtunnelError, match=forms):
        wt.simulate(None)  # type: ignore[arg-type]
    with pytest.raises(wt.WindtunnelError, match=r"is not a path.*by yaml\.safe_load"):
        wt.simulate(BUSY)
    with pytest.raises(wt.WindtunnelError, match=r'or \["serving.pools.0.replicas=2"\]'):
        wt.simulate({}, sets="serving.pools.0.replicas=2")
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    with pytest.raises(wt.WindtunnelError, match="compare: only one scenario was given"):
        wt.compare(path)
    with pytest.raises(wt.WindtunnelError, match="names: 1 for 2 scenarios"):
        wt.compare(path, path, names=["a"])


def test_a_loaded_scenario_shows_itself_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    shown = repr(wt.load(path, seed=5))
    assert shown == "<scenario busy, seed 5: workload chat, nightly; pools main, spare>"


def test_a_loaded_scenario_takes_no_more_settings(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    with pytest.raises(wt.WindtunnelError, match=r"give them to wt\.load"):
        wt.simulate(wt.load(path), seed=3)


def test_the_requests_of_a_result_are_those_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    later, kept = wt.simulate(path), wt.simulate(path, folder=tmp_path / "run")
    assert later == kept
    assert later.requests == kept.requests
    assert later.requests.num_rows == later["requests"]["arrived"]
    assert kept.folder == tmp_path / "run"
    assert len(later.to_pandas()) == later.requests.num_rows
    assert set(later.timeline["pool"].to_pylist()) >= {None}
    place = later.folder
    assert later.plot().save(tmp_path / "page.html").read_text() == kept.plot().html
    del later
    assert not place.exists()


def test_an_explanation_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    result = wt.simulate(path, folder=tmp_path / "run")
    slow = result.explain(request=0)
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["explain", str(tmp_path / "run"), "--request", "0"])
    assert str(slow) == capsys.readouterr().out.rstrip()
    assert str(wt.explain(tmp_path / "run", request=0)) == str(slow)
    assert str(result.explain(at="1s")) == str(result.explain(at=1.0)) != str(slow)
    with pytest.raises(wt.WindtunnelError, match="one at a time"):
        result.explain(request=0, at=1.0)
    assert "explain(request=ID)" in str(result.explain())
    assert str(tmp_path) not in str(result.explain())


def test_a_difference_is_that_of_the_means_beside_it(tmp_path: Path) -> None:
    """Of every unit, with several seeds and with one, and its sign is that of the verdict."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SHARED)
    plans = [wt.load(path, sets=[f"serving.pools.0.replicas={count}"]) for count in (1, 2, 3)]
    for seeds in (1, 4):
        found = wt.compare(*plans, names=["one", "two", "three"], seeds=seeds, jobs=1)
        rows = list(found)
        assert len(rows) > 30
        for at, row in enumerate(rows):
            base = rows[at - at % 3]["mean"]
            if at % 3 and row["difference"] is not None:
                assert row["difference"] == pytest.approx(row["mean"] - base, rel=1e-9, abs=1e-9)
                if row["verdict"] in ("better", "worse"):
                    assert row["low"] * row["high"] > 0


def test_designs_are_compared_on_the_same_traffic(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BUSY)
    plans = [wt.load(path, sets=[f"serving.pools.0.replicas={count}"]) for count in (1, 3)]
    found = wt.compare(*plans, names=["one", "three"], seeds=2, jobs=1)
    (difference,) = (
        row["difference"]
        for row in found
        if (row["figure"], row["design"]) == ("latency.e2e.mean", "three")
    )
    assert difference < 0
    assert found.caption == "three against one"
    assert "three" in found.plot().html
    with pytest.raises(wt.WindtunnelError, match="only one scenario was given"):
        wt.compare(path)
    with pytest.raises(wt.WindtunnelError, match="one name per scenario"):
        wt.compare(*plans, names=["one"])


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'windtunnel' has no attribute 'simulat'"):
        wt.simulat  # type: ignore[attr-defined] # noqa: B018
    assert set(wt.__all__) <= set(dir(wt))


def test_everything_public_can_be_imported_by_name() -> None:
    script = "from windtunnel import *; print(load.__name__, simulate.__name__, FORM)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"load simulate {wt.FORM}\n"
