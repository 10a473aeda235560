"""Searches from Python: the same as the commands, as tables."""

from pathlib import Path

import pytest

import windtunnel as wt
from tests.twin.runs import BUSY

REPLICAS = "serving.pools.0.replicas"


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    path = tmp_path / "busy.yaml"
    path.write_text(BUSY)
    return path


def test_a_sweep_is_a_table_of_runs_with_means_and_a_front(busy: Path, tmp_path: Path) -> None:
    asked = {REPLICAS: range(1, 4), "serving.router.policy": "round-robin,least-loaded"}
    table = wt.sweep(
        busy, asked, sets={"duration": "300ms"}, seeds=2, jobs=1, cache=tmp_path / "kept"
    )
    assert len(table) == 12
    assert len(table.means) == 6
    assert set(table.front["point"]) <= set(table["point"])
    assert table.means[REPLICAS] == [1, 1, 2, 2, 3, 3]
    assert "critical.attained" in table._repr_html_()
    assert len(list((tmp_path / "kept").rglob("*.json"))) == 12
    again = wt.sweep(
        busy, asked, sets={"duration": "300ms"}, seeds=2, jobs=1, cache=tmp_path / "kept"
    )
    assert again.parquet() == table.parquet()


def test_what_is_wrong_is_said_as_by_the_command(busy: Path) -> None:
    with pytest.raises(wt.WindtunnelError, match="did you mean 'replicas'"):
        wt.sweep(busy, {"serving.pools.0.replica": [1, 2]})
    with pytest.raises(wt.WindtunnelError, match="nothing is varied"):
        wt.sweep(busy, {})
    with pytest.raises(wt.WindtunnelError, match="one value is nothing to vary"):
        wt.sweep(busy, {REPLICAS: [2]})
    with pytest.raises(wt.WindtunnelError, match="there is no figure 'cost'"):
        wt.sweep(busy, {REPLICAS: [2, 3]}, metrics=["cost"])
