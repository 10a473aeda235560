"""What may be said about LoRA adapters, what it comes to, and what is said of the rest."""

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.engine.settings import LoraSettings
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import hardware_faults, limits_of, shape_of
from windtunnel.workload.settings.sources import SourceSettings

ENGINE = "serving.pools.0.engine"


def plan(adapters: str, lora: str, *sets: str) -> ScenarioPlan:
    given = [f"workload.0.adapters={adapters}", f"{ENGINE}.lora={lora}", *sets]
    return load_text(SMALL, sets=given)


def adapters(text: str) -> tuple[tuple[str, float], ...]:
    source = plan(text, "{}").workload[0]
    assert isinstance(source, SourceSettings)
    return source.adapter_weights


def sentence(*given: str) -> str:
    with pytest.raises(InputError) as caught:
        plan(*given)
    return str(caught.value)


def test_adapters_have_names_and_weights() -> None:
    assert adapters("{weights: {sql: 3, legal: 1}}") == (("sql", 3.0), ("legal", 1.0))
    assert adapters("{count: 2}") == (("adapter-0", 1.0), ("adapter-1", 1.0))
    skewed = dict(adapters("{count: 3, skew: 1}"))
    assert list(skewed) == ["adapter-0", "adapter-1", "adapter-2"]
    assert list(skewed.values()) == pytest.approx([1, 1 / 2, 1 / 3])


def test_slots_have_defaults() -> None:
    default = LoraSettings(slots=1, load_s=0.005, step_cost=0.03, memory_bytes=0.0)
    assert plan("{count: 2}", "{}").pools[0].engine.lora == default
    assert plan("{count: 2}", "{slots: 4, load: 2ms, step_cost: 0}").pools[0].engine.lora == (
        LoraSettings(slots=4, load_s=0.002, step_cost=0.0)
    )
    assert load_text(SMALL).pools[0].engine.lora is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("{}", "{}"), "workload[0].adapters: there is neither weights nor count"),
        (("{count: 2, weights: {a: 1}}", "{}"), "both weights and count are given"),
        (("{weights: {}}", "{}"), "workload[0].adapters.weights: there is no adapter"),
        (("{weights: {a: 0}}", "{}"), "0 is too small"),
        (("{count: 2}", "null"), "engine.lora: missing, but workload[0].adapters asks"),
        (("{count: 2}", "{slots: 0}"), "0 is too small"),
        (("{count: 2}", "{memory: 1GiB}"), "engine.lora.memory: 1 GiB, but kv_blocks is 1000"),
    ],
)
def test_nonsense_is_answered_with_a_sentence(given: tuple[str, ...], said: str) -> None:
    assert said in sentence(*given)


def test_slots_take_memory_from_the_blocks() -> None:
    hardware = [
        "model=llama-3.1-8b",
        "serving.pools.0.accelerator=h100",
        f"{ENGINE}.kv_blocks=auto",
    ]
    blocks = []
    for lora in ("{slots: 8}", "{slots: 8, memory: 256MiB}"):
        found = plan("{count: 9}", lora, *hardware)
        blocks.append(limits_of(found.pools[0], shape_of(found.pools[0])).kv_blocks)
    per_block = 16 * 128 * 1024  # 32 layers of keys and values, 8 heads of 128, two bytes each
    assert blocks[0] - blocks[1] == 8 * 256 * 1024**2 // per_block


def test_a_model_that_adapters_leave_no_room_for_says_so() -> None:
    hardware = ["model=llama-3.1-8b", "serving.pools.0.accelerator=l4", f"{ENGINE}.kv_blocks=auto"]
    found = plan("{count: 9}", "{slots: 8, memory: 1GiB}", *hardware)
    ((_, fault),) = hardware_faults(found)
    assert "adapters 8.0, the rest KV" in str(fault)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("{weights: {a: 1}, skew: 1}", "{}"), "weights say how often each is asked for"),
        (("null", "{slots: 2}"), "no source asks for adapters"),
    ],
)
def test_what_changes_nothing_is_noted(given: tuple[str, str], said: str) -> None:
    (note,) = plan(*given).notes
    assert said in note
