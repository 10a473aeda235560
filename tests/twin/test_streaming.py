"""Requests are made when they arrive and forgotten when they end, however many there are."""

import gc
from pathlib import Path

import pytest

from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.request import Request

SERVING = """\
serving:
  pools:
    - name: main
      engine: {kv_blocks: 200, max_num_seqs: 16}
      step_time: {model: linear, fixed: 5ms}
"""
LENGTHS = """\
    prompt_tokens: 30
    output_tokens: 4
"""
SOURCES = {
    "open": "  - name: s\n    count: {count}\n    arrivals: {{process: poisson, rate: 100/s}}\n"
    + LENGTHS,
    "curve": "  - name: s\n    count: {count}\n    arrivals: {{process: poisson, rate: 100/s}}\n"
    "    rate_curve: {{diurnal: {{ratio: 2, period: 10s}}}}\n" + LENGTHS,
    "closed": "  - name: s\n    count: {count}\n"
    "    arrivals: {{process: closed, users: 9, think: 50ms}}\n" + LENGTHS,
    "sessions": "  - name: s\n    count: {count}\n    arrivals: {{process: poisson, rate: 40/s}}\n"
    "    session: {{turns: 3, think: 100ms}}\n" + LENGTHS,
    "trace": "  - trace: {{path: {folder}/t.csv}}\n    count: {count}\n",
}


def alive() -> int:
    return sum(type(thing) is Request for thing in gc.get_objects())


def most_alive(text: str) -> tuple[int, int]:
    """The most requests that ever were in memory at once, and how many arrived in all."""
    simulation = compose(load_text(text))
    gc.collect()  # what an earlier test left behind must not go while this one counts
    before, most = alive(), 0

    def look(state: Simulation) -> None:
        nonlocal most
        if state.events % 400 == 0:
            most = max(most, alive() - before)

    simulation.run(breathe, look)
    return most, simulation.recorder.arrived


@pytest.mark.parametrize("kind", SOURCES)
def test_memory_does_not_grow_with_the_number_of_requests(tmp_path: Path, kind: str) -> None:
    rows = "".join(f"{number / 100},30,4\n" for number in range(4000))
    (tmp_path / "t.csv").write_text("arrived,prompt_tokens,output_tokens\n" + rows)
    found = {}
    for count in (400, 4000):
        entry = SOURCES[kind].format(count=count, folder=tmp_path)
        found[count] = most_alive(f"name: s\nworkload:\n{entry}{SERVING}")
    assert found[4000][1] == 10 * found[400][1]
    assert 0 < found[4000][0] <= 2 * found[400][0] + 10 < 150
