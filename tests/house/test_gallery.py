"""The pages of the examples come from their files: the list, commands that load, runs, figures."""

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from windtunnel.twin.scenario.load import load

ROOT = Path(__file__).parents[2]
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
EVERY: list[Any] = [one for folder in GALLERY["GROUPS"] for one in GALLERY["examples"](folder)]
SCENARIOS = [one for one in EVERY if not (one.is_program or one.is_gang)]
HELD = [one for one in SCENARIOS if one.name in GALLERY["BANDS"]]
BANDS = GALLERY["BANDS"]


@pytest.mark.once
def test_the_list_of_examples_is_up_to_date() -> None:
    assert GALLERY["README"].read_text(encoding="utf-8") == GALLERY["readme"](), (
        "run `python docs/gallery.py`"
    )


@pytest.mark.once
@pytest.mark.parametrize("example", SCENARIOS, ids=lambda one: one.file)
def test_what_an_example_tells_to_run_loads(example: Any) -> None:
    run = f"windtunnel simulate examples/{example.file}"
    told = [command for command in example.commands if command.startswith(run)]
    assert run in told
    for command in told:
        load(example.path, GALLERY["sets_of"](command))
    assert example.commands[0].startswith("windtunnel ")
    assert len(example.short) < 90 < len(example.text)


@pytest.mark.once
@pytest.mark.parametrize("example", HELD, ids=lambda one: one.name)
def test_every_change_that_a_situation_tells_of_is_held_to_its_figures(example: Any) -> None:
    held = [row.get("with", []) for row in BANDS[example.name]]
    told = [GALLERY["sets_of"](command) for command in example.commands]
    assert [sets for sets in told if sets not in held] == []


@pytest.mark.once
@pytest.mark.parametrize("example", HELD, ids=lambda one: one.name)
def test_every_number_in_the_text_of_an_example_is_held_to_a_run(example: Any) -> None:
    assert GALLERY["unsupported"](example, BANDS[example.name]) == []


@pytest.mark.once
def test_a_wrong_number_is_found_and_fails_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = next(one for one in HELD if one.name == "rack-loss")
    wrong = rack._replace(text=rack.text.replace("69% in", "75% in").replace("$33", "$31"))
    assert GALLERY["unsupported"](wrong, BANDS["rack-loss"]) == ["75%", "$31"]
    monkeypatch.setitem(GALLERY["write_pages"].__globals__, "examples", lambda _folder: [wrong])
    with pytest.raises(ValueError, match=r"rack-loss.yaml: \['75%', '\$31'\]"):
        GALLERY["write_pages"](runs=False)


@pytest.mark.once
def test_every_incident_and_every_situation_has_bands_or_a_test_of_its_page() -> None:
    told = {one.name for folder in ("library", "incidents") for one in GALLERY["examples"](folder)}
    assert told - set(BANDS) == {"gang", "bootstraps", "storm"}  # tests/scenarios/test_incidents.py


@pytest.mark.long
@pytest.mark.parametrize("example", EVERY, ids=lambda one: one.file)
def test_an_example_runs_and_has_its_picture_and_figures(example: Any, tmp_path: Path) -> None:
    made = GALLERY["run_of"](example, tmp_path)
    page = GALLERY["page"](example, made)
    assert page.startswith(f"# {example.short}\n")
    assert f"]({example.name}.svg)" in page
    if example.is_program or example.is_gang:
        assert len(made.text.splitlines()) > 4
        ElementTree.parse(tmp_path / f"{example.name}.svg")
        return
    assert "| SLO attainment |" in page or "| TTFT p99 |" in page
    svg = ElementTree.parse(tmp_path / f"{example.name}.svg").getroot()
    lines = [one for one in svg.iter() if one.get("class", "").startswith("line ")]
    assert len(lines) >= 2
    assert (tmp_path / "extra" / "reports" / f"{example.name}.html").is_file()
