"""KEDA's `cron` triggers and `scalingModifiers`: what they ask for, and what is refused."""

import math
from collections.abc import Container
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.scaling.manifests.texts import faults
from windtunnel.core.errors import InputError
from windtunnel.scaling.policies.keda.cron import CronSchedule, CronTimes, begin_of, zone_of
from windtunnel.scaling.policies.keda.formula import Formula
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

OBJECT = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llm}
spec:
  scaleTargetRef: {name: llm}
  minReplicaCount: 0
  cooldownPeriod: 60
"""
CRON = f"""{OBJECT}
  triggers:
  - type: cron
    metadata:
      timezone: Asia/Kolkata
      start: 30 13 * * *
      end: 40 13 * * *
      desiredReplicas: "3"
"""
FORMULA = f"""{OBJECT}
  advanced:
    scalingModifiers:
      formula: "max(queue, kv * 100) / 2"
      target: "5"
      activationTarget: "1"
  triggers:
  - type: prometheus
    name: queue
    metadata: {{serverAddress: "http://prometheus", query: "sum(vllm:num_requests_waiting)",
      threshold: "1"}}
  - type: prometheus
    name: kv
    metadata: {{query: "avg(vllm:kv_cache_usage_perc)", threshold: "1"}}
"""
SCENARIO = """
name: manifests
duration: 40m
workload:
  - {name: chat, arrivals: {process: constant, rate: 1/s}, prompt_tokens: 10, output_tokens: 10}
serving:
  pools:
    - {name: llm, replicas: 1, engine: {kv_blocks: 1000},
       step_time: {model: linear, fixed: 1ms, per_prefill_token: 1us, per_decode: 1us}}
scaling:
  policy: keda
  interval: 15s
  cooldown: 60s
  begins: "2026-11-16T07:50"
  down: {window: 0s}
  metrics: []
  schedules:
    - {start: 30 13 * * *, end: 40 13 * * *, timezone: Asia/Kolkata, replicas: 3}
  pools: {llm: {min: 1, max: 5}}
"""


def test_a_schedule_sets_the_fewest_replicas_between_its_times() -> None:
    """The run begins at 13:20 in Kolkata: ten minutes with one replica, ten with three."""
    result = run(load_text(SCENARIO)).result
    assert result["scaling"] is not None
    sizes = result["scaling"]["pools"]["llm"]["sizes"]
    wanted = {time_s: sum(counts) for time_s, *counts in sizes}
    changed = [time_s for time_s in wanted if time_s > 0.0]
    assert min(changed) == pytest.approx(600.0, abs=16.0)
    assert max(changed) == pytest.approx(1200.0, abs=16.0)


def most_replicas(metric: str) -> int:
    """Of a run with 2 requests a second, by a metric that is held against a target of 0.5."""
    by_clock = SCENARIO[SCENARIO.index("  metrics:") : SCENARIO.index("  pools: {llm")]
    text = SCENARIO.replace(by_clock, f"  metrics: [{{{metric}, target: 0.5, type: total}}]\n")
    text = text.replace("rate: 1/s", "rate: 2/s").replace("duration: 40m", "duration: 4m")
    result = run(load_text(text)).result
    assert result["scaling"] is not None
    sizes: list[list[float]] = result["scaling"]["pools"]["llm"]["sizes"]
    return round(max(max(counts) for _, *counts in sizes))


def test_a_metric_that_is_compared_is_one_or_nothing() -> None:
    """At 2/s and a target of 0.5 there are four; by 1 there are two, and by 0 one stays."""
    assert most_replicas("name: rate") == 4
    assert most_replicas("name: rate, above: 0.2") == 2
    assert most_replicas("name: rate, above: 3") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(a + b) / 2", 3.0),
        ("a > 2 ? a + b : 1", 6.0),
        ("count([a, b], {# > 1}) > 1 ? 5 : 0", 5.0),
        ("a < 2 ? a + b >= 2 ? 5 : 10 : 0", 0.0),
        ("a ?? b ?? 8", 4.0),
        ("max(a, b / 1000) - -a ** 2", 20.0),
        ("!(a > 1) || b == 2 ? floor(2.5) : ceil(2.5)", 2.0),
        ("a < 4 && floor(sum([])) > 2 ? 10 : 1", 1.0),
        ("a > 0 || min() > 2 ? 10 : 1", 10.0),
        ("a / (b - 2) > 2 ? 10 : 1", 10.0),
        ("min(a, ceil(a / (b - 2)))", 4.0),
        ("-a / (b - 2) < 0 ? 10 : 1", 10.0),
        ("a ** 9999 > 2 ? 10 : 1", 10.0),
        ("count([a, b], {count([1, #], {# > 3}) > 0})", 1.0),
    ],
)
def test_formulas_are_computed(text: str, value: float) -> None:
    assert Formula(text).value({"a": 4.0, "b": 2.0}) == value


def test_what_has_no_value_is_not_a_number() -> None:
    for text in ("a / (b - 2)", "(b - 2) / (b - 2)", "min()", "(0 - a) ** 0.5"):
        assert math.isnan(Formula(text).value({"a": 4.0, "b": 2.0}))


@pytest.mark.parametrize(
    "text", ["#", "a > # ? 1 : 2", "count([a], {# > 1}) + #", "count([#], {a > 1})"]
)
def test_an_item_belongs_into_a_condition(text: str) -> None:
    with pytest.raises(InputError, match="'#' is an item of a list"):
        Formula(text)


@pytest.mark.parametrize("text", ["a+" * 5000 + "1", "a" * 9999 + "$"])
def test_a_long_formula_is_not_repeated(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Formula(text)
    assert len(str(caught.value)) < 600


@example("#")
@given(st.text("ab12()[]{}#,?:+-*/^<>=!&| ", max_size=60))
def test_any_text_is_a_formula_or_a_sentence(text: str) -> None:
    with suppress(InputError):
        found = Formula(text)
        assert isinstance(found.value(dict.fromkeys(found.names, 2.0)), float)


@pytest.mark.parametrize(
    ("start", "end", "on_hours"),
    [
        ("0 6 * * *", "0 20 * * *", 14),
        ("0 20 * * *", "0 6 * * *", 10),
        ("@hourly", "30 * * * *", 24),
        ("0 */6 * * mon", "30 1-23/6 * * 1", 8),
    ],
)
def test_a_schedule_is_on_between_its_times(start: str, end: str, on_hours: int) -> None:
    """Hours of a Monday, each looked at 10 minutes after its start."""
    schedule = CronSchedule(start, end, "UTC", begin_of("2026-11-16T00:00"))
    assert sum(schedule.is_on(3600.0 * hour + 600.0) for hour in range(24)) == on_hours


@given(
    st.integers(0, 48 * 60), st.sampled_from(["2026-10-24T12:00", "2026-03-28T12:00"]),
    st.sampled_from([("45 2 * * *", {2}, {45}), ("*/20 * * * *", range(24), {0, 20, 40}),
                     ("0 1-3 * * *", {1, 2, 3}, {0})]),
)  # fmt: skip
@example(13 * 60 + 30, "2026-10-24T12:00", ("45 2 * * *", {2}, {45}))
def test_the_next_time_is_the_next_minute_that_the_wall_clock_shows(
    minutes: int, begins: str, cron: tuple[str, Container[int], Container[int]]
) -> None:
    """Also in the nights in which clocks change."""
    text, hours, of_hour = cron
    zone, at = zone_of("Europe/Berlin"), begin_of(begins) + timedelta(minutes=minutes)
    ahead = (at + timedelta(minutes=number) for number in range(1, 3 * 24 * 60))
    shown = ((one, one.astimezone(zone)) for one in ahead)
    expected = next(at for at, wall in shown if wall.hour in hours and wall.minute in of_hour)
    assert CronTimes(text, zone).next_after(at) == expected


@pytest.mark.parametrize(
    ("text", "before", "after", "said"),
    [
        (CRON, "Asia/Kolkata", "Mars/Olympus", "metadata.timezone: 'Mars/Olympus' is not a time"),
        (CRON, "30 13 * * *", "30 25 * * *", "metadata.start: '30 25 * * *' is not a cron"),
        (CRON, "30 13 * * *", "0 0 31 2 *", "metadata.start: '0 0 31 2 *' is a day that never"),
        (CRON, "40 13 * * *", "30 13 * * *", "metadata.end: it ends when it starts"),
        (CRON, '"3"', '"0"', "metadata.desiredReplicas: '0' is not a number of replicas"),
        (CRON, '      desiredReplicas: "3"\n', "", "metadata.desiredReplicas: missing"),
        (FORMULA, "kv * 100", "gpu * 100", "the formula has the name 'gpu'"),
        (FORMULA, "max(queue", "max((queue", "cannot be read"),
        (FORMULA, '      target: "5"\n', "", "scalingModifiers.target: missing"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(text: str, before: str, after: str, said: str) -> None:
    assert before in text
    assert not faults(text)
    assert said in " ".join(faults(text.replace(before, after)))
