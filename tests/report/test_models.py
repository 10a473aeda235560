"""Several models in what people read: the table, the page, the rows, and who refuses them."""

from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.twin.test_models import CHAT, CODE, LARGE, LARGE_POOL, SMALL, SMALL_POOL, text
from windtunnel.cli.live.emulate import served_plan
from windtunnel.core.errors import InputError
from windtunnel.report.files.requests import RequestRows
from windtunnel.report.page import tables
from windtunnel.report.terminal.run import show
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

TWO = text(CHAT, CODE, SMALL_POOL, LARGE_POOL)


def test_the_table_has_a_line_for_each_model() -> None:
    plan = load_text(TWO, sets=["serving.pools.1.cluster=east"])
    out = StringIO()
    show(run(plan).result, plan.slos, None, Console(file=out, width=100))
    lines = [line.split() for line in out.getvalue().splitlines() if line]
    assert ["model", "arrived", "completed"] in [line[:3] for line in lines]
    assert [SMALL, "30"] in [line[:2] for line in lines]
    assert [line[-2:] for line in lines if line[0] == "large"] == [[LARGE, "east"]]


def test_the_page_tells_models_apart_and_one_model_needs_no_table() -> None:
    result = run(load_text(TWO)).result
    assert tables.accounts(result)[0].title == "By model"
    pools = tables.pools(result, {"serving": {"pools": []}})
    assert pools.columns[:2] == ["pool", "model"]
    assert [row[:2] for row in pools.rows] == [["small", SMALL], ["large", LARGE]]
    alone = run(load_text(text(CHAT, SMALL_POOL))).result
    assert "By model" not in [table.title for table in tables.accounts(alone)]


def test_rows_name_the_model_where_there_are_several(tmp_path: Path) -> None:
    rows = RequestRows(tmp_path / "two.parquet")
    run(load_text(TWO), rows=rows)
    rows.close()
    table = pq.read_table(tmp_path / "two.parquet")
    pairs = set(zip(table["source"].to_pylist(), table["model"].to_pylist(), strict=True))
    assert pairs == {("chat", SMALL), ("code", LARGE)}
    one = RequestRows(tmp_path / "one.parquet")
    run(load_text(text(CHAT, SMALL_POOL)), rows=one)
    one.close()
    assert "model" not in pq.read_table(tmp_path / "one.parquet").column_names


def test_one_server_is_emulated_and_has_one_model(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        text(CHAT, CODE.replace("    session", "    # session"), SMALL_POOL, LARGE_POOL)
    )
    with pytest.raises(InputError, match="the pools serve 2 models, and one server is emulated"):
        served_plan(file, [], None)
