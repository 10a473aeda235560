"""The notebooks in examples/ run from the first cell to the last, and show what they say."""

from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = ("compare-and-sweep", "first-run", "plan-and-check")


def outputs_of(name: str) -> list[dict[str, Any]]:
    """Runs a notebook in a kernel of its own, and gives what each of its code cells shows."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    resources = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=50, resources=resources).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.outputs[-1].data if cell.outputs else {} for cell in cells]


def test_every_notebook_is_run_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.long
def test_a_first_run() -> None:
    table, waits, report, slowest, why = outputs_of("first-run")
    assert "first, seed 1" in table["text/html"]
    assert "throughput" in table["text/html"]
    p99 = eval(waits["text/plain"], {})
    assert p99[1] > 3 * p99[4]
    assert report["text/html"].startswith("<iframe srcdoc=")
    number, waited = eval(slowest["text/plain"].replace("np.float64", ""), {})
    assert waited >= p99[1]
    assert f"request {number}" in why["text/plain"]


@pytest.mark.long
def test_comparing_and_sweeping() -> None:
    page, rows, means, chart, frame = outputs_of("compare-and-sweep")
    assert page["text/html"].startswith("<iframe srcdoc=")
    assert "least-loaded" in rows["text/plain"]
    assert means["text/html"].count("<tr>") == 1 + 6
    assert chart["text/html"].startswith("<iframe srcdoc=")
    assert "serving.pools.0.replicas" in frame["text/html"]


@pytest.mark.long
def test_planning_and_checking() -> None:
    best, page, checked, passed = outputs_of("plan-and-check")
    assert "'label'" in best["text/plain"]
    assert page["text/html"].startswith("<iframe srcdoc=")
    assert "latency.ttft.p99" in checked["text/html"]
    assert passed["text/plain"] == "False"
