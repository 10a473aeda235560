"""What may stand under `workload`, what it comes to, and what is said of the rest."""

import math
from pathlib import Path
from typing import get_args

import pytest

from tests.twin.scenario.scenario_texts import EVERYTHING, SMALL
from windtunnel.core.errors import InputError
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.workload.arrivals import curve_of
from windtunnel.workload.distributions import Arrivals, Curve, Lengths, Times
from windtunnel.workload.request import MOST_TURNS
from windtunnel.workload.settings.sources import (
    PrefixSettings,
    ReplaySettings,
    SourceSettings,
    TraceSettings,
)
from windtunnel.workload.traces.formats.registry import NAMES

SIX = Lengths("constant", 6.0, 0.0, 6, 6)


def source(*sets: str) -> SourceSettings:
    """The source of a scenario in which some of it is written differently."""
    (found,) = load_text(SMALL, sets=[f"workload.0.{one}" for one in sets]).sources
    return found


def sentence(*sets: str) -> str:
    with pytest.raises(InputError) as caught:
        source(*sets)
    return str(caught.value).partition(": workload[0].")[2]


def test_gamma_and_weibull_by_shape_and_scale() -> None:
    gamma = source("arrivals={process: gamma, shape: 0.25, scale: 400ms}").arrivals.drawn()
    assert gamma == Arrivals("gamma", 10.0, 2.0)
    weibull = source("arrivals={process: weibull, shape: 0.5, scale: 1s}").arrivals.drawn()
    assert weibull.rate_per_s == pytest.approx(1 / 2)  # the mean gap is 1 s x Gamma(3)
    assert weibull.cv == pytest.approx(math.sqrt(5))  # Gamma(5) / Gamma(3)^2 - 1
    poisson = source("arrivals={process: weibull, shape: 1, scale: 20ms}").arrivals.drawn()
    assert (poisson.rate_per_s, poisson.cv) == pytest.approx((50.0, 1.0))


def test_users_in_a_closed_loop() -> None:
    found = source("arrivals={process: closed, users: 5, think: 2s}").arrivals.drawn()
    assert found == Arrivals("closed", 0.0, 0.0, 5, Times("constant", 2.0, 0.0, 2.0, 2.0))
    drawn = "{distribution: lognormal, mean: 8s, cv: 2, min: 1s, max: 60s}"
    found = source(f"arrivals={{process: closed, users: 5, think: {drawn}}}").arrivals.drawn()
    assert found.think == Times("lognormal", 8.0, 2.0, 1.0, 60.0)


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        ("[[0s, 1], [10m, 4], [12m, 1.0]]", Curve(((0.0, 1.0), (600.0, 4.0), (720.0, 1.0)))),
        ("[[5, 2]]", Curve(((5.0, 2.0),))),
        ("{diurnal: {ratio: 4}}", Curve(period_s=86400.0, peak_s=50400.0, ratio=4.0)),
        (
            "{diurnal: {ratio: 2, peak: 30s, period: 2m}}",
            Curve(period_s=120.0, peak_s=30.0, ratio=2.0),
        ),
        (
            "{spike: {at: 1m, duration: 5s, factor: 10}}",
            Curve(((60.0, 1.0), (60.0, 10.0), (65.0, 10.0), (65.0, 1.0))),
        ),
        ("{ramp_down: {at: 1m, over: 5s}}", Curve(((60.0, 1.0), (65.0, 0.0)))),
        ("{ramp_down: {at: 0s, over: 5s, to: 0.5}}", Curve(((0.0, 1.0), (5.0, 0.5)))),
    ],
)
def test_curves(written: str, plan: Curve) -> None:
    assert source(f"rate_curve={written}").curve == plan


def test_named_curves_are_what_they_say() -> None:
    found = source("rate_curve={spike: {at: 1m, duration: 5s, factor: 10}}").curve
    assert found is not None
    assert [curve_of(found).factor(at) for at in (0, 59.9, 60, 64.9, 65, 900)] == [
        1,
        1,
        10,
        10,
        1,
        1,
    ]
    found = source("rate_curve={ramp_down: {at: 1m, over: 10s, to: 0.5}}").curve
    assert found is not None
    assert [curve_of(found).factor(at) for at in (0, 60, 65, 70, 900)] == [1, 1, 0.75, 0.5, 0.5]
    found = source("rate_curve={diurnal: {ratio: 4, peak: 6h}}").curve
    assert found is not None
    day = [curve_of(found).factor(at * 3600) for at in (6, 18, 30, 12)]
    assert day == pytest.approx([1.6, 0.4, 1.6, 1.0])


def test_traffic_that_fades_out_needs_neither_count_nor_duration() -> None:
    found = source("count=null", "rate_curve={ramp_down: {at: 1s, over: 1s}}")
    assert found.count is None


def test_lengths_with_a_tail() -> None:
    tail = "{share: 0.05, start: 4000, alpha: 1.5}"
    written = f"{{distribution: pareto-lognormal, mean: 900, cv: 0.9, max: 32768, tail: {tail}}}"
    assert source(f"prompt_tokens={written}").prompt_tokens.drawn() == Lengths(
        "pareto-lognormal", 900.0, 0.9, 1, 32768, tail_alpha=1.5, tail_start=4000, tail_share=0.05
    )


def test_lengths_that_were_seen() -> None:
    written = "{distribution: empirical, values: [64, [128, 3], 5e2]}"
    found = source(f"output_tokens={written}").output_tokens.drawn()
    assert (found.values, found.weights) == ((64, 128, 500), (1.0, 3.0, 1.0))
    file = load_text(
        SMALL,
        "folder/s.yaml",
        ["workload.0.output_tokens={distribution: empirical, path: seen.csv}"],
    ).sources[0]
    assert file.output_tokens.drawn().path == "folder/seen.csv"


def test_conversations() -> None:
    found = source("session={turns: {distribution: exponential, mean: 4}, think: 8s}")
    assert found.session is not None
    assert found.lengths()["session.turns"] == Lengths("exponential", 4.0, 1.0, 1, MOST_TURNS)
    assert found.session.think.drawn() == Times("constant", 8.0, 0.0, 8.0, 8.0)
    assert found.session.context == "accumulate"
    fresh = source(
        "session={turns: 6, think: {distribution: uniform, min: 1s, max: 3s}, context: fresh}"
    ).session
    assert fresh is not None
    assert (fresh.turns.drawn(), fresh.context) == (SIX, "fresh")
    assert fresh.think.drawn().mean_s == 2.0


def test_a_population_with_something_of_its_own() -> None:
    found = source("population={members: 7, tenants: per-member}")
    assert (found.members, found.tenant_per_member, found.prefix) == (7, True, None)
    found = source("population={members: 7, prefixes: per-member}", "prefix={tokens: 9}")
    assert (found.tenant_per_member, found.prefix_per_member) == (False, True)
    assert found.prefix == PrefixSettings(tokens=9)


def test_media_and_reasoning() -> None:
    found = source("media={tokens: 6, share: 0.3}", "reasoning={tokens: 6}")
    assert found.media is not None
    assert found.reasoning is not None
    assert (found.media.tokens.drawn(), found.media.share) == (SIX, 0.3)
    assert (found.reasoning.tokens.drawn(), found.reasoning.share) == (SIX, 1.0)


def test_a_trace_with_every_option() -> None:
    written = """{trace: {path: t/x.csv, format: azure, speedup: 2, sort: true, skip_bad: 3},
        name: n, tenant: t, slo: batch, count: 5, timeout: 9s}"""
    (found,) = load_text(SMALL, "folder/s.yaml", [f"workload.0={written}"]).workload
    trace = TraceSettings(path="folder/t/x.csv", format="azure", speedup=2.0, skip_bad=3, sort=True)
    assert found == ReplaySettings(
        trace=trace, name="n", tenant="t", slo="batch", timeout_s=9.0, count=5
    )
    closed = "{trace: {path: x, sessions: closed, think: 2s}}"
    (found,) = load_text(SMALL, sets=[f"workload.0={closed}"]).workload
    assert isinstance(found, ReplaySettings)
    assert found.trace.think is not None
    assert found.trace.sessions == "closed"
    assert found.trace.think.drawn() == Times("constant", 2.0, 0.0, 2.0, 2.0)
    (found,) = load_text(SMALL, sets=["workload.0={trace: {path: x}}"]).workload
    assert found == ReplaySettings(trace=TraceSettings(path="x"))


def test_every_format_with_times_can_be_replayed() -> None:
    formats, _ = get_args(TraceSettings.model_fields["format"].annotation)
    assert set(get_args(formats)) == set(NAMES) - {"sharegpt"}


CURVE = "rate_curve: "
POINTS = (
    "; allowed: a list of pairs [time, factor] such as [[0s, 1], [10m, 4]], "
    "or a mapping with diurnal, spike or ramp_down"
)
SEEN = (
    "; allowed: a list of whole numbers from 1 to 10000000, or of pairs [tokens, weight], "
    "at most 10000"
)
SHAPED = "; allowed: rate and cv, or shape and scale"
EMPIRICAL = "prompt_tokens={distribution: empirical, "
FAULTS = {
    # arrivals
    "arrivals={process: gamma}": "arrivals.rate: missing" + SHAPED,
    "arrivals={process: gamma, shape: 1}": "arrivals.scale: missing, but shape is given" + SHAPED,
    "arrivals={process: weibull, rate: 1, cv: 2, shape: 1}": "arrivals.shape: rate and cv and "
    "shape are given" + SHAPED,
    "arrivals={process: weibull, shape: 0.2, scale: 30d}": "arrivals: shape and scale come to "
    "3.22e-09 requests per second; allowed: 0.01/d to 1000000/s",
    "arrivals={process: closed, users: 0, think: 1s}": "arrivals.users: 0 is too small; allowed: "
    "a whole number from 1 to 1000000",
    "arrivals={process: closed, users: 2}": "arrivals.think: missing",
    "arrivals={process: closed, users: 2, think: soon}": "arrivals.think: 'soon' is not "
    "a duration; allowed: a duration from 0s to 24h, such as 250ms, or a mapping with a "
    "'distribution'",
    "arrivals={process: closed, users: 2, think: {distribution: uniform, min: 5s, max: 1s}}": (
        "arrivals.think.min: 5 s is more than max, which is 1 s"
    ),
    "arrivals={process: closed, users: 2, think: {distribution: exponential, mean: 5s, max: 1s}}": (
        "arrivals.think.mean: 5 s is not between min and max"
    ),
    "arrivals={process: closed, users: 1, think: 24h}\ncount=1e9": "count: 1000000000 requests at "
    "this rate take 1000000000 d; allowed: up to 3660 d, or a duration that ends the run",
    # curves
    "rate_curve=fast": CURVE + "'fast' is not a curve" + POINTS,
    "rate_curve=[]": CURVE + "the curve has no points" + POINTS,
    "rate_curve=[1, 2]": CURVE + "point 1 is 1" + POINTS,
    "rate_curve=[[0s, 1], [x, 2]]": CURVE + "the time of point 2, 'x', is not a duration" + POINTS,
    "rate_curve=[[-1s, 1]]": CURVE + "the time of point 1 is '-1s', not from 0s to 366d" + POINTS,
    "rate_curve=[[5s, 1], [4s, 1]]": CURVE + "point 2 is at '4s', before the one that precedes it"
    + POINTS + " (two points of one time are a jump)",
    "rate_curve=[[0s, -1]]": CURVE + "the factor of point 1 is -1, not from 0 to 1000000" + POINTS,
    "rate_curve=[[0s, .nan]]": CURVE + "the factor of point 1 is nan, not from 0 to 1000000"
    + POINTS,
    "rate_curve=[[0s, 0], [1s, 0]]": CURVE + "every factor is 0, so that nothing would ever arrive"
    + POINTS,
    "rate_curve={}": CURVE + "no curve is given; allowed: one of diurnal, spike, ramp_down",
    "rate_curve={spike: {at: 1s, duration: 1s, factor: 2}, ramp_down: {at: 1s, over: 1s}}": CURVE
    + "spike and ramp_down are given; allowed: one of diurnal, spike, ramp_down",
    "rate_curve={spkie: {}}": "rate_curve.spkie: unknown key (did you mean 'spike'?)",
    "rate_curve={spike: {at: 1s, factor: 2}}": "rate_curve.spike.duration: missing; allowed: "
    "a duration above 0s, up to 366d, such as 250ms",
    "arrivals={process: closed, users: 2, think: 1s}\nrate_curve=[[0s, 1]]": CURVE + "users in a "
    "closed loop have no rate that it could change (leave it out, or use an open process)",
    "rate_curve={ramp_down: {at: 1s, over: 1s}}": "count: the rate falls to 0 after about 60 "
    "requests, so 100 never arrive (leave it out: traffic ends by itself)",
    # lengths
    EMPIRICAL + "path: x, values: [1]}": "prompt_tokens.path: both path and values; "
    "allowed: either path or values",
    "prompt_tokens={distribution: empirical}": "prompt_tokens.path: missing, and so are values; "
    "allowed: either path or values",
    EMPIRICAL + "values: []}": "prompt_tokens.values: the list is empty" + SEEN,
    EMPIRICAL + "values: [0]}": "prompt_tokens.values: item 1 has 0 tokens" + SEEN,
    EMPIRICAL + "values: [5, 1.5]}": "prompt_tokens.values: item 2 is 1.5" + SEEN,
    EMPIRICAL + "values: [[5, -1]]}": "prompt_tokens.values: the weight of item 1 is -1" + SEEN
    + " (0 or more)",
    EMPIRICAL + "values: [[5, 0]]}": "prompt_tokens.values: every weight is 0" + SEEN,
    "prompt_tokens={distribution: pareto-lognormal, mean: 9, cv: 1, max: 99, "
    "tail: {share: 0.5, start: 99, alpha: 2}}": "prompt_tokens.tail.start: 99 is not below max, "
    "so that all of the tail would be max; allowed: below 99",
    "media={tokens: {distribution: uniform, min: 9, max: 3}}": "media.tokens.min: 9 is more than "
    "max, which is 3",
    "reasoning={tokens: 5, share: 0}": "reasoning.share: 0 is too small; allowed: a share "
    "above 0%, up to 100%, such as 95%",
    # sessions
    "session={turns: 10001, think: 1s}": "session.turns: 10001 are too many; allowed: up to 10000",
    "session={turns: {distribution: uniform, min: 1, max: 10001}, think: 1s}": "session.turns.max: "
    "10001 is too large; allowed: up to 10000",
    "session={turns: {distribution: exponential, mean: 2, max: 10001}, think: 1s}": (
        "session.turns.max: 10001 is too large; allowed: up to 10000"
    ),
    "session={turns: 2, think: 1s, context: keep}": "session.context: 'keep' is not known here; "
    "allowed: accumulate, fresh",
    # populations
    "population={members: 4, prefixes: per-member}": "population.prefixes: 'per-member', but the "
    "source has no prefix (prefix: {tokens: 600} would give each member 600 tokens)",
}  # fmt: skip

NOTES = {
    "population={members: 4}": "population: its members have nothing of their own, so that it "
    "changes nothing (set tenants or prefixes to per-member, or leave it out)",
    "population={members: 4, prefixes: per-member}\nprefix={tokens: 5, groups: 1}": "prefix"
    ".groups: every member of the population has a prefix of its own, so there are no "
    "groups (leave it out)",
}


@pytest.mark.parametrize("sets", NOTES)
def test_what_changes_nothing_is_noted(sets: str) -> None:
    (note,) = load_text(SMALL, sets=[f"workload.0.{one}" for one in sets.split("\n")]).notes
    assert note.partition(": workload[0].")[2] == NOTES[sets]


@pytest.mark.parametrize("sets", FAULTS)
def test_faults(sets: str) -> None:
    assert sentence(*sets.split("\n")) == FAULTS[sets]


TRACE_FAULTS = {
    "{trace: {path: x}, slo: vip}": "slo: 'vip' is not a class of service; allowed: critical, "
    "standard, batch, sheddable, background",
    "{trace: {path: x}, prompt_tokens: 5}": "prompt_tokens: unknown key; "
    "allowed: trace, name, model, tenant, slo, default_slo, count, timeout",
    "{trace: {path: x, format: asure}}": "trace.format: 'asure' is not known here; allowed: azure, "
    "burstgpt, mooncake, blis, servegen, inference-perf, windtunnel, csv, jsonl, parquet "
    "(did you mean 'azure'?)",
    "{trace: x.csv}": "trace: 'x.csv' is not a mapping; "
    "allowed: a mapping with the keys path, format, speedup, rate, start, sort, sessions, think, "
    "models, skip_bad",
    "{trace: {path: x, sessions: closed, think: {distribution: uniform, min: 5s, max: 1s}}}": (
        "trace.think.min: 5 s is more than max, which is 1 s"
    ),
    "{trace: {path: x, speedup: 0}}": "trace.speedup: 0 is too small; "
    "allowed: a number from 1e-06 to 1000000",
}


@pytest.mark.parametrize("entry", TRACE_FAULTS)
def test_trace_faults(entry: str) -> None:
    with pytest.raises(InputError) as caught:
        load_text(SMALL, sets=[f"workload.0={entry}"])
    assert str(caught.value).partition(": workload[0].")[2] == TRACE_FAULTS[entry]


def test_a_trace_is_called_as_its_file() -> None:
    two = SMALL.replace("serving:", "  - trace: {path: a/chat.csv.gz}\nserving:", 1)
    with pytest.raises(InputError, match=r"workload\[1\].name: 'chat' is already .*give it a name"):
        load_text(two)
    assert load_text(two, sets=["workload.1.name=other"])


def test_files_are_looked_at_when_a_scenario_is_loaded(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        SMALL.replace("512", "{distribution: empirical, path: nowhere.csv}").replace(
            "serving:", "  - trace: {path: odd.csv}\nserving:", 1
        )
    )
    (tmp_path / "odd.csv").write_text("a,b\n")
    with pytest.raises(InputError) as caught:
        load(scenario)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{scenario}:6: workload[0].prompt_tokens.path: {tmp_path}/nowhere.csv")
    assert "there is no such file" in first
    assert second.startswith(
        f"{scenario}:8: workload[1].trace.path: {tmp_path}/odd.csv:1: no known"
    )


def test_a_run_of_everything_keeps_every_invariant(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("tokens,weight\n5,1\n9,3\n")
    (tmp_path / "t.csv").write_text(
        "arrived,prompt_tokens,output_tokens,slo,tenant\n0.5,40,4,batch,b\n0.7,30,3,,\n"
    )
    scenario = tmp_path / "s.yaml"
    scenario.write_text(EVERYTHING)
    found = simulate(load(scenario), check=True)
    assert found["requests"]["arrived"] > 300
    assert found["sources"].keys() == {"talk", "loop", "t"}
    assert found["sources"]["t"]["requests"] == 2
    assert found["slo"]["batch"]["requests"] == 1
    assert {"acme-0", "acme-1", "b", "default"} <= found["tenants"].keys()
    ended = found["sessions"]["ended"]
    assert sum(ended.values()) == found["sessions"]["count"] > 20
