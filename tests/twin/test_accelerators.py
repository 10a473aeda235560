"""Accelerators that there are only so many of: pools spill over, or are held back, and say why."""

from typing import Any

from tests.core.sinks import MemorySink
from windtunnel.core.telemetry import Event
from windtunnel.core.vocabulary import RESIZED
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

FLEET = """\
name: short
duration: 5s
workload:
  - name: chat
    arrivals: {process: constant, rate: 40/s}
    prompt_tokens: 40
    output_tokens: 40
serving:
  pools:
    - name: cheap
      accelerator: h100
      tensor_parallel: 4
      price_per_hour: 1
      engine: &engine {kv_blocks: 40, max_num_seqs: 8}
      step_time: &step_time {model: linear, fixed: 20ms, per_decode: 1ms}
    - name: dear
      accelerator: l40s
      price_per_hour: 9
      engine: *engine
      step_time: *step_time
  startup: {load: {mean: 500ms}}
  drain: {policy: wait}
scaling: {policy: saturation, interval: 1s, optimizer: {order: price}}
"""


def resized(*sets: str) -> tuple[dict[str, int], list[Event]]:
    """The largest size of each pool, and the decisions that changed one."""
    sink = MemorySink()
    plan = load_text(FLEET, sets=sets)
    result = run(plan, events=sink, check=True).result
    largest = {
        name: max(wanted for _, wanted, *_ in pool["sizes"])
        for name, pool in result["scaling"]["pools"].items()
    }
    return largest, [event for event in sink.events if event.kind == RESIZED]


def test_without_a_limit_the_cheap_pool_takes_all() -> None:
    largest, decisions = resized()
    assert largest["cheap"] > 4
    assert largest["dear"] == 1
    assert not any("There are" in event.reason for event in decisions)


def test_what_one_kind_has_no_room_for_goes_to_the_next_pool() -> None:
    largest, decisions = resized("scaling.accelerators={h100: 15}")
    assert largest["cheap"] == 3  # four each: three are left over
    assert largest["dear"] > 1
    said = [event.reason for event in decisions if "There are only h100 for" in event.reason]
    assert said[0].endswith("dear takes the rest.")


def test_where_all_kinds_are_used_up_it_is_held_back() -> None:
    largest, decisions = resized("scaling.accelerators={h100: 8, l40s: 3}")
    assert largest == {"cheap": 2, "dear": 3}
    limits: list[Any] = []
    for event in decisions:
        limits.extend(event.data["limits"])
    said = [limit["reason"] for limit in limits if limit["name"] == "accelerators"]
    assert said[0] == (
        "Accelerators are available for 5 replicas, not for 6. "
        "That is 6 -> 5 of all pools together."
    )


def test_the_engine_without_limits_does_not_mind_and_is_told() -> None:
    sets = ["scaling.accelerators={h100: 8}", "scaling.optimizer.engine=unlimited"]
    (said,) = load_text(FLEET, sets=sets).notes
    assert "grows whether accelerators are free or not" in said
