"""timeline.parquet and token_gaps.parquet agree with the result and with their page."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.report.page.runs import GATED, SPLIT, run_into
from tests.report.test_result_page import types_of
from tests.twin.runs import BUSY, one_server
from windtunnel.analysis.run_folder import TIMELINE, TOKEN_GAPS
from windtunnel.twin.run import Run

PHYSICAL = """\
name: physical
model: llama-3.1-8b
duration: 4s
workload:
  - {name: chat, arrivals: {process: poisson, rate: 5/s}, prompt_tokens: 200, output_tokens: 100}
serving:
  pools: [{name: main, replicas: 2, accelerator: h200}]
"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, pa.Table, pa.Table]:
    folder = tmp_path_factory.mktemp("busy")
    done = run_into(folder, BUSY)
    return done, pq.read_table(folder / TIMELINE), pq.read_table(folder / TOKEN_GAPS)


def test_totals_are_those_of_the_result(busy: tuple[Run, pa.Table, pa.Table]) -> None:
    done, table, _ = busy
    whole = table.filter(pc.is_null(table["replica"]))
    requests = done.result["requests"]
    sums = {name: pc.sum(whole[name]).as_py() for name in ("arrived", "completed", "output_tokens")}
    assert sums["arrived"] == requests["arrived"]
    assert sums["completed"] == requests["completed"]
    assert sums["output_tokens"] == done.result["tokens"]["output"]
    assert whole["time"][-1].as_py() == done.result["simulated_seconds"]
    assert pc.sum(whole["interval"]).as_py() == pytest.approx(2.0)
    assert set(whole["replicas"].to_pylist()) == {3}


def test_there_is_a_row_for_every_server_at_every_time(
    busy: tuple[Run, pa.Table, pa.Table],
) -> None:
    _, table, _ = busy
    rows: list[dict[str, Any]] = table.to_pylist()
    owners = [(None, None), ("main", 0), ("main", 1), ("spare", 0)]
    for start in range(0, len(rows), len(owners)):
        together = rows[start : start + len(owners)]
        assert [(row["pool"], row["replica"]) for row in together] == owners
        assert len({row["time"] for row in together}) == 1
        whole, *servers = together
        for name in ("waiting", "running", "steps"):
            assert whole[name] == sum(row[name] for row in servers)
        for name in ("kv_used", "busy"):
            assert whole[name] == pytest.approx(sum(row[name] for row in servers) / 3)
            assert all(0.0 <= row[name] <= 1.0 for row in together)
        assert all(row["arrived"] is None and row["replicas"] is None for row in servers)


def test_time_in_steps_adds_up_to_the_utilisation(busy: tuple[Run, pa.Table, pa.Table]) -> None:
    done, table, _ = busy
    spent: dict[str, float] = {}
    for row in table.to_pylist():
        if row["pool"]:
            spent[row["pool"]] = spent.get(row["pool"], 0.0) + row["busy"] * row["interval"]
    for pool, figures in done.result["pools"].items():
        used = figures["utilization"] * figures["replica_seconds"]
        assert spent[pool] == pytest.approx(used, rel=1e-6)


def test_a_long_step_is_spread_over_the_samples_it_lasts(tmp_path: Path) -> None:
    """A run of decode steps is one event, seconds long; the server is busy in all of them."""
    run_into(tmp_path, one_server(output=300))
    rows = pq.read_table(tmp_path / TIMELINE).to_pylist()
    servers = [row for row in rows if row["pool"] and 1.25 < row["time"] < 8.0]
    assert len(servers) > 20
    assert all(row["busy"] == pytest.approx(1.0) for row in servers)
    assert all(row["steps"] > 0 for row in servers)
    assert sum(row["steps"] for row in rows if row["pool"]) == 300


def test_a_split_run_shows_its_transfers_and_who_left(tmp_path: Path) -> None:
    done = run_into(tmp_path, SPLIT)
    table = pq.read_table(tmp_path / TIMELINE)
    whole = table.filter(pc.is_null(table["replica"]))
    requests = done.result["requests"]
    assert requests["timed_out"] > 0
    for name in ("completed", "rejected", "timed_out", "dropped"):
        assert pc.sum(whole[name]).as_py() == requests[name]
    assert whole["in_flight"][-1].as_py() == requests["unfinished"]
    assert set(whole["at_gateway"].to_pylist()) == {0}
    assert set(whole["awaiting_server"].to_pylist()) == {0}
    moved = done.result["disaggregation"]["moved_bytes"]
    carried = pc.sum(whole["transferred_bytes"]).as_py()
    assert moved <= carried * (1 + 1e-9)  # the rest was given up, or still on its way
    assert carried <= 20e6 * 8.0
    busy = [row["transferred_bytes"] for row in whole.to_pylist() if row["transfers"]]
    assert min(busy) > 0.0


def test_a_line_at_the_gateway_is_apart_from_what_is_in_flight(tmp_path: Path) -> None:
    done = run_into(tmp_path, GATED)
    table = pq.read_table(tmp_path / TIMELINE)
    rows = table.filter(pc.is_null(table["replica"])).to_pylist()
    assert max(row["at_gateway"] for row in rows) > 20
    assert max(row["in_flight"] for row in rows) == 10  # the most that the gateway lets in
    inside = rows[-1]["at_gateway"] + rows[-1]["in_flight"]
    assert inside == done.result["requests"]["unfinished"]
    assert sum(row["rejected"] for row in rows) == done.result["requests"]["rejected"]


def test_cost_is_that_of_the_result(tmp_path: Path) -> None:
    done = run_into(tmp_path, PHYSICAL)
    table = pq.read_table(tmp_path / TIMELINE)
    for rows in (pc.is_null(table["replica"]), pc.is_valid(table["replica"])):
        cost = pc.sum(table.filter(rows)["cost"]).as_py()
        assert cost == pytest.approx(done.result["cost"]["total"])
    assert done.result["cost"]["total"] > 0


def test_gaps_are_counted_by_pool_in_buckets_of_one_percent(
    busy: tuple[Run, pa.Table, pa.Table],
) -> None:
    done, _, gaps = busy
    assert set(gaps["pool"].to_pylist()) == {"main", "spare"}
    rows = gaps.to_pylist()
    assert all(row["count"] > 0 for row in rows)
    assert all(row["high"] == pytest.approx(1.01 * row["low"]) for row in rows)
    mean = done.result["latency"]["itl"]["mean"]
    count = sum(row["count"] for row in rows)
    total = sum(row["count"] * (row["low"] + row["high"]) / 2 for row in rows)
    assert total / count == pytest.approx(mean, rel=0.005)


@pytest.mark.parametrize("name", [TIMELINE, TOKEN_GAPS])
def test_every_column_is_on_the_page_with_its_type(
    busy: tuple[Run, pa.Table, pa.Table], name: str
) -> None:
    table = busy[1] if name == TIMELINE else busy[2]
    said = types_of(name)
    found = {
        field.name: "string"
        if str(field.type).startswith("dictionary")
        else str(field.type).replace("double", "float64")
        for field in table.schema
    }
    assert said == found
    assert list(said) == list(found)
