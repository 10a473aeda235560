"""Defects of other simulators' step times and memory that must not be here, each by its name."""

from typing import Any

import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.roofline import Roofline
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

H100 = resolve_accelerator("h100")

ONE_POOL = """\
model: llama-3.1-8b
workload:
  - name: chat
    count: 50
    arrivals: {{process: constant, rate: 2/s}}
    prompt_tokens: 1000
    output_tokens: 50
serving:
  pools:
    - name: main
      accelerator: {accelerator}
      step_time: {{model: {model}}}
"""

TWO_POOLS = """\
model: llama-3.1-8b
workload:
  - name: chat
    count: 50
    arrivals: {{process: constant, rate: 2/s}}
    prompt_tokens: 1000
    output_tokens: 50
serving:
  pools:
    - {{name: first, role: prefill, accelerator: {prefill}, step_time: {{model: {model}}}}}
    - {{name: second, role: decode, accelerator: {decode}, step_time: {{model: {model}}}}}
"""


def latency(text: str, **parts: str) -> dict[str, Any]:
    found: dict[str, Any] = simulate(load_text(text.format(**parts)))["latency"]
    return found


@pytest.mark.parametrize("model", ["physics", "roofline", "blis-trained-physics"])
def test_a_pool_runs_at_the_speed_of_its_own_accelerator(model: str) -> None:
    """The peer changes the KV blocks of a pool with its hardware, and not its speed."""
    fast = latency(ONE_POOL, accelerator="h100", model=model)
    slow = latency(ONE_POOL, accelerator="l40s", model=model)
    assert slow["tpot"]["mean"] > 2.5 * fast["tpot"]["mean"]
    assert slow["ttft"]["mean"] > 1.5 * fast["ttft"]["mean"]


@pytest.mark.parametrize("model", ["physics", "blis-trained-physics"])
def test_accelerators_of_prefill_and_decode_differ_in_speed(model: str) -> None:
    """Slow decoding makes gaps longer, slow prefill the first token later, each the other not."""
    both = latency(TWO_POOLS, prefill="h100", decode="h100", model=model)
    decode = latency(TWO_POOLS, prefill="h100", decode="l40s", model=model)
    prefill = latency(TWO_POOLS, prefill="l40s", decode="h100", model=model)
    assert decode["tpot"]["mean"] > 2.5 * both["tpot"]["mean"]
    assert prefill["tpot"]["mean"] == pytest.approx(both["tpot"]["mean"], rel=0.01)
    assert prefill["ttft"]["mean"] > both["ttft"]["mean"]


def test_kv_memory_is_that_of_the_pools_accelerator() -> None:
    pools = simulate(load_text(TWO_POOLS.format(prefill="h100", decode="l40s", model="physics")))[
        "pools"
    ]
    assert pools["first"]["kv_blocks"] > 2 * pools["second"]["kv_blocks"]


def test_latent_attention_reads_its_compressed_cache() -> None:
    """The peer reads keys and values of every head, twenty times what is stored."""
    shape = MODELS["deepseek-v3"]
    model = Roofline(shape, H100, tensor_parallel=8)
    near, far = (model.step_s(StepWork([], 1, context, 1)) for context in (1, 100_000))
    stored = 100_000 * shape.kv_bytes_per_token / H100.hbm_bytes_per_s
    assert far - near == pytest.approx(stored, rel=0.05)


def test_leading_dense_layers_are_dense_in_speed_and_in_memory() -> None:
    """The peer knows of them when it counts memory, and forgets them when it counts time."""
    shape = MODELS["deepseek-v3"]
    assert (shape.moe_layers, shape.dense_layers) == (58, 3)


def test_a_model_with_no_known_size_is_not_given_a_million_blocks() -> None:
    """The peer falls back to 1,000,000 blocks; here there is a number or a sentence."""
    text = ONE_POOL.format(accelerator="h100", model="physics").replace("model: llama-3.1-8b\n", "")
    with pytest.raises(InputError, match="model: missing"):
        load_text(text)
