"""What may be said about speculative decoding, and what it makes of a server."""

from dataclasses import dataclass

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.models.step_time.model import StepWork
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import (
    assumptions_of,
    hardware_faults,
    limits_of,
    shape_of,
    step_time_of,
)

ENGINE = "serving.pools.0.engine"


def plan(speculative: str, *sets: str) -> ScenarioPlan:
    return load_text(SMALL, sets=[f"{ENGINE}.speculative={speculative}", *sets])


@pytest.mark.parametrize(
    ("speculative", "sets", "said"),
    [
        ("{method: ngram, num_speculative_tokens: 2}", (), "no rates are published for ngram"),
        ("{method: mtp, num_speculative_tokens: 8}", (), "mtp has published rates for 7"),
        ("{method: mtp, num_speculative_tokens: 2, acceptance: [1]}", (), "1 rates for 2 tokens"),
        (
            "{method: mtp, num_speculative_tokens: 2, acceptance: [0.1, 0.2]}",
            (),
            "a rate is above the one before it",
        ),
        ("{method: eagle3, num_speculative_tokens: 1, model: qwen3-0.6b}", (), "no model of its"),
        (
            "{method: eagle3, num_speculative_tokens: 1}",
            (f"{ENGINE}.preemption=restart", f"{ENGINE}.async_scheduling=false"),
            "an option for BLIS, which does not draft",
        ),
        (
            "{method: ngram, num_speculative_tokens: 1, acceptance: [0.5]}",
            (f"{ENGINE}.async_scheduling=true",),
            "the host makes n-gram drafts",
        ),
    ],
)
def test_what_is_refused(speculative: str, sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(speculative, *sets)


def test_the_host_cannot_draft_ahead() -> None:
    drafts = "{method: ngram, num_speculative_tokens: 1, acceptance: [0.5]}"
    assert not plan(drafts).pools[0].engine.async_scheduling
    assert plan("{method: mtp, num_speculative_tokens: 1}").pools[0].engine.async_scheduling


@dataclass
class Served:
    """Blocks, and the time of a step for 8 requests that verify so many drafts each."""

    blocks: int
    step_s: float


def served(model: str, speculative: str, drafts: int) -> Served:
    sets = ["serving.pools.0.accelerator=h100", "serving.pools.0.tensor_parallel=8"]
    sets += [f"model={model}", f"{ENGINE}.kv_blocks=auto"]
    pool = plan(speculative, *sets, "serving.pools.0.step_time={model: physics}").pools[0]
    shape = shape_of(pool)
    work = StepWork([], 8, 8 * 1000, 8 * (1 + drafts), 8 * drafts)
    return Served(int(limits_of(pool, shape).usable_blocks), step_time_of(pool, shape).step_s(work))


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3.1-nvfp4"])
def test_drafts_cost_time_and_memory(model: str) -> None:
    plain = served(model, "null", 0)
    rates = "num_speculative_tokens: 2, acceptance: [0.5, 0.2]"
    ngram = served(model, f"{{method: ngram, {rates}}}", 2)
    eagle = served(model, f"{{method: eagle3, {rates}}}", 2)
    given = served(model, f"{{method: eagle3, {rates}, draft_time: 3ms}}", 2)
    assert plain.blocks == ngram.blocks > eagle.blocks > 0.8 * plain.blocks
    assert plain.step_s < ngram.step_s < eagle.step_s < 2.2 * plain.step_s
    assert given.step_s == pytest.approx(ngram.step_s + 0.003)


def test_layers_for_multi_token_prediction_must_be_there() -> None:
    drafts = "{method: mtp, num_speculative_tokens: 1}"
    sets = ("serving.pools.0.accelerator=h200", "serving.pools.0.step_time={model: physics}")
    known = [*sets, "serving.pools.0.tensor_parallel=8"]
    assert hardware_faults(plan(drafts, "model=deepseek-r1", *known)) == []
    ((_, fault),) = hardware_faults(plan(drafts, "model=llama-3.1-8b", *sets))
    assert "llama-3.1-8b has no layers for multi-token prediction" in str(fault)
    pair = "{method: draft_model, num_speculative_tokens: 1, acceptance: [0.6], model: qwen3-0.6b}"
    assert hardware_faults(plan(pair, "model=qwen3-8b", *sets)) == []
    ((_, fault),) = hardware_faults(plan(pair, "model=llama-3.1-8b", *sets))
    assert "a drafter of the same vocabulary" in str(fault)


def test_trust_says_that_no_step_with_drafts_was_measured() -> None:
    drafts = "{method: ngram, num_speculative_tokens: 1, acceptance: [0.5]}"
    sets = ("model=llama-3.1-8b", "serving.pools.0.accelerator=h100")
    priced = plan(drafts, *sets, "serving.pools.0.step_time={model: physics}")
    (says,) = assumptions_of(priced.pools[0])
    assert "none was measured" in says
    assert assumptions_of(plan(drafts).pools[0]) == []
