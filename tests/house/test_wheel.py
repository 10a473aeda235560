"""What a wheel carries, with a C compiler and without one."""

import json

import pytest

from tests.house.conftest import Build, Site
from windtunnel._forms import BINARY_SUFFIX, LIBRARY_SUFFIX

pytestmark = [pytest.mark.once, pytest.mark.xdist_group("builds")]


@pytest.mark.needs_compiler
def test_the_wheel_carries_both_forms(compiled_build: Build) -> None:
    names = compiled_build.names()
    (binary,) = (name for name in names if name.endswith(BINARY_SUFFIX))
    assert binary.startswith("windtunnel_")
    assert binary.endswith(LIBRARY_SUFFIX + BINARY_SUFFIX)
    expected = {"windtunnel/core/loop.py", "windtunnel/py.typed", "windtunnel/cli/doctor.py"}
    assert expected <= set(names)
    assert len([name for name in names if name.startswith("windtunnel/compiled.")]) == 1
    assert "none-any" not in compiled_build.wheel.name


def test_without_a_working_compiler_the_wheel_is_pure(pure_build: Build) -> None:
    names = pure_build.names()
    assert pure_build.wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names if "compiled" in name or name.endswith(BINARY_SUFFIX)] == []
    assert "windtunnel/core/loop.py" in names
    assert "no working C compiler" in pure_build.said


def test_the_pure_wheel_works(pure_site: Site) -> None:
    found = json.loads(pure_site.command("doctor", "--json", "-").stdout)
    assert found["form"] == "interpreted"
    assert found["installed_in"] == str(pure_site.package)
    assert found["dependencies"]["click"]
    assert "built without a C compiler" in pure_site.command("doctor").stdout


def test_nothing_that_an_earlier_build_left_travels(pure_build: Build) -> None:
    assert [name for name in pure_build.names() if "gone" in name] == []


@pytest.mark.needs_compiler
def test_nothing_that_an_earlier_compilation_left_travels(compiled_build: Build) -> None:
    assert [name for name in compiled_build.names() if "gone" in name] == []


def test_the_wheel_has_the_command_and_nothing_beside_the_package(pure_build: Build) -> None:
    tops = {name.partition("/")[0] for name in pure_build.names()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"windtunnel"}


def test_the_installed_command_is_the_command_line(pure_site: Site) -> None:
    entry = pure_site.only("*.dist-info/entry_points.txt").read_text()
    assert "windtunnel = windtunnel.cli.program:program" in entry
