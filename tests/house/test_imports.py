"""Who may import whom, and what a light start may import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import windtunnel

ROOT = Path(__file__).parents[2]
HEAVY = (
    "jinja2",
    "pydantic",
    "msgspec",
    "pyarrow",
    "rich",
    "yaml",
    "scipy",
    "numpy",
    "asyncio",
    "aiohttp",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "mypy",
)


@pytest.mark.once
def test_rooms_import_downwards_only(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--cache-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("args", [None, ["--help"], ["--version"]])
def test_a_light_start_imports_nothing_heavy(args: list[str] | None) -> None:
    start = "import windtunnel" if args is None else "from windtunnel.cli.main import main"
    run = "" if args is None else f"main({args!r})"
    script = (
        "import atexit, sys\n"
        f"{start}\n"
        f"heavy = {HEAVY!r}\n"
        "ours = lambda: sorted(n for n in sys.modules if n.startswith('windtunnel.'))\n"
        "atexit.register(lambda: print('HEAVY', [n for n in heavy if n in sys.modules]))\n"
        "atexit.register(lambda: print('OURS', ours()))\n"
        f"{run}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout
    ours = {
        "windtunnel._forms",
        "windtunnel._start",
        "windtunnel.cli",
        "windtunnel.cli.main",
        "windtunnel.core",
        "windtunnel.core.errors",
    }
    line = next(line for line in done.stdout.splitlines() if line.startswith("OURS"))
    assert set(filter(None, line[6:-1].replace("'", "").split(", "))) <= ours


@pytest.mark.once
def test_a_run_imports_only_what_its_scenario_uses() -> None:
    few = (ROOT / "examples/first.yaml").read_text().replace("count: 4000", "count: 9")
    script = (
        "import sys\n"
        "from windtunnel.twin.run import run\n"
        "from windtunnel.twin.scenario.load import load_text\n"
        f"run(load_text({few!r}, sets=['seed=7']))\n"
        "rooms = ('scaling', 'gangs', 'fleet', 'twin.faults.kinds', 'twin.kubernetes.cluster')\n"
        "print([room for room in rooms if f'windtunnel.{room}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr


@pytest.mark.once
@pytest.mark.parametrize("example", ["incidents/no-end", "whole-loop", "faults"])
def test_a_scenario_loads_first_in_a_process(example: str) -> None:
    """Sections that are imported late, with those that their modules declare."""
    script = "from windtunnel.twin.scenario.load import load\nimport sys\nload(sys.argv[1])"
    path = str(ROOT / "examples" / f"{example}.yaml")
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.once
def test_a_run_with_a_folder_imports_nothing_that_libraries_offer_beside(tmp_path: Path) -> None:
    """`pyarrow` would import pandas and masked arrays with its first arrays, in 0.2 s, and TLS;
    numpy the texts of its functions, and pydantic the metadata of packages."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    command = [sys.executable, "-X", "importtime", "-m", "windtunnel", "simulate"]
    done = subprocess.run(
        [*command, str(ROOT / "examples/first.yaml"), "-o", str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT / "src")))},
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert {"pyarrow.lib", "pydantic"} <= imported
    needless = {"numpy.ma", "numpy._core._add_newdocs", "ssl", "importlib.metadata", "email"}
    assert not needless & imported
    assert (tmp_path / "run" / "requests.parquet").exists()


def test_what_stands_in_for_a_module_gives_way_to_it() -> None:
    asked = (
        "from windtunnel.cli.program import _without_plugins, stand_in; _without_plugins();"
        "import pydantic.plugin._schema_validator;"  # uses the one name that stands in
        "from pydantic.plugin._loader import PYDANTIC_ENTRY_POINT_GROUP as name; print(name);"
        "stand_in('colorsys', hsv_to_rgb=tuple); import colorsys, sys;"
        "print(colorsys.ONE_THIRD * 3, colorsys.ONE_SIXTH * 6, sys.modules['colorsys'].__name__)"
    )
    said = subprocess.check_output([sys.executable, "-c", asked], text=True)
    assert said == "pydantic\n1.0 1.0 colorsys\n"


def test_the_public_interface_is_what_it_is_meant_to_be() -> None:
    """A name added or taken away here is a visible change: it needs a line in CHANGELOG.md."""
    assert windtunnel.__all__ == [
        "load",
        "simulate",
        "compare",
        "explain",
        "sweep",
        "sensitivity",
        "plan",
        "check",
        "WindtunnelError",
        "FORM",
        "__version__",
    ]
    for name in windtunnel.__all__:
        assert getattr(windtunnel, name) is not None


def test_the_form_under_test_is_the_one_that_was_asked_for() -> None:
    assert windtunnel.FORM in ("compiled", "interpreted")
    assert os.environ["WINDTUNNEL_FORM"] == windtunnel.FORM
