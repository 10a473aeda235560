"""`wt.simulate(wt.load("scenario.yaml"))`: the plain Python interface."""

import subprocess
import sys
from pathlib import Path

import pytest

import windtunnel as wt
from tests.twin.runs import BUSY


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
