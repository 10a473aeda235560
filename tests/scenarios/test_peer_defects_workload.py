"""Defects of other simulators' workloads and replays that must not be here, each by its name."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.workload.plans import Conversation, Extra, Prefix, World, pause, source, users
from windtunnel.core.errors import InputError
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe, simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.distributions import Arrivals, Curve, Lengths

SCENARIO = """\
name: peer
duration: 60s
workload:
  - name: chat
    tenant: acme
    arrivals: {process: poisson, rate: 5/s}
    prompt_tokens: 40
    output_tokens: 10
  - name: agents
    slo: batch
    arrivals: {process: poisson, rate: 5/s}
    prompt_tokens: 40
    output_tokens: 10
serving:
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 400}
      step_time: {model: linear, fixed: 10ms}
"""
WINDOW = Curve(points=((10.0, 0.0), (10.0, 1.0), (40.0, 1.0), (40.0, 0.0)))
SEVEN = Lengths("constant", 7.0, 0.0, 7, 7)
TALK = Conversation(Lengths("constant", 3.0, 0.0, 3, 3), pause(2.0), accumulates=True)


def ran(*sets: str) -> dict[str, Any]:
    return simulate(load_text(SCENARIO, sets=sets), check=True)


def test_an_empirical_file_is_read(tmp_path: Path) -> None:
    """The peer takes `file:` and never reads it: the run fails with `no valid bins`."""
    file = tmp_path / "seen.csv"
    file.write_text("tokens,weight\n64,1\n128,3\n")
    lengths = f"{{distribution: empirical, path: {file}}}"
    found = ran(f"workload.0.prompt_tokens={lengths}", "workload.1.prompt_tokens=112")
    chat, agents = (found["sources"][name] for name in ("chat", "agents"))
    assert chat["requests"] > 200
    assert chat["prompt_tokens"] / chat["completed"] == pytest.approx(112, rel=0.05)
    assert agents["prompt_tokens"] / agents["completed"] == 112


def test_prefix_media_and_deadline_are_not_ignored_under_a_rate_that_changes() -> None:
    """The peer's time-varying mode makes requests without prefix, media and deadline."""
    plan = source(
        count=None, curve=WINDOW, prefix=Prefix(30, 2), media=Extra(SEVEN, 1.0), timeout_s=9.0
    )
    requests = World((plan,), end_s=60.0).requests
    assert len(requests) > 200
    assert all(r.prefix is not None and r.prefix.ends == [30] for r in requests)
    assert {r.prompt_tokens for r in requests} == {30 + 5 + 7}
    assert {r.media_tokens for r in requests} == {7}
    assert all(r.deadline_s == r.arrived_s + 9.0 for r in requests)


def test_a_source_without_a_curve_still_sends_beside_one_that_has_one() -> None:
    """There, clients without windows fall silent as soon as anybody has some."""
    plain, curved = source("plain", count=None), source("curved", count=None, curve=WINDOW)
    world = World((plain, curved), end_s=60.0)
    assert len(world.of("plain")) == pytest.approx(600, abs=100)
    assert len(world.of("curved")) == pytest.approx(300, abs=70)


def test_a_rate_is_not_diluted_by_the_windows_of_others() -> None:
    """There, a client's rate is its share of all whose windows overlap, one number for all time."""
    always = source("always", count=None)
    phases = tuple(
        source(
            f"phase{number}",
            count=None,
            curve=Curve(points=((start, 0.0), (start, 1.0), (start + 9, 1.0), (start + 9, 0.0))),
        )
        for number, start in enumerate((0.0, 20.0, 40.0))
    )
    world = World((always, *phases), end_s=60.0)
    alone = World((always,), end_s=60.0)
    assert [r.arrived_s for r in world.of("always")] == [r.arrived_s for r in alone.requests]
    assert len(alone.requests) == pytest.approx(600, abs=100)


def test_the_number_of_requests_in_a_window_is_not_fixed_beforehand() -> None:
    """There, ceil(rate x length) gaps are drawn and stretched until they fill the window."""
    plan = source(count=None, curve=WINDOW)
    counts = [len(World((plan,), end_s=60.0, seed=seed).requests) for seed in range(40)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    assert mean == pytest.approx(300, abs=12)
    assert 0.5 < variance / mean < 1.7  # of a poisson process: 1


def test_a_day_is_a_smooth_wave_and_not_hours_of_silence() -> None:
    """There, each hour is on for a part of it and off for the rest."""
    day = Curve(period_s=86400.0, peak_s=50400.0, ratio=10.0)
    plan = source(count=None, arrivals=Arrivals("poisson", 0.5, 1.0), curve=day)
    requests = World((plan,), end_s=86400.0).requests
    tenths = Counter(int(r.arrived_s // 360) for r in requests)  # six minutes each
    assert len(tenths) == 240
    for hour in range(24):
        inside = [tenths[10 * hour + part] for part in range(10)]
        assert max(inside) < 3 * min(inside) + 30
    assert sum(tenths[140 + part] for part in range(-5, 5)) > 5 * sum(
        tenths[20 + part] for part in range(-5, 5)
    )


def test_the_whole_source_is_not_drained_before_the_run_begins() -> None:
    """There, even the lazy source is emptied into the event heap first, and memory with it."""
    simulation = compose(load_text(SCENARIO))
    assert simulation.traffic.taken == 0
    most_ahead = 0

    def check(state: object) -> None:
        nonlocal most_ahead
        most_ahead = max(most_ahead, simulation.traffic.taken - simulation.recorder.arrived)

    simulation.run(breathe, check)
    assert simulation.traffic.taken == simulation.recorder.arrived > 400
    assert most_ahead == 0


def test_populations_are_not_dropped_when_workloads_are_put_together() -> None:
    """There, `compose` sums the rates of the files it merges, and drops their cohorts."""
    own = "{members: 3, tenants: per-member}"
    found = ran(f"workload.0.population={own}", f"workload.1.population={own}")
    tenants = {"acme-0", "acme-1", "acme-2", "default-0", "default-1", "default-2"}
    assert found["tenants"].keys() == tenants
    assert {name: one["requests"] > 200 for name, one in found["sources"].items()} == {
        "chat": True,
        "agents": True,
    }


def test_reasoning_tokens_are_written_and_take_their_time() -> None:
    """There, the share of reasoning is carried to the trace and has no effect."""
    plain = ran()
    thinking = ran("workload.0.reasoning={tokens: 90}", "workload.1.reasoning={tokens: 90}")
    assert thinking["requests"]["arrived"] == plain["requests"]["arrived"]
    per_request = thinking["tokens"]["output"] / thinking["requests"]["completed"]
    assert per_request == 100
    assert thinking["latency"]["e2e"]["p50"] > 8 * plain["latency"]["e2e"]["p50"]


def test_what_has_no_effect_is_refused() -> None:
    """There, a client's `network`, `streaming` and more are read and not used."""
    for key in ("network={rtt_ms: 5}", "streaming=true", "lifecycle=[]", "slo_target_us=5"):
        with pytest.raises(InputError, match="unknown key"):
            load_text(SCENARIO, sets=[f"workload.0.{key}"])


def test_users_may_stand_beside_conversations_and_hold_some_themselves() -> None:
    """There, concurrency and multi-turn clients cannot be mixed."""
    talking, looping = source("talk", conversation=TALK), source("loop", arrivals=users(3, 1.0))
    both = source("both", arrivals=users(3, 1.0), conversation=TALK)
    world = World((talking, looping, both), lambda _: (1.0, True))
    counts = {name: len(world.of(name)) for name in ("talk", "loop", "both")}
    assert counts == {"talk": 150, "loop": 50, "both": 150}


def test_the_next_turn_waits_for_the_answer_however_long_it_takes() -> None:
    """There, open-loop turns come after the thought and a microsecond per output token."""
    world = World((source(count=20, conversation=TALK),), lambda r: (30.0 + float(r.id % 7), True))
    turns = {(r.session, r.turn): r for r in world.requests}
    later = [r for r in world.requests if r.turn > 0]
    assert len(later) == 40
    for request in later:
        before = turns[request.session, request.turn - 1]
        assert request.arrived_s == world.ends[before.id] + 2.0


def test_some_sources_may_name_a_class_and_others_not() -> None:
    """There, either all clients name one or none does."""
    assert {"standard", "batch"} <= ran()["slo"].keys()


@pytest.mark.parametrize("process", ["gamma", "weibull"])
@pytest.mark.parametrize("cv", [13.0, 40.0])
def test_very_bursty_gaps_are_not_taken_for_poisson(process: str, cv: float) -> None:
    """There, a gamma shape below 0.01 becomes poisson, and Weibull's cv ends at 10.4."""
    plan = source(count=30_000, arrivals=Arrivals(process, 1.0, cv))
    times = [0.0, *(r.arrived_s for r in World((plan,)).requests)]
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    # Of a poisson process half of the gaps are longer than 0.69 of the mean.
    assert gaps[len(gaps) // 2] < 0.05
    mean = sum(gaps) / len(gaps)
    found = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean
    assert found > cv / 3


def test_gaps_have_no_smallest_length() -> None:
    """There, a gap is a microsecond at least: of a million a second a quarter is lost."""
    plan = source(count=20_000, arrivals=Arrivals("poisson", 1e6, 1.0))
    requests = World((plan,)).requests
    assert requests[-1].arrived_s == pytest.approx(0.02, rel=0.05)


def test_nobody_gives_up_who_was_not_told_to() -> None:
    """There, clients with sessions give up after 300 s, and others never."""
    world = World((source(conversation=TALK), source("b")), lambda _: (1.0, True))
    assert {request.deadline_s for request in world.requests} == {math.inf}


def test_a_source_keeps_its_count_however_many_others_there_are() -> None:
    """There, one number of requests is shared out to whoever comes first."""
    world = World(
        (source("slow", count=30, arrivals=Arrivals("constant", 0.1, 0.0)), source("fast"))
    )
    assert (len(world.of("slow")), len(world.of("fast"))) == (30, 50)


def test_a_replay_has_no_horizon_that_nobody_asked_for(tmp_path: Path) -> None:
    """There, a replay ends at twice its last arrival: 168 of 500 requests are silently lost."""
    path = tmp_path / "heavy.csv"
    rows = "".join(f"{number / 50},200,60\n" for number in range(500))
    path.write_text("arrived,prompt_tokens,output_tokens\n" + rows)
    sets = [f"workload=[{{trace: {{path: {path}}}}}]", "duration=null"]
    whole = simulate(load_text(SCENARIO, sets=[*sets, "serving.pools.0.engine.max_num_seqs=4"]))
    assert whole["requests"]["completed"] == 500
    assert whole["simulated_seconds"] > 2 * 10  # and twice the last arrival has long passed
    # With a duration, what it cuts off is counted and told.
    cut = simulate(
        load_text(SCENARIO, sets=[sets[0], "duration=20s", "serving.pools.0.engine.max_num_seqs=4"])
    )
    assert cut["requests"]["unfinished"] > 100
    assert cut["requests"]["completed"] + cut["requests"]["unfinished"] == 500
    assert "unfinished" in {one["code"] for one in cut["trust"]["findings"]}
