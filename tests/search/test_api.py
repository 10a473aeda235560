"""Searches from Python: the same as the commands, as tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from tests.twin.runs import BUSY
from windtunnel.core.errors import InputError

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
    with pytest.raises(wt.WindtunnelError, match="a single value cannot be varied"):
        wt.sweep(busy, {REPLICAS: [2]})
    with pytest.raises(wt.WindtunnelError, match="there is no figure 'cost'"):
        wt.sweep(busy, {REPLICAS: [2, 3]}, metrics=["cost"])


@pytest.mark.parametrize(
    ("asked", "options", "says"),
    [
        ({REPLICAS: [1, 2]}, {"seeds": 0}, "seeds is 0; allowed: 1 or more"),
        ({REPLICAS: [1, 2]}, {"jobs": 0}, "jobs is 0; allowed: 1 or more"),
        ({REPLICAS: [1, 2]}, {"design": "grit"}, "'grit' is not a design.*did you mean 'grid'"),
        ({REPLICAS: 3}, {}, f"vary {REPLICAS}: 3 is not a list of values"),
        ({REPLICAS: np.int64(3)}, {}, "3 is not a list of values"),
        ({REPLICAS: np.array(3)}, {}, "3 is not a list of values"),
        ({REPLICAS: []}, {}, "the list of values is empty"),
        ({REPLICAS: [1, object()]}, {}, "a scenario cannot have the value"),
        ({7: [1, 2]}, {}, "7 is not a path"),
        ([REPLICAS], {}, "is not a dictionary of values by path"),
        ({REPLICAS: [1, 2]}, {"sets": {"duration": object()}}, "sets duration: a scenario cannot"),
        ({REPLICAS: [1, 2]}, {"sets": 5}, "sets: 5 is not a dictionary of values by path"),
        ({REPLICAS: [1, 2]}, {"sets": {3: 1}}, "sets: 3 is not a path"),
    ],
)
def test_every_mistake_is_a_sentence(
    busy: Path, asked: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        wt.sweep(busy, asked, **options)


def test_values_of_numpy_are_values(busy: Path) -> None:
    options: dict[str, Any] = {"seeds": 1, "jobs": 1}
    plain = wt.sweep(busy, {REPLICAS: [1, 2]}, sets={"duration": 0.3}, **options)
    given: list[Any] = [np.array([1, 2]), [np.int64(1), np.int32(2)]]
    for values in given:
        table = wt.sweep(busy, {REPLICAS: values}, sets={"duration": np.float64(0.3)}, **options)
        assert table.parquet() == plain.parquet()
