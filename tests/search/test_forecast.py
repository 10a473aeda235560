"""Forecasts from recent traffic: they reach the present, learn, and know how wrong they are."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from prometheus_client import generate_latest

from windtunnel.analysis.shadow.forecasts import ForecastLog
from windtunnel.analysis.shadow.window import FIGURES, Present, TrafficWindow
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.live.metrics import registry_of
from windtunnel.live.shadow.following import GatewayFollower
from windtunnel.live.shadow.program import ShadowProgram, shadow_families
from windtunnel.report.page.shadow import shadow_page
from windtunnel.search.check.observation import ControlDecision, machines_over_time
from windtunnel.search.forecast import (
    Forecaster,
    WhatIf,
    most_machines,
    most_replicas,
    replayed,
    shadow_of,
)
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request
from windtunnel.workload.traces.record import TraceRequest

TRUTH = """\
name: truth
workload:
  - name: chat
    arrivals: {process: poisson, rate: 2/s}
    prompt_tokens: {distribution: lognormal, mean: 400, cv: 1, max: 4000}
    output_tokens: {distribution: lognormal, mean: 60, cv: 1, max: 400}
slo:
  standard: {ttft: 1s}
serving:
  pools:
    - name: main
      replicas: 2
      price_per_hour: 4
      engine: {kv_blocks: 4000, max_num_seqs: 32}
      step_time: {model: linear, fixed: 12ms, per_prefill_token: 60us, per_decode: 300us}
  router: {policy: least-loaded}
"""
SPANS = {"30s": 30.0, "1m": 60.0}


class _Served:
    def __init__(self) -> None:
        self.rows: list[TraceRequest] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        for one in requests:
            ttft_s, e2e_s = one.first_token_s - one.arrived_s, one.finished_s - one.arrived_s
            tokens = int(one.prompt_tokens), int(one.output_tokens)
            row = TraceRequest(one.arrived_s, *tokens, id=str(one.id), ttft_s=ttft_s, e2e_s=e2e_s)
            self.rows.append(row)
        assert set(outcomes) == {"completed"}
        assert {names.classes[one.slo] for one in requests} == {"standard"}


@pytest.mark.parametrize("past_s", [75.0, 150.0, 170.0, 200.0, 299.0])
@pytest.mark.parametrize("traffic", [1.0, 1.5])
def test_a_short_past_has_its_mean_rate_over_any_longer_span(past_s: float, traffic: float) -> None:
    rise = [2.0 * number for number in range(int(past_s / 2.0) - 30)]
    rise += [past_s - 60.0 + number / 2.0 for number in range(120)]
    past = [TraceRequest(at_s, 100, 10, id=str(at_s)) for at_s in rise]
    spans_s = {"1m": 60.0, "5m": 300.0, "10m": 600.0}
    coming = Forecaster(TRUTH, "truth", spans_s, 900.0)._coming(
        Present(past_s, past, [], 2), past, traffic
    )
    assert [one.arrived_s for one in coming] == sorted(one.arrived_s for one in coming)
    for span_s in (300.0, 600.0):
        count = sum(one.arrived_s < past_s + span_s for one in coming)
        assert count == pytest.approx(traffic * len(past) * span_s / past_s, abs=4.0)
    minute = sum(one.arrived_s < past_s + 60.0 for one in coming)
    assert minute == pytest.approx(traffic * 120.0, abs=2.0)


@cache
def truth(count: int, seed: int = 1) -> tuple[TraceRequest, ...]:
    """What a gateway would have seen."""
    served = _Served()
    run(load_text(TRUTH, sets=(f"workload.0.count={count}",), seed=seed), rows=served)
    return tuple(sorted(served.rows, key=lambda one: one.arrived_s))


def present_at(now_s: float) -> Present:
    """What of it was known then."""
    rows = [one for one in truth(800) if one.arrived_s <= now_s]
    ended = [one for one in rows if one.arrived_s + (one.e2e_s or 0.0) <= now_s]
    flying = [
        TraceRequest(one.arrived_s, one.prompt_tokens, 0, id=one.id)
        for one in rows
        if one not in ended
    ]
    return Present(now_s, ended, flying, 2)


def forecaster(text: str = TRUTH) -> Forecaster:
    return Forecaster(text, "truth.yaml", SPANS, past_s=60.0)


def test_the_twin_reaches_the_present_and_finds_its_own_steps() -> None:
    present = present_at(200.0)
    assert present.in_flight
    found = forecaster().forecast(present)
    assert found.step_ratio == pytest.approx(1.0, abs=0.02)
    assert not found.is_saturated
    assert found.replicas == 2
    assert found.attained == 1.0
    assert found.cost == pytest.approx(2 * 4 * 60 / 3600)
    assert found.figures["1m"]["rate"] == pytest.approx(2.0, rel=0.3)
    slow = forecaster(TRUTH.replace("12ms", "6ms").replace("300us", "150us")).forecast(present)
    assert slow.step_ratio == pytest.approx(2.0, rel=0.1)


def test_a_request_in_flight_for_long_does_not_thin_out_the_traffic_to_come() -> None:
    present = present_at(200.0)
    old = TraceRequest(present.now_s - 3600.0, 100, 0, id="old")
    rate = forecaster().forecast(present).figures["1m"]["rate"]
    with_old = present._replace(in_flight=[old, *present.in_flight])
    assert forecaster().forecast(with_old).figures["1m"]["rate"] == rate


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0, 4.0])
def test_traffic_is_as_many_times_what_it_would_be_at_every_moment(factor: float) -> None:
    present = present_at(200.0)
    start_s = present.now_s - 60.0
    quiet = [one for one in present.ended if not start_s <= one.arrived_s < start_s + 30.0]
    few = [one for one in present.ended if start_s <= one.arrived_s < start_s + 30.0][::4]
    rising = present._replace(ended=sorted([*quiet, *few], key=lambda one: one.arrived_s))
    usual = forecaster().forecast(rising).figures
    asked = forecaster().forecast(rising, 1.0, WhatIf(traffic=factor)).figures
    before, before_later = (usual[span]["rate"] or 0.0 for span in SPANS)
    assert before > 1.3 * before_later, "the next 30 s repeat the last 30 s"
    assert asked["30s"]["rate"] == pytest.approx(factor * before, rel=0.2)
    assert asked["1m"]["rate"] == pytest.approx(factor * before_later, rel=0.1)


def arrivals_every(spacings_s: list[float], now_s: float) -> Present:
    rows, at_s = [], 0.0
    for number, spacing_s in enumerate(spacings_s):
        rows.append(TraceRequest(at_s, 100, 20, id=str(number), ttft_s=0.05, e2e_s=0.5))
        at_s += spacing_s
    return Present(now_s, rows, [], 2)


def test_each_span_repeats_as_long_a_time_before_now() -> None:
    """Four minutes of 12 requests, then one of 480."""
    present = arrivals_every([5.0] * 48 + [0.125] * 480, 300.0)
    spans = {"1m": 60.0, "5m": 300.0, "10m": 600.0}
    for past_s in (300.0, 400.0):
        found = Forecaster(TRUTH, "truth.yaml", spans, past_s).forecast(present).figures
        rates = [found[span]["rate"] for span in spans]
        assert rates == pytest.approx([8.0, 1.76, 1.76], rel=0.01)


def test_the_time_before_the_first_request_is_not_a_time_without_traffic() -> None:
    present = arrivals_every([0.2] * 100, 20.0)
    found = Forecaster(TRUTH, "truth.yaml", SPANS, 300.0).forecast(present).figures
    assert [found[span]["rate"] for span in SPANS] == pytest.approx([5.0, 5.0])


def test_replicas_are_those_of_all_pools_from_now_on() -> None:
    def decided(time_s: float, pool: str, target: int | None) -> ControlDecision:
        return ControlDecision("scaling", time_s, f"pool {pool}", "", "", target)

    one = TRUTH.partition("    - name: main")[2].partition("  router")[0]
    plan = load_text(
        TRUTH.replace("  router", f"    - name: other{one}  router"), sets=("duration=1m",)
    )
    before = [decided(10.0, "main", 9), decided(20.0, "main", 3)]
    later = [decided(70.0, "main", 7), decided(70.0, "other", 1), decided(80.0, "main", 2)]
    machines = ControlDecision("fleet", 65.0, "pool main", "ordered", "")
    after = [decided(500.0, "main", 50)]
    assert most_replicas([], plan, 60.0, 120.0) == 4
    assert most_replicas(before, plan, 60.0, 120.0) == 5
    assert most_replicas([*before, machines, *later, *after], plan, 60.0, 120.0) == 8


def test_what_if_less_serves_more() -> None:
    present, twin = present_at(200.0), forecaster()

    def ttft(what_if: WhatIf | None = None) -> float:
        found = twin.forecast(present, 1.0, what_if).figures["1m"]["ttft_p95"]
        assert found is not None
        return found

    now = ttft()
    assert ttft(WhatIf(traffic=5.0)) > 1.2 * now
    assert ttft(WhatIf(sets=("serving.pools.0.replicas=1",))) > 1.05 * now
    assert ttft(WhatIf(faults=("{kind: engine-crash, at: 5s}",))) > 1.05 * now
    with pytest.raises(InputError, match="this is not a fault"):
        twin.forecast(present, 1.0, WhatIf(faults=("soon",)))
    with pytest.raises(InputError, match="0 requests have ended in the last 60 s"):
        twin.forecast(Present(0.0, [], [], None))


def test_a_shadow_measures_itself_and_notices_drift() -> None:
    """On traffic that it was not built from, with a scenario whose steps are too short."""
    fast = TRUTH.replace("12ms", "8ms").replace("60us", "40us").replace("300us", "200us")
    found = replayed(truth(2400, seed=2), shadow_of(forecaster(fast)), 20.0)
    assert found["says"].startswith("drift: steps take 1.")
    assert found["step_scale"] == pytest.approx(1.5, rel=0.05)
    assert found["saturated_ticks"] == 0
    p95 = found["accuracy"]["1m"]["ttft_p95"]
    assert p95["measured"] >= 40
    assert p95["median_error"] < 0.25
    assert p95["covered"] >= 0.7
    assert found["accuracy"]["1m"]["tpot_p50"]["median_error"] < 0.05


def test_an_overload_is_said_to_be_one() -> None:
    found = forecaster().forecast(present_at(200.0), 1.0, WhatIf(traffic=30.0))
    assert found.is_saturated


def test_of_a_saturated_twin_arrivals_alone_are_told() -> None:
    log = ForecastLog(SPANS)
    found = forecaster().forecast(present_at(200.0), 1.0, WhatIf(traffic=30.0))
    figures = log.issue(found, 200.0)["1m"]
    rate = figures.pop("rate")
    assert rate.value == found.figures["1m"]["rate"]
    assert {(one.value, one.low, one.high) for one in figures.values()} == {(None, None, None)}
    assert all(one.twin is not None for one in figures.values()), "what the twin says stays"


def test_two_forecasts_of_one_time_count_once() -> None:
    log = ForecastLog(SPANS)
    found = forecaster().forecast(present_at(200.0))
    for now_s in (200.0, 200.0, 230.0):
        log.issue(found, now_s)
    window = _Came(1e6)
    window.rate = 2.0
    log.measure(window)
    assert log.accuracy()["1m"]["rate"].measured == 2


class _Came(TrafficWindow):
    rate = 0.0

    def measured(self, from_s: float, to_s: float) -> dict[str, float | None]:
        assert from_s < to_s
        return {**dict.fromkeys(FIGURES), "rate": self.rate}


def test_few_errors_give_intervals_that_are_wide_enough() -> None:
    stream = Stream(1, "test.errors")
    figures: dict[str, dict[str, float | None]] = {"1m": {"rate": 10.0}}
    twin = forecaster().forecast(present_at(200.0))._replace(figures=figures)
    window = _Came(1e6)
    covered = []
    for _ in range(150):
        log = ForecastLog({"1m": 60.0})
        for tick in range(30):
            one = log.issue(twin, 60.0 * tick)["1m"]["rate"]
            window.rate = 5.0 + 10.0 * stream.uniform()
            if one.low is not None and one.high is not None:
                covered.append(one.low <= window.rate <= one.high)
            log.measure(window)
    assert len(covered) == 1500, "from 20 errors on"
    log = ForecastLog({"1m": 60.0})
    early = []
    for tick in range(60):
        early.append(log.issue(twin, 5.0 * tick)["1m"]["rate"])
        log.measure(window)
    assert early[30].value != 10.0
    assert all(one.low is None for one in early), "a dozen that overlap are two or three"
    assert 0.88 < sum(covered) / len(covered) < 0.94


def test_prompts_that_come_again_are_cached_only_where_others_share_them() -> None:
    present = present_at(200.0)

    large = forecaster(TRUTH.replace("kv_blocks: 4000", "kv_blocks: 40000"))

    def ttft_s(first_key: int, each: int) -> float:
        ended = [
            msgspec.structs.replace(
                one,
                prompt_tokens=480,
                prefix_keys=(first_key + each * number,),
                prefix_ends=(480,),
            )
            for number, one in enumerate(present.ended)
        ]
        found = large.forecast(present._replace(ended=ended, servers=1))
        return found.figures["1m"]["ttft_p50"] or 0.0

    shared, single = ttft_s(1, 0), ttft_s(1, 1)
    assert shared < 0.035, "a system prompt stays cached"
    assert single > 0.04, "each prompt was sent once, and others will come"


@pytest.fixture
def shadow(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    Path("truth.yaml").write_text(TRUTH)
    Path("trace").mkdir()
    with Path("trace/trace-000001.jsonl").open("w") as out:
        for one in sorted(truth(800), key=lambda row: row.arrived_s + (row.e2e_s or 0.0)):
            row = {"arrived": one.arrived_s, "prompt_tokens": one.prompt_tokens, "id": one.id}
            row |= {"output_tokens": one.output_tokens, "ttft": one.ttft_s, "e2e": one.e2e_s}
            out.write(json.dumps(row) + "\n")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["shadow", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def test_commands(shadow: Callable[..., tuple[int, str, str]]) -> None:
    files = ("truth.yaml", "--trace", "trace", "--past", "1m", "--horizon", "1m")
    Path("bad.yaml").write_text(TRUTH.replace("name:", "nam:", 1))
    with Path("trace/trace-000001.jsonl").open("a") as trace:
        trace.write("{}\n")
    others = ("one: serving.pools.0.replicas=1", "one: serving.pools.0.price_per_hour=400")
    code, out, err = shadow("run", *files, "--once", "--other", others[0], "--other", others[1])
    assert (code, err) == (0, "windtunnel: unreadable records: 1\n")
    (row,) = (row.split() for row in out.splitlines() if row.startswith("one "))
    assert row[2].startswith("$6."), "both settings hold"
    assert "next 1m  TTFT p95" in out
    assert any(row.split()[:2] == ["one", "100.0%"] for row in out.splitlines())
    assert "not known: which requests are in flight" in out
    assert "not known: replicas that start or end, gangs and machines" in out
    code, out, _ = shadow("ask", *files, "--traffic", "3", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["asked"]["figures"]["1m"]["rate"] > 2 * found["now"]["figures"]["1m"]["rate"]
    code, out, _ = shadow("ask", *files, "--set", "serving.pools.0.replicas=1")
    assert code == 0
    assert out.splitlines()[-1].split() == ["replicas", "2", "1"]
    whole = Path("trace/trace-000001.jsonl").read_text()
    Path("trace/trace-000001.jsonl").write_text(whole.removesuffix("{}\n"))
    tested = ("test", "truth.yaml", "--trace", "trace", "--past", "1m", "--horizon", "1m")
    code, out, _ = shadow(*tested, "--json", "-")
    assert (code, json.loads(out)["accuracy"]["1m"]["rate"]["measured"]) == (0, 5)
    for given, says in (
        (("ask", *files), "nothing is different"),
        (("ask", "truth.yaml", "--trace", "none", "--traffic", "2"), "there is no such trace"),
        (("ask", *files, "--set", "serving.x=1"), "--set serving.x=1"),
        (("run", "truth.yaml"), "--trace, --prometheus: there is no traffic"),
        (("run", *files, "--prometheus", "http://x"), "traffic can have only one source"),
        (("run", *files, "--namespace", "x"), "--namespace: it has no effect without --kubernetes"),
        (("run", *files, "--other", "x"), "--other x: this names no setting"),
        (("run", *files, "--other", "as it is: seed=1"), "the scenario's own settings"),
        (("run", *files, "--other", "x: serving.y=1"), "--other x: --set serving.y=1"),
        (("run", *files, "--log", "none"), "none: there is no such log"),
        (("run", "bad.yaml", "--trace", "trace"), "bad.yaml:1: nam: unknown key"),
        (("run", *files, "--once", "--past", "2s"), "no forecast: traffic: "),
        (("ask", *files, "--fault", "{kind: engine-crash, at: 2m}"), "0s to 60s, the horizon"),
        (("ask", *files, "--fault", "{kind: engine-crash, at: -1s}"), "times count from now"),
    ):
        code, out, err = shadow(*given)
        assert (code, out) == (2, "")
        assert says in err


@pytest.mark.usefixtures("shadow")
def test_metrics_have_forecasts_and_other_policies() -> None:
    others = {"one": WhatIf(sets=("serving.pools.0.replicas=1",))}
    found = shadow_of(forecaster(), others)
    program = ShadowProgram(found, GatewayFollower(found.window, Path("trace"), None), 30.0)
    registry = registry_of(lambda: shadow_families(program.data()))
    assert b"windtunnel_shadow_says 1.0" in generate_latest(registry)
    assert program.tick().says == ""
    text = generate_latest(registry).decode()
    assert 'windtunnel_shadow_forecast{figure="ttft_p95",stretch="1m"}' in text
    assert 'windtunnel_shadow_other_cost{name="one"}' in text
    assert "windtunnel_shadow_saturated 0.0" in text
    data = program.data()
    assert 'windtunnel_shadow_other_decisions{kind="routing",name="one"} 0.' in text
    one = data["others"]["one"]
    assert one["cost_lately"] == pytest.approx(data["cost_lately"] / 2)
    assert one["cost"] < 0.6 * data["cost"]
    assert data["bad_lines"] == 0
    routing = one["decisions"]["routing"]
    assert routing["decided"] == one["decisions"]["admission"]["decided"] < 200
    assert "main/0 in place of main/1" in routing["first"]
    assert 'windtunnel_shadow_other_replicas_now{name="one"} 1.0' in text


GROWS = """\
scaling:
  policy: hpa
  interval: 10s
  metrics: [{name: running, target: 0.4}]
  pools: {main: {min: 2, max: 6}}
"""


def test_what_policies_decide_in_the_twin_is_told_by_its_time_from_now() -> None:
    found = forecaster(TRUTH + GROWS).forecast(present_at(200.0), 1.0, WhatIf(traffic=3.0))
    before = [one for one in found.control if one.at_s <= 0.0]
    assert before
    assert before[0].subject == "pool main"
    assert before[0].decided == f"2 to {before[0].decided.split()[2]} replicas"
    assert "running is" in before[0].reason
    assert found.replicas_now == int(before[-1].decided.split()[2])
    assert found.replicas >= found.replicas_now > 2
    assert found.machines is None


def test_the_most_machines_of_a_stretch_are_counted_over_all_pools() -> None:
    row = [0] * 9
    pools = {
        "a": {"sizes": [[0.0, 0, 0, 0, 2, *row[5:]], [50.0, 1, 0, 0, 2, *row[5:]]]},
        "b": {"sizes": [[10.0, 0, 0, 0, 4, 0, 0, 7, 1.0], [55.0, 0, 0, 0, 0, 0, 3, 7, 1.0]]},
    }
    sizes = machines_over_time({"pools": pools})
    assert sizes == [(0.0, 0), (0.0, 2), (10.0, 6), (50.0, 7), (55.0, 3)]
    assert most_machines(sizes, 20.0, 40.0) == 6
    assert most_machines(sizes, 20.0, 60.0) == 7
    assert most_machines(sizes, 60.0, 90.0) == 3
    assert most_machines(None, 0.0, 1.0) is None


def test_settings_are_held_against_foresight_of_the_recent_traffic(
    shadow: Callable[..., tuple[int, str, str]],
) -> None:
    others = {"<b>one": WhatIf(sets=("serving.pools.0.replicas=1",))}
    found = shadow_of(forecaster(), others, regret_s=120.0)
    program = ShadowProgram(found, GatewayFollower(found.window, Path("trace"), None), 30.0, 30.0)
    found.measure_regret()
    assert program.data()["regret"] == {}
    assert "There is no forecast yet." in shadow_page(program.data())
    program.tick()
    found.measure_regret()
    regret = program.data()["regret"]
    # One replica carries this traffic: nothing is cheaper, and two cost twice as much.
    assert regret["<b>one"]["ratio"] == pytest.approx(1.0, abs=0.05)
    assert regret["as it is"]["ratio"] == pytest.approx(2.0, abs=0.15)
    page = shadow_page(program.data())
    assert "<b>2.00x</b>" in page
    assert "on the traffic of the last 2 min over that of foresight" in page
    assert "&lt;b&gt;one" in page
    assert "<b>one" not in page
    assert "main/0 in place of main/1" in page
    registry = registry_of(lambda: shadow_families(program.data()))
    assert 'windtunnel_shadow_regret_ratio{name="as it is"}' in generate_latest(registry).decode()
    Path("truth.yaml").write_text(TRUTH.replace("  standard: {ttft: 1s}", "  standard: {}"))
    files = ("truth.yaml", "--trace", "trace", "--past", "1m", "--horizon", "1m")
    code, out, err = shadow("run", *files, "--once", "--regret", "5m")
    assert code == 0
    assert "next 1m  TTFT p95" in out
    assert "no regret: --regret: the scenario has no target that a policy could attain" in err
