"""Every scenario of the library stays within its bands, and leaves them when it is broken."""

import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "examples" / "library", ROOT / "examples", ROOT / "examples" / "incidents")
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
BANDS: dict[str, list[dict[str, Any]]] = GALLERY["BANDS"]


class Run(NamedTuple):
    """One run of a scenario: what is changed, what must hold then, and what must not."""

    name: str
    sets: list[str]
    expect: dict[str, list[float]]
    breaks: dict[str, list[float]]


def _run(name: str, row: dict[str, Any]) -> Run:
    whole = BANDS[name][0]["expect"]
    broken = {path: whole[path] for path in row.get("breaks", [])}
    return Run(name, row.get("with", []), row.get("expect", {}), broken)


def path_of(name: str) -> Path:
    return next(folder / f"{name}.yaml" for folder in FOLDERS if (folder / f"{name}.yaml").exists())


def held(run: Run) -> None:
    outside = GALLERY["outside"]
    result = simulate(load(path_of(run.name), run.sets))
    assert outside(result, run.expect) == {}
    assert list(outside(result, run.breaks)) == list(run.breaks)


AS_THEY_ARE = [_run(name, rows[0]) for name, rows in BANDS.items()]
CHANGED = [_run(name, row) for name, rows in BANDS.items() for row in rows[1:]]


@pytest.mark.long
@pytest.mark.parametrize("run", AS_THEY_ARE, ids=lambda run: run.name)
def test_a_scenario_stays_within_its_bands(run: Run) -> None:
    assert run.sets == []
    held(run)


@pytest.mark.long
@pytest.mark.parametrize("run", CHANGED, ids=lambda run: f"{run.name}, {' '.join(run.sets)}")
def test_a_changed_scenario_does_what_is_said_of_it(run: Run) -> None:
    held(run)


def test_every_scenario_of_the_library_has_bands() -> None:
    assert {path.stem for path in FOLDERS[0].glob("*.yaml")} <= set(BANDS)


@pytest.mark.parametrize("rows", BANDS.values(), ids=BANDS.keys())
def test_every_scenario_is_broken_by_something(rows: list[dict[str, Any]]) -> None:
    assert any(row.get("breaks") for row in rows[1:])


@pytest.mark.parametrize("name", BANDS)
def test_a_scenario_says_how_to_run_it_and_what_to_look_for(name: str) -> None:
    path = path_of(name)
    lines = path.read_text(encoding="utf-8").splitlines()
    paragraph = " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
    assert f"`windtunnel simulate {path.relative_to(ROOT).as_posix()}`" in paragraph
    assert len(paragraph) > 400
    assert load(path).name == name
