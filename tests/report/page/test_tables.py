"""The tables of a report: what they have, when, and that they stay short."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.page.runs import GATED, SPLIT, TALKS, full, run_into
from tests.twin.infrastructure.worlds import scenario
from tests.twin.runs import BUSY, one_server, run
from tests.twin.test_lora import ROUND_ROBIN
from tests.twin.test_offload import STICKY
from windtunnel.analysis import run_folder as contents
from windtunnel.analysis.figures import NOTHING, share_text, text_of
from windtunnel.analysis.run import read_run
from windtunnel.report.page import tables
from windtunnel.twin.run import simulate


@pytest.fixture(scope="module")
def busy() -> dict[str, Any]:
    return run(BUSY, check=False)


def titles(found: list[tables.PageTable]) -> list[str]:
    return [table.title for table in found]


def test_there_is_a_table_of_whatever_there_are_several_of(busy: dict[str, Any]) -> None:
    assert tables.accounts(run(one_server())) == []
    # Sources and tenants are the same two groups of requests, so that one table will do.
    assert titles(tables.accounts(busy)) == ["By class", "By tenant"]
    busy = busy | {"tenants": {"one": next(iter(busy["tenants"].values()))}}
    assert titles(tables.accounts(busy)) == ["By class", "By source"]


def test_every_row_has_a_cell_for_every_column(busy: dict[str, Any], tmp_path: Path) -> None:
    done = run_into(tmp_path, SPLIT)
    scenario = read_run(tmp_path).scenario
    found = [*tables.accounts(busy), tables.servers(busy), tables.servers(done.result)]
    found += [tables.pools(done.result, scenario), tables.pools(busy, {"serving": {"pools": []}})]
    moved = tables.transfers(done.result)
    assert moved is not None
    for table in [*found, moved]:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_fairness_says_over_what(busy: dict[str, Any]) -> None:
    (lead,) = (table.lead for table in tables.accounts(busy) if table.title == "By tenant")
    index = busy["fairness"]["served_tokens"]
    assert "over 2 tenants (1: all equal, 1/2: one gets all)" in lead
    assert f"{index:.3f} for the share of requested tokens that each was served" in lead
    nobody = busy | {"fairness": {"served_tokens": None, "goodput": None}}
    assert "" in [table.lead for table in tables.accounts(nobody)]


def test_tenants_are_cut_to_the_largest_and_it_says_so(busy: dict[str, Any]) -> None:
    one = busy["tenants"]["acme"]
    many = {f"t{n}": one | {"requests": n} for n in range(50)}
    (table,) = (t for t in tables.accounts(busy | {"tenants": many}) if t.title == "By tenant")
    assert [row[0] for row in table.rows] == [f"t{n}" for n in range(49, 29, -1)]
    assert table.note == "The 20 with the most requests; result.json has 30 more."


def test_conversations_show_cold_and_warm(tmp_path: Path) -> None:
    result = run(TALKS)
    table = tables.conversations(result)
    assert table is not None
    assert table.lead == "20 sessions with 60 turns; 20 completed."
    cold, warm, whole = (row[2] for row in table.rows)
    assert (cold, warm) == tuple(
        text_of("s", result["sessions"][key]["p50"]) for key in ("cold_ttft", "warm_ttft")
    )
    assert whole.endswith(" s")
    assert tables.conversations(run(one_server())) is None
    run_into(tmp_path, TALKS)
    assert "Conversations" in (tmp_path / contents.REPORT).read_text()


def test_pools_have_what_they_run_on_and_what_they_cost(tmp_path: Path) -> None:
    done = run_into(tmp_path, SPLIT)
    cost = done.result["cost"]
    assert cost["total"] == pytest.approx(
        sum(pool["cost"] for pool in done.result["pools"].values())
    )
    page = (tmp_path / contents.REPORT).read_text()
    for said in ("h100, prefill", "h200, decode", "per million output tokens", "$ per hour"):
        assert said in page
    free = run(one_server())
    pool = {"name": "main", "role": "both", "tensor_parallel": 2, "accelerator": None}
    scenario = {"serving": {"pools": [pool]}}
    table = tables.pools(free, scenario)
    assert (table.lead, table.columns[-1]) == ("", "preemptions")
    assert table.rows[0][1] == "2 x given step times"


def test_with_a_fleet_the_total_is_said_to_be_that_of_machines() -> None:
    plan = scenario(replicas=1, count=20, machines="{initial: 1, max: 2}")
    result = simulate(plan)
    lead = tables.pools(result, {"serving": {"pools": []}}).lead
    machines = text_of("$", result["fleet"]["pools"]["big"]["cost"])
    assert lead.startswith(f"{text_of('$', result['cost']['total'])} in all")
    assert f"what the machines of the fleet cost (big {machines})" in lead


def test_servers_that_make_requests_wait_are_named(busy: dict[str, Any]) -> None:
    calm = run(full(rate=5, replicas=3), check=False)
    for server in calm["servers"]:
        server["queue_mean"] = 0.1
    assert tables.servers(calm).lead == ""
    calm["servers"][1]["queue_mean"] = 0.9
    lead = tables.servers(calm).lead
    assert lead.startswith("One server has waits more than 2 times as long as the mean of the pool")
    assert "on main 1 requests waited 900 ms, on the mean server 367 ms" in lead
    many = busy | {"servers": [busy["servers"][0] | {"server": n} for n in range(100)]}
    table = tables.servers(many)
    assert len(table.rows) == tables.MOST_SERVERS
    assert table.title == "The 40 servers with the longest waits"


def test_nearly_all_is_not_all() -> None:
    assert share_text(1.0) == "100.0%"
    assert share_text(0.99996) == "99.99%"
    assert share_text(None) == NOTHING


def test_adapters_have_a_table_with_their_loads(busy: dict[str, Any]) -> None:
    assert busy["adapters"] is None
    result = run(ROUND_ROBIN)
    (table,) = (one for one in tables.accounts(result) if one.title == "By adapter")
    assert len(table.rows) == 8
    assert {len(row) for row in table.rows} == {len(table.columns)}
    name = table.rows[0][0]
    assert table.rows[0][-2] == str(result["adapters"][name]["loads"])


def test_slower_tiers_have_a_table(busy: dict[str, Any]) -> None:
    assert tables.tiers(busy) is None
    result = run(STICKY)
    table = tables.tiers(result)
    assert table is not None
    found = result["pools"]["main"]["offload"]["tiers"]
    assert [row[:3] for row in table.rows] == [
        ["main", place, str(found[place]["loads"])] for place in ("cpu", "disk")
    ]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.lead.startswith("Requests of main waited for loads: p50 ")


def test_decisions_of_the_gateway_are_told_with_their_reasons(busy: dict[str, Any]) -> None:
    assert tables.decisions(busy) is None
    result = run(GATED, check=False)
    table = tables.decisions(result)
    assert table is not None
    most = result["gateway"]["waiting_peak"]
    assert table.lead == f"At most {most} requests were queued there at once."
    times = sum(int(row[-1]) for row in table.rows if row[0] == "rejected")
    assert times == result["requests"]["rejected"]
    bucket = "serving.admission={policy: token-bucket, capacity: 100000, refill: 1000/s}"
    calm = tables.decisions(run(GATED, bucket, check=False))
    assert calm is not None
    assert calm.lead == "No request was queued there."


def test_the_router_is_judged_where_somebody_asked(busy: dict[str, Any]) -> None:
    assert tables.choices(busy) == ""
    router = "serving.router={policy: weighted, counterfactual: 1}"
    said = tables.choices(run(BUSY, router, check=False))
    assert said.startswith("Of 235 choices of the router that were examined, ")


def test_the_header_says_models_and_accelerators() -> None:
    def pool(**keys: object) -> dict[str, object]:
        return {"model": None, "accelerator": None, "tensor_parallel": 1, **keys}

    large = pool(model="llama-3.1-70b", accelerator="h100-sxm", tensor_parallel=4)
    pools = [large, {**large, "role": "decode"}, pool(accelerator="l4"), pool(model="qwen2.5-32b")]
    said = tables.serves({"serving": {"pools": pools}})
    assert said == "llama-3.1-70b on 4 x h100-sxm, l4, qwen2.5-32b"
    assert tables.serves({"serving": {"pools": [pool()]}}) == ""
