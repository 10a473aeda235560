"""The parts of a result agree with its rows: classes, sources, tenants, servers, prices."""

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.page.runs import run_into
from tests.twin.runs import BUSY, one_server, run
from windtunnel.analysis.run_folder import REQUESTS
from windtunnel.core.errors import InputError
from windtunnel.core.statistics.distribution import Distribution, summary, together
from windtunnel.engine.overheads import Overheads
from windtunnel.twin.results.accounts import MOST_TENANTS, OTHERS, Account, RecordNames
from windtunnel.twin.results.breakdown import fair_amounts, fairness_of, jain, tenants_of
from windtunnel.twin.results.reasons import MOST_REASONS, OTHER, ReasonCounts
from windtunnel.twin.results.recorder import COMPLETED, OUTCOMES, REJECTED, Recorder
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request

Row = dict[str, Any]
SHARES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Row]]:
    folder = tmp_path_factory.mktemp("busy")
    done = run_into(folder, BUSY)
    return done.result, pq.read_table(folder / REQUESTS).to_pylist()


def completed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["outcome"] == "completed"]


def assert_tally(account: dict[str, Any], rows: list[Row]) -> None:
    assert account["requests"] == len(rows)
    for outcome in OUTCOMES:
        assert account[outcome] == sum(row["outcome"] == outcome for row in rows)


def test_classes_are_those_of_the_rows(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    for name, slo in result["slo"].items():
        own = [row for row in rows if row["slo"] == name]
        done = completed(own)
        assert_tally(slo, own)
        for key, end in (("ttft", "first_token"), ("e2e", "finished"), ("queue", "scheduled")):
            times = [row[end] - row["arrived"] for row in done]
            for figure, share in (("p50", 50), ("p90", 90), ("p99", 99)):
                assert slo[key][figure] == pytest.approx(np.percentile(times, share))
    critical = result["slo"]["critical"]
    in_time = [row for row in rows if row["slo"] == "critical" and row["outcome"] == "completed"]
    kept = sum(row["first_token"] - row["arrived"] <= 0.2 for row in in_time)
    assert critical["attained_by"]["ttft"] == pytest.approx(kept / critical["requests"])
    assert critical["attained_by"]["e2e"] is None
    assert critical["attained"] <= min(
        critical["attained_by"]["ttft"], critical["attained_by"]["tpot"]
    )
    assert set(result["slo"]["batch"]["attained_by"].values()) == {None}


@pytest.mark.parametrize(("key", "column"), [("sources", "source"), ("tenants", "tenant")])
def test_accounts_are_those_of_the_rows(
    busy: tuple[dict[str, Any], list[Row]], key: str, column: str
) -> None:
    result, rows = busy
    assert sum(account["requests"] for account in result[key].values()) == len(rows)
    for name, account in result[key].items():
        own = [row for row in rows if row[column] == name]
        done = completed(own)
        assert_tally(account, own)
        tokens = [sum(row[f"{kind}_tokens"] for row in done) for kind in ("prompt", "output")]
        assert [account["prompt_tokens"], account["output_tokens"]] == tokens
        asked = sum(row["prompt_tokens"] + row["output_tokens"] for row in own)
        assert account["served_share"] == pytest.approx(sum(tokens) / asked)
    good = sum(account["goodput_requests_per_s"] for account in result[key].values())
    assert good == pytest.approx(result["throughput"]["goodput_requests_per_s"])


def test_latencies_of_small_tenants_are_exact(
    busy: tuple[dict[str, Any], list[Row]],
) -> None:
    result, rows = busy
    for name, tenant in result["tenants"].items():
        done = completed([row for row in rows if row["tenant"] == name])
        for key, end in (("ttft", "first_token"), ("e2e", "finished")):
            times = [row[end] - row["arrived"] for row in done]
            assert tenant[key]["mean"] == pytest.approx(np.mean(times))
            assert tenant[key]["max"] == max(times)
            for figure, share in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
                assert tenant[key][figure] == pytest.approx(np.percentile(times, share))


def test_servers_are_those_of_the_rows(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    owners = [(server["pool"], server["server"]) for server in result["servers"]]
    assert owners == [("main", 0), ("main", 1), ("spare", 0)]
    for server in result["servers"]:
        owner = (server["pool"], server["server"])
        own = [row for row in rows if (row["pool"], row["replica"]) == owner]
        assert server["requests"] == len(own)
        assert server["output_tokens"] == sum(row["output_tokens"] for row in completed(own))
        hits = sum(row["prefix_hit_tokens"] for row in completed(own))
        assert server["prefix_hit_tokens"] == hits
        waits = [row["scheduled"] - row["arrived"] for row in completed(own)]
        assert server["queue_mean"] == pytest.approx(np.mean(waits))
        assert 0.0 < server["utilization"] <= 1.0
        assert server["steps"] > 0
    for name, pool in result["pools"].items():
        own_servers = [server for server in result["servers"] if server["pool"] == name]
        assert pool["preemptions"] == sum(server["preemptions"] for server in own_servers)
        assert pool["kv_peak"] == max(server["kv_peak"] for server in own_servers)


def test_reasons_add_up_to_the_outcomes(busy: tuple[dict[str, Any], list[Row]]) -> None:
    result, rows = busy
    for outcome in OUTCOMES[1:]:
        assert sum(result["reasons"][outcome].values()) == result["requests"][outcome]
    assert set(result["reasons"]["dropped"]) == {"needs 59 KV blocks, the server has 49"}
    needs = [int(row["reason"].split()[1]) for row in rows if row["outcome"] == "dropped"]
    assert len(needs) > 1
    assert min(needs) < max(needs) == 59


def test_reasons_are_few_whatever_they_say() -> None:
    counts = ReasonCounts(OUTCOMES)
    for number in range(1_000):
        counts.add(REJECTED, f"bucket {number}.5 of {number:,} is empty")
        counts.add(REJECTED, f"a limit of {1_000 - number:,} tokens")
        counts.add("timed_out", "bucket 999999 is empty")
        counts.add("dropped", "x" * number)
    found = counts.counts()
    assert found[REJECTED] == {
        "bucket 999.5 of 999 is empty": 1_000,
        "a limit of 1,000 tokens": 1_000,
    }
    assert found["timed_out"] == {"bucket 999999 is empty": 1_000}
    assert len(found["dropped"]) == MOST_REASONS + 1
    assert found["dropped"][OTHER] == 1_000 - MOST_REASONS


@given(SHARES, st.floats(0.01, 100.0))
def test_jain_is_one_for_equals_and_never_below_one_over_n(
    shares: list[float], scale: float
) -> None:
    index = jain(shares)
    if not any(share * share for share in shares):
        assert index is None
        return
    assert index is not None
    assert 1.0 / len(shares) * (1 - 1e-9) <= index <= 1.0 + 1e-9
    assert jain([scale] * len(shares)) == pytest.approx(1.0)
    assert jain([scale] + [0.0] * (len(shares) - 1)) == pytest.approx(1.0 / len(shares))


def recorder_of(tenants: list[str]) -> Recorder:
    names = RecordNames(["chat"], ["standard"], tenants, [])
    return Recorder(names, {}, [Overheads(0.0, 0.0, 0.0)], None)


def ended(recorder: Recorder, tenant: int, outcome: str) -> None:
    request = Request(0, 0.0, 10, 10)
    request.tenant = tenant
    recorder.arrive(request)
    request.server, request.scheduled_s = 0, 0.0
    request.first_token_s, request.finished_s = 1.0, 2.0
    recorder.end(request, outcome)


def test_fairness_is_of_shares_and_not_of_amounts() -> None:
    recorder = recorder_of(["large", "small"])
    for _ in range(9):
        ended(recorder, 0, COMPLETED)
    ended(recorder, 1, COMPLETED)
    assert fairness_of(recorder.tenants) == {"served_tokens": 1.0, "goodput": 1.0}
    for _ in range(9):
        ended(recorder, 1, REJECTED)
    unfair = fairness_of(recorder.tenants)["served_tokens"]
    assert unfair == pytest.approx(1.1**2 / (2 * 1.01))


def test_tenants_beyond_the_first_thousand_share_an_account() -> None:
    """They come as the traffic learns of them, in any number."""
    tenants: list[str] = []
    recorder = recorder_of(tenants)
    for number in range(MOST_TENANTS + 500):
        tenants.append(f"t{number}")
        ended(recorder, number, COMPLETED)
    found = tenants_of(recorder.tenants, 1.0)
    assert len(found) == MOST_TENANTS + 1
    assert found[OTHERS]["completed"] == 500
    assert found[f"t{MOST_TENANTS - 1}"]["completed"] == 1


def test_first_turns_and_later_ones_are_told_apart() -> None:
    recorder = recorder_of(["one"])
    for session, turn, arrived_s, first_s, end_s in (
        (0, 0, 0.0, 4.0, 5.0),
        (1, 0, 1.0, 3.0, 6.0),
        (0, 1, 8.0, 9.0, 12.0),
        (1, 1, 9.0, 0.0, -1.0),
    ):
        request = Request(0, arrived_s, 10, 10)
        request.session, request.turn = session, turn
        recorder.arrive(request)
        request.server, request.scheduled_s = 0, arrived_s
        request.first_token_s, request.finished_s = first_s, end_s
        recorder.end(request, COMPLETED if end_s > 0 else "unfinished")
    sessions = recorder.sessions
    assert (sessions.count, sessions.turns) == (2, 4)
    assert summary(sessions.cold_ttft)["mean"] == 3.0
    assert summary(sessions.warm_ttft)["mean"] == 1.0
    durations = summary(sessions.durations())
    assert (durations["mean"], durations["max"]) == (12.0, 12.0)


@given(st.lists(st.lists(st.floats(0.0, 1e6), max_size=40), min_size=1, max_size=4))
def test_parts_together_are_the_whole(parts: list[list[float]]) -> None:
    whole = Distribution()
    made = []
    for part in parts:
        made.append(Distribution())
        for value in part:
            made[-1].add(value)
            whole.add(value)
    found, expected = summary(together(made)), summary(whole)
    for name in expected:
        exact = expected[name]
        assert found[name] == (exact if exact is None else pytest.approx(exact))
    made[0].fold()
    about = together(made)
    assert about.count == whole.count
    if whole.count:
        assert about.mean() == pytest.approx(whole.mean())
        assert about.quantile(1.0) == whole.quantile(1.0)


PRICED = "name: main\n      price_per_hour: 2.5\n      replicas: 3\n      tensor_parallel: 2"


def test_a_pool_has_its_own_price() -> None:
    text = one_server().replace("name: one", "duration: 36s").replace("name: main", PRICED)
    result = run(text)
    assert result["pools"]["main"]["price_per_hour"] == 2.5
    assert result["pools"]["main"]["cost"] == pytest.approx(6 * 0.01 * 2.5)
    assert result["cost"]["total"] == result["pools"]["main"]["cost"]
    with pytest.raises(InputError, match="price_per_hour"):
        load_text(text, sets=["serving.pools.0.price_per_hour=-1"])
    free = run(text, "serving.pools.0.price_per_hour=0")
    assert (free["cost"]["total"], free["pools"]["main"]["price_per_hour"]) == (0.0, 0.0)


def test_amounts_are_divided_by_weight_among_those_that_ask_for_more() -> None:
    assert fair_amounts(80.0, [100.0, 100.0], [3.0, 1.0]) == [60.0, 20.0]
    assert fair_amounts(80.0, [40.0, 100.0], [3.0, 1.0]) == [40.0, 40.0]
    assert fair_amounts(80.0, [30.0, 50.0], [3.0, 1.0]) == [30.0, 50.0]
    assert fair_amounts(90.0, [10.0, 100.0, 100.0], [1.0, 1.0, 1.0]) == [10.0, 40.0, 40.0]


def test_fairness_counts_the_weights_of_tenants() -> None:
    """Both asked for as much; one of weight 3 got three times as much, or all got everything."""

    def account(name: str, got: int) -> Account:
        made = Account(name)
        made.requests, made.asked_tokens, made.output_tokens = 1, 100, got
        return made

    weights = {"gold": 3.0}
    unequal = [account("gold", 60), account("tin", 20)]
    assert fairness_of(unequal, weights)["served_tokens"] == pytest.approx(1.0)
    assert fairness_of(unequal)["served_tokens"] == pytest.approx(0.8)
    everything = [account("gold", 100), account("tin", 100)]
    assert fairness_of(everything, weights)["served_tokens"] == pytest.approx(1.0)
