"""Builds a small wheel of the package once, for the tests that look at what a build leaves."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = "windtunnel.core.loop"


class Build:
    """A finished build: what it said, and the wheel it made."""

    def __init__(self, said: str, wheel: Path) -> None:
        self.said = said
        self.wheel = wheel

    def names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()


class Site:
    """A folder with the package unpacked, as an installer would leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "windtunnel"

    def python(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs Python on this copy of the package and no other."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL")}
        path = variables.pop("PYTHONPATH", str(self.folder))
        environment |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | variables
        command = [sys.executable, *args]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )

    def command(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the `windtunnel` command of this copy."""
        return self.python("-m", "windtunnel", *args, **variables)

    def only(self, pattern: str) -> Path:
        """The one file under the folder that the pattern finds."""
        (path,) = self.folder.glob(pattern)
        return path


def build_wheel(tree: Path, **variables: str) -> Build:
    """Makes a wheel of a copy of the sources in which one small module is compiled."""
    skip = shutil.ignore_patterns("*.so", "compiled.*.json", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=skip)
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    project = (ROOT / "pyproject.toml").read_text()
    before, _, after = project.partition("\ncompiled = [")
    after = after.partition("]")[2]
    (tree / "pyproject.toml").write_text(f'{before}\ncompiled = ["{COMPILED}"]{after}')
    # A type checker reads the whole package through its public names, which takes it 18 s.
    front = tree / "src" / "windtunnel" / "__init__.py"
    front.write_text(re.sub(r"(?m)^if TYPE_CHECKING:\n(    .*\n)+", "", front.read_text()))
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL")}
    environment |= variables
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    return Build(done.stdout + done.stderr, wheel)


def unpack(build: Build, folder: Path) -> Site:
    with zipfile.ZipFile(build.wheel) as archive:
        archive.extractall(folder)
    return Site(folder)


@pytest.fixture(scope="session")
def compiled_build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A wheel with a compiled module, from a tree where an earlier build left things behind."""
    tree = tmp_path_factory.mktemp("compiled")
    leave_old_build(tree)
    build = build_wheel(tree)
    if "no working C compiler" in build.said:
        pytest.skip("there is no C compiler here")
    return build


@pytest.fixture(scope="session")
def pure_build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A wheel built where the C compiler fails."""
    tree = tmp_path_factory.mktemp("pure")
    leave_old_build(tree)
    return build_wheel(tree, CC="/bin/false")


def leave_old_build(tree: Path) -> None:
    """What a build of a module that is no longer there would have left."""
    platform = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for name in ("lib", platform):
        folder = tree / "build" / name / "windtunnel" / "core"
        folder.mkdir(parents=True)
        (folder / "gone.py").write_text("")
        (folder / f"gone{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"")


@pytest.fixture
def site(compiled_build: Build, tmp_path: Path) -> Site:
    """A fresh copy of the compiled package, to be damaged as a test likes."""
    return unpack(compiled_build, tmp_path)


@pytest.fixture
def pure_site(pure_build: Build, tmp_path: Path) -> Site:
    return unpack(pure_build, tmp_path)
