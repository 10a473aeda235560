"""`windtunnel doctor` looks things up, and says the same in words and in JSON."""

import json
import platform
import tomllib
from pathlib import Path

import pytest

import windtunnel
from windtunnel.cli.doctor import describe, examine, hot_modules
from windtunnel.cli.main import main
from windtunnel.core.system.extras import install_command

ROOT = Path(__file__).parents[2]


def doctor(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["doctor", *args])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(doctor(capsys, "--json", "-"))
    assert found["windtunnel"] == windtunnel.__version__
    assert found["form"] == windtunnel.FORM
    assert found["python"] == platform.python_version()


def test_every_hot_module_loaded_in_the_form_of_this_run() -> None:
    found = examine()
    assert list(found["modules"]) == hot_modules()
    assert "windtunnel.core.loop" in found["modules"]
    assert set(found["modules"].values()) == {windtunnel.FORM}


def test_the_words_name_what_a_user_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = doctor(capsys)
    found = examine()
    assert words.strip() == describe(found, 60).strip()
    for name in found["dependencies"]:
        assert name in words
    for name in found["modules"]:
        assert name not in words
    lines = words.splitlines()[2:]
    assert max(map(len, lines)) <= 60
    assert f"Hot modules: all {len(found['modules'])} are {windtunnel.FORM}" in lines[1]
    assert ("make compile" in words) == (windtunnel.FORM == "interpreted")


def test_modules_in_two_forms_are_listed() -> None:
    found = examine()
    found["modules"] = {"windtunnel.a": "compiled", "windtunnel.b": "interpreted"}
    words = describe(found)
    assert "Hot modules:\n  windtunnel.a  compiled\n  windtunnel.b  interpreted\n" in words


def test_tools_of_developers_are_one_line() -> None:
    found = examine()
    tools = {"ruff": "1", "mypy": None}
    found["extras"] = {
        "dev": {"packages": tools, "install": "..."},
        "docs": {"packages": {"sphinx": None}, "install": "..."},
    }
    words = describe(found)
    assert words.endswith("\nTools for work on windtunnel itself: 1 of 3 present (make setup)")
    assert "sphinx" not in words


def test_an_absent_extra_comes_with_the_line_that_installs_it() -> None:
    found = examine()
    install = "pip install it"
    found["extras"] = {"gpu": {"packages": {"torch": None}, "install": install}}
    assert f"Extra gpu: absent: torch ({install})" in describe(found)


def test_every_extra_of_the_project_is_listed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"].keys() - {"all"}
    assert set(examine()["extras"]) == extras
    assert install_command("ray") == f'pip install -e "{ROOT}[ray]"'


def test_a_file_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert doctor(capsys, "--json", str(path)) == ""
    assert json.loads(path.read_text())["form"] == windtunnel.FORM
