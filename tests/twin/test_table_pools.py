"""A scenario whose step times come from measurements in a file beside it."""

import json
from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load

SCENARIO = """
name: measured
model: llama-3.1-8b
workload:
  - name: chat
    count: 5
    arrivals: {process: constant, rate: 1/s}
    prompt_tokens: {distribution: constant, value: 64}
    output_tokens: {distribution: constant, value: 11}
serving:
  pools:
    - name: main
      accelerator: h200
      tensor_parallel: %d
      step_time: {model: table, path: steps.jsonl, per_step: 1ms}
"""


def scenario(folder: Path, tensor_parallel: int) -> Path:
    """Prompts of any size take 19 ms, decodes 9 ms, and every step 1 ms more."""
    with (folder / "steps.jsonl").open("w") as file:
        for prefill, decodes in ((64, 0), (512, 0), (0, 1), (0, 8)):
            for size in (0, 4096):
                step: dict[str, object] = {"shape": "llama-3.1-8b", "prefill": prefill}
                step |= {"prior": size if prefill else 0, "decodes": decodes, "context": size}
                file.write(json.dumps({**step, "ms": 19.0 if prefill else 9.0}) + "\n")
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO % tensor_parallel)
    return path


def test_steps_take_as_long_as_was_measured(tmp_path: Path) -> None:
    simulation = compose(load(scenario(tmp_path, 1)))
    simulation.run(breathe)
    (server,) = simulation.servers
    assert server.busy_s == pytest.approx(5 * (0.020 + 10 * 0.010))


def test_measurements_of_one_gpu_are_not_taken_for_two(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tensor_parallel is 2; allowed: 1 with step_time table"):
        compose(load(scenario(tmp_path, 2)))
