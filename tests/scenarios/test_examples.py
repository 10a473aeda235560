"""Every example runs, and what its paragraph says of it is so."""

import re
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = (
    "a-day",
    "closed-loop",
    "disaggregation",
    "elastic",
    "faults",
    "first",
    "kthena",
    "lora",
    "my_router",
    "noisy-neighbour",
    "offload",
    "overload",
    "physics",
    "plan",
    "plan-budget",
    "plan-models",
    "rehearse",
    "routing",
    "sessions",
    "speculative",
    "spike",
    "whole-loop",
    "two-models",
)


def run(name: str, *sets: str) -> dict[str, Any]:
    return simulate(load(FOLDER / f"{name}.yaml", sets))


NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def says(name: str, sentence: str, *figures: float) -> None:
    """The paragraph of an example has this sentence, with the figures that its runs gave for `{}`.

    There is room for a small change of the model: a point of a share, 2% of other figures.
    """
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    text = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    found = re.search(re.escape(sentence).replace(r"\{\}", NUMBER), text)
    assert found is not None, f"{name}.yaml does not say: {sentence}"
    for number, figure in enumerate(figures, start=1):
        written = found[number].replace(",", "")
        is_share = text[found.end(number)] == "%"
        rounding = 0.5 * 10.0 ** -len(written.partition(".")[2])
        value, room = (100.0 * figure, 1.0) if is_share else (figure, 0.02 * figure)
        assert abs(float(written) - value) <= rounding + room, f"{name}.yaml: {sentence}: {value}"


def late(result: dict[str, Any], name: str = "critical") -> float:
    return 1.0 - float(result["slo"][name]["attained"])


def test_drafts_are_worth_more_than_they_cost() -> None:
    drafts, plain = (
        run("speculative", *sets) for sets in ((), ("serving.pools.0.engine.speculative=null",))
    )
    length = drafts["pools"]["main"]["speculative"]["acceptance_length"]
    assert 2.7 < length < 3.1
    tpot_ms = [1e3 * one["latency"]["tpot"]["mean"] for one in (drafts, plain)]
    says("speculative", "gives a request {} tokens on average", length)
    says("speculative", "a token takes {} ms", tpot_ms[0])
    in_time = plain["slo"]["standard"]["attained"]
    says("speculative", "a step, {} ms", tpot_ms[1])
    says("speculative", "{}% of the requests are in time", in_time)
    faster = plain["latency"]["tpot"]["mean"] / drafts["latency"]["tpot"]["mean"]
    assert 2.0 < faster < length


def test_a_crash_sends_requests_to_the_other_engine() -> None:
    broken, whole = run("rehearse"), run("rehearse", "faults=null")
    shares = [
        sorted(one["requests"] / result["requests"]["arrived"] for one in result["servers"])
        for result in (broken, whole)
    ]
    assert shares[0][0] < 0.4 < shares[1][0]


def test_every_example_is_looked_at_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_how_to_run_it_and_what_to_look_for(name: str) -> None:
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    paragraph = [line for line in lines if line.startswith("# ")]
    assert lines[0].startswith("# ")
    assert f"`windtunnel simulate examples/{name}.yaml`" in " ".join(paragraph)
    assert len(paragraph) >= 5
    assert load(FOLDER / f"{name}.yaml").name == name


def test_first_has_room_to_spare_and_one_server_has_not() -> None:
    four = run("first")
    assert four["requests"]["completed"] == four["requests"]["arrived"] == 4000
    assert four["slo"]["critical"]["attained"] > 0.99
    assert 0.02 < four["latency"]["ttft"]["mean"] < 0.05
    assert 0.3 < four["tokens"]["prefix_hit"] / four["tokens"]["prompt"] < 0.35
    one = run("first", "serving.pools.0.replicas=1")
    assert one["latency"]["ttft"]["p99"] > 100 * four["latency"]["ttft"]["p99"]
    assert one["latency"]["tpot"]["p99"] < 3 * four["latency"]["tpot"]["p99"]


def test_overload_queues_outside_the_batch() -> None:
    over = run("overload")
    assert 15 < over["throughput"]["requests_per_s"] < 18
    assert over["slo"]["critical"]["attained"] < 0.1
    assert over["latency"]["tpot"]["max"] < 0.03
    assert 25 < over["latency"]["ttft"]["max"] < 35
    assert 0.3 < over["latency"]["ttft"]["p50"] / over["latency"]["ttft"]["max"] < 0.5
    assert 600 < over["requests"]["unfinished"] < 800
    under = run("overload", "workload.0.arrivals.rate=14/s")
    rate = under["throughput"]
    assert rate["goodput_requests_per_s"] == rate["requests_per_s"]
    assert under["latency"]["ttft"]["max"] < 0.5
    for result in (over, under):
        assert result["pools"]["main"]["utilization"] > 0.99


def test_physics_documents_hold_up_chats() -> None:
    both = run("physics")
    assert both["requests"]["completed"] == 1350
    assert 0.6 < both["slo"]["critical"]["attained"] < 0.95
    assert both["slo"]["batch"]["attained"] == 1.0
    assert both["latency"]["itl"]["p99"] > 10 * both["latency"]["itl"]["p50"]
    assert 0.3 < both["cost"]["per_million_output_tokens"] < 0.6
    alone = run("physics", "workload.1.count=1")
    assert alone["slo"]["critical"]["attained"] == 1.0
    thinner = run("physics", "serving.pools.0.engine.max_num_batched_tokens=1024")
    assert thinner["latency"]["itl"]["p99"] < both["latency"]["itl"]["p99"] / 4
    assert thinner["latency"]["ttft"]["p99"] > both["latency"]["ttft"]["p99"]


def test_routing_finds_prompts_where_they_are_cached() -> None:
    aware = run("routing")
    round_robin = run("routing", "serving.router={policy: round-robin}")
    own = run("my_router")

    def found(result: dict[str, Any]) -> float:
        return float(result["tokens"]["prefix_hit"] / result["tokens"]["prompt"])

    says("routing", "finds {}% of all tokens", found(aware))
    says("routing", "{}% are found", found(round_robin))
    assert found(own) > 0.92
    assert aware["slo"]["critical"]["attained"] == own["slo"]["critical"]["attained"] == 1.0
    assert round_robin["slo"]["critical"]["attained"] < 0.1


def test_disaggregation_keeps_documents_out_of_answers() -> None:
    apart = run("disaggregation")
    together = run(
        "disaggregation",
        "serving.pools.0.role=both",
        "serving.pools.1.role=both",
        "serving.disaggregation=null",
    )
    gaps_ms = [1e3 * one["latency"]["itl"]["p99"] for one in (apart, together)]
    says("disaggregation", "the p99 gap between tokens is {} ms", gaps_ms[0])
    says("disaggregation", "the p99 gap is about {} ms", gaps_ms[1])
    assert together["latency"]["ttft"]["mean"] < apart["latency"]["ttft"]["mean"]
    slow = run("disaggregation", "serving.disaggregation.transfer.bandwidth=8GB/s")
    times = slow["disaggregation"]["transfer"]["mean"] / apart["disaggregation"]["transfer"]["mean"]
    assert 5.5 < times < 6.5
    busy = slow["disaggregation"]["link_busy"]
    says("disaggregation", "busy {}% of the time, and take six times as long", busy)


def test_lora_adapters_are_found_where_they_are_loaded() -> None:
    def loads(result: dict[str, Any]) -> int:
        return sum(adapter["loads"] for adapter in result["adapters"].values())

    seeing, blind = run("lora"), run("lora", "serving.router={policy: least-loaded}")
    arrived = seeing["requests"]["arrived"]
    says("lora", "{} loads for {} requests", loads(seeing), arrived)
    says("lora", "{} loads hold up", loads(blind))
    says("lora", "{}% are late, and the p99 TTFT is thirteen times as long", late(blind))
    assert seeing["slo"]["critical"]["attained"] == 1.0
    times = blind["latency"]["ttft"]["p99"] / seeing["latency"]["ttft"]["p99"]
    assert 12.5 < times < 13.5


def test_offload_brings_history_back() -> None:
    def figures(result: dict[str, Any]) -> tuple[float, float]:
        hit = result["tokens"]["prefix_hit"] / result["tokens"]["prompt"]
        return float(hit), float(result["slo"]["critical"]["attained"])

    both = run("offload")
    cpu = run("offload", "serving.pools.0.engine.offload=[{tier: cpu, size: 32GiB}]")
    none = run("offload", "serving.pools.0.engine.offload=null")
    hit, in_time = figures(both)
    says("offload", "{}% of all prompt tokens are found, and {}% of the requests", hit, in_time)
    says("offload", "without the disk {}% are in time", figures(cpu)[1])
    says("offload", "are computed again, and {}% are in time", figures(none)[1])
    assert 0.6 < 1.0 - figures(none)[0] < 0.65
    assert both["pools"]["main"]["kv_blocks"] * 16 == pytest.approx(200_000, rel=0.02)
    tier = both["pools"]["main"]["offload"]["tiers"]["cpu"]
    assert 0.035 < tier["loaded_bytes"] / tier["loads"] / 25e9 < 0.045


def test_faults_do_little_harm_to_a_router_that_counts() -> None:
    counts, blind = run("faults"), run("faults", "serving.router.policy=round-robin")
    none = run("faults", "faults=[]", "serving.retries=null", "serving.startup=null")
    in_time, best = (one["slo"]["critical"]["attained"] for one in (counts, none))
    replicas = counts["pools"]["main"]["replicas"]
    assert (replicas["lost"], replicas["failed"]) == (2, 0)
    says("faults", "{}% attain the SLO, and the {} requests of the", in_time, replicas["retried"])
    says("faults", "without any fault {}% attain the SLO", best)
    ttft_s = [one["latency"]["ttft"]["p99"] for one in (blind, counts)]
    gone = blind["requests"]["timed_out"]
    says("faults", "{} clients leave, and the p99 TTFT is {} s instead of {} s", gone, *ttft_s)
    assert blind["requests"]["rejected"] > 0


def test_elastic_sleeps_wakes_up_and_is_small_again() -> None:
    slow = run("elastic")
    quick = run("elastic", "serving.startup.load.mean=5s")
    for result, most in ((slow, 5), (quick, 6)):
        replicas = result["pools"]["main"]["replicas"]
        assert (replicas["initial"], replicas["most"], replicas["final"]) == (0, most, 1)
        assert result["requests"]["completed"] == 4000
    says("elastic", "there were five servers")
    says("elastic", "{}% miss their targets", late(slow))
    longest = [one["latency"]["ttft"]["max"] for one in (quick, slow)]
    says("elastic", "the longest wait is {} s instead of {}", *longest)
    assert quick["cost"]["total"] < slow["cost"]["total"]


def test_sessions_find_their_past_where_they_have_been() -> None:
    sticky = run("sessions")
    sent_round = run("sessions", "serving.router.policy=round-robin")
    fresh = run("sessions", "workload.0.session.context=fresh")

    def found(result: dict[str, Any]) -> float:
        return float(result["tokens"]["prefix_hit"] / result["tokens"]["prompt"])

    assert 0.88 < found(sticky) < 0.91
    assert 0.45 < found(sent_round) < 0.52
    assert fresh["tokens"]["prompt"] < sticky["tokens"]["prompt"] / 2
    for result in (sticky, sent_round, fresh):
        sessions = result["sessions"]
        assert sessions["count"] == sum(sessions["ended"].values()) == 400
        assert sessions["turns"] == result["requests"]["arrived"] == 2868
    first, later = (sticky["sessions"][name]["mean"] for name in ("cold_ttft", "warm_ttft"))
    assert later == pytest.approx(first, rel=0.1)
    assert 2.8 < sent_round["sessions"]["warm_ttft"]["mean"] / later < 3.6


def test_a_day_has_an_afternoon() -> None:
    wave, even = run("a-day"), run("a-day", "workload.0.rate_curve=null")
    two = run("a-day", "serving.pools.0.replicas=2")
    assert wave["requests"]["arrived"] == pytest.approx(24 * 700, rel=0.03)
    says("a-day", "the queue grows to {} minutes", wave["latency"]["ttft"]["max"] / 60)
    assert even["latency"]["ttft"]["max"] < 60
    assert wave["slo"]["standard"]["attained"] < 0.45
    assert even["slo"]["standard"]["attained"] > 0.85
    assert two["slo"]["standard"]["attained"] > 0.99
    assert 0.7 < two["pools"]["main"]["utilization"] < 0.76


def test_a_closed_loop_cannot_be_overrun() -> None:
    some = run("closed-loop")
    more = run("closed-loop", "workload.0.arrivals.users=320")
    for users, result in ((160, some), (320, more)):
        rate = result["throughput"]["requests_per_s"]
        says("closed-loop", "It gives {} answers/s", rate)
        assert users == pytest.approx(rate * (result["latency"]["e2e"]["mean"] + 8), rel=0.05)
    open_loop = ("closed-loop", "workload.0.arrivals={process: poisson, rate: 14/s}")
    short, long = run(*open_loop), run(*open_loop, "duration=6m")
    assert long["latency"]["ttft"]["mean"] > 2.5 * short["latency"]["ttft"]["mean"]
    assert "queue-growth" in {one["code"] for one in long["trust"]["findings"]}


def test_spike_is_met_a_little_late() -> None:
    scaled = run("spike")
    assert 0.77 < scaled["slo"]["critical"]["attained"] < 0.83  # four in five
    sizes = [row[1] for row in scaled["scaling"]["pools"]["main"]["sizes"]]
    assert (sizes[0], min(sizes), max(sizes), sizes[-1]) == (2, 1, 6, 1)
    quick = run("spike", "serving.startup.load.mean=5s")
    assert quick["slo"]["critical"]["attained"] > 0.9
    assert quick["cost"]["total"] < 1.05 * scaled["cost"]["total"]
    fixed = run("spike", "scaling=null", "serving.startup=null")
    assert 0.35 < fixed["slo"]["critical"]["attained"] < 0.45
    assert fixed["scaling"] is None
    four = run("spike", "scaling=null", "serving.startup=null", "serving.pools.0.replicas=4")
    assert four["slo"]["critical"]["ttft"]["max"] < 0.5  # all, but for those cut off by the end
    assert four["cost"]["total"] / scaled["cost"]["total"] == pytest.approx(1.25, abs=0.04)


def test_kthena_minds_the_cache_or_the_queue(tmp_path: Path) -> None:
    busy = run("kthena")
    manifest = (FOLDER / "manifests" / "kthena-policy.yaml").read_text()
    (tmp_path / "early.yaml").write_text(manifest.replace("500m", "250m"))
    early = run("kthena", f"scaling.manifests=[{tmp_path}/early.yaml]")
    for result, before in ((busy, "need 40 s to load."), (early, "suffice, and")):
        in_time = result["slo"]["critical"]["attained"]
        says("kthena", before + " {}% are in time, for ${}.", in_time, result["cost"]["total"])


def test_plan_has_a_cheapest_answer_and_cheaper_servers_that_miss() -> None:
    """What `windtunnel plan` says of it, by the runs that stand behind the three main sentences."""
    pool = "serving.pools.0"

    def servers(count: int, accelerator: str) -> dict[str, Any]:
        sets = (f"{pool}.replicas={count}", f"{pool}.accelerator={accelerator}")
        critical: dict[str, Any] = run("plan", *sets)["slo"]["critical"]
        return critical

    planning = load(FOLDER / "plan.yaml").sections.plan
    assert planning is not None
    prices = planning.prices
    cheapest, next_one = 5 * prices["h100-sxm"], 4 * prices["h200"]
    says("plan", "five H100 for ${} an hour", cheapest)
    says("plan", "four attain it for {}% more", next_one / cheapest - 1.0)
    assert servers(4, "h200")["attained"] > 0.98
    assert servers(5, "h100-sxm")["attained"] > 0.98
    assert servers(4, "h100-sxm")["attained"] < 0.95
    assert servers(3, "h200")["attained"] < 0.6
    slow = servers(14, "l40s")
    assert slow["attained_by"]["ttft"] > 0.95
    assert slow["attained_by"]["tpot"] < 0.1


def test_a_plan_within_a_budget_takes_whole_machines_of_what_is_there() -> None:
    sets = {"workload.0.count": 200}
    found = wt.plan(FOLDER / "plan-budget.yaml", sets=sets, seeds=2, max_runs=30)
    over = [row for row in found if row["reason"] == "over-budget"]
    assert any("24 of them in whole machines" in row["why"] for row in over)
    others = [row for row in found if row["reason"] not in ("over-budget", "does-not-fit")]
    assert {row["cost_per_hour"] for row in others} <= {24.0, 48.0, 72.0}
    best = found.best or found.closest
    assert best is not None
    assert best["model"] == "llama-3.1-70b-fp8"
    assert found.found["goal"]["each_target"] is True


def test_two_models_fill_a_machine_and_more_code_does_not_fit() -> None:
    """By the runs that stand behind what `windtunnel plan` says of it."""
    small, large = "serving.pools.0.replicas", "serving.pools.1.replicas"

    def attained(*sets: str) -> list[float]:
        return [one["attained"] for one in run("plan-models", *sets)["models"].values()]

    assert min(attained(f"{small}=3")) > 0.98
    assert attained(f"{small}=2", f"{large}=1") < [0.5, 0.5]
    heavy = ["workload.1.arrivals.rate=8/s"]
    heavy += [f"{path}.model=qwen2.5-32b-fp8" for path in ("workload.1", "serving.pools.1")]
    assert attained(*heavy, f"{large}=3")[1] > 0.98
    assert attained(*heavy)[1] < 0.95


def test_the_whole_loop_keeps_less_than_one_without_machines_promises() -> None:
    real = run("whole-loop")
    promised = run("whole-loop", "fleet=null")
    ready = run("whole-loop", "fleet.pools.0.machines.initial=5")
    for result, sentence in (
        (real, "{}% of the requests are in time, for ${}."),
        (promised, "as most simulations assume: {}%, for ${}."),
        (ready, "machines that wait for the launch: the same {}%, for ${}."),
    ):
        attained, cost = result["slo"]["critical"]["attained"], result["cost"]["total"]
        says("whole-loop", sentence, attained, cost)
    assert real["fleet"]["pools"]["h200-a"]["created"] == 4


def test_two_models_share_gpus_and_nothing_else() -> None:
    eight = run("two-models")
    small, large = eight["models"].values()
    assert eight["pools"]["large"]["replicas"]["most"] == 3
    assert small["attained"] > 0.99
    assert 0.5 < large["attained"] < 0.7
    says("two-models", "40 of the {} ms TTFT of code", 1e3 * large["latency"]["ttft"]["p50"])
    three = run("two-models", "serving.pools.1.replicas=3")
    more = three["cost"]["total"] / eight["cost"]["total"] - 1.0
    says("two-models", "no request waits, for {}% more", more)
    six = run("two-models", "scaling.accelerators.h100=6")
    assert six["pools"]["large"]["replicas"]["most"] == 2
    assert six["models"]["llama-3.1-8b"] == small
    assert six["models"]["qwen2.5-32b"]["latency"]["ttft"]["p50"] > large["latency"]["ttft"]["p50"]
