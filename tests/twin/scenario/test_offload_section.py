"""What may stand under `engine.offload`, what it comes to, and what is said of the rest."""

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.engine.limits import TierLimits
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import hardware_faults, limits_of, shape_of

ENGINE = "serving.pools.0.engine"
SIZE = f"{ENGINE}.kv_bytes_per_token=128KiB"


def plan(offload: str, *sets: str) -> ScenarioPlan:
    return load_text(SMALL, sets=[f"{ENGINE}.offload={offload}", *sets])


def sentence(offload: str, *sets: str) -> str:
    with pytest.raises(InputError) as caught:
        plan(offload, *sets)
    return str(caught.value)


def tiers(found: ScenarioPlan) -> list[TierLimits]:
    below = limits_of(found.pools[0], shape_of(found.pools[0])).tiers
    assert below is not None
    return below


def test_tiers_have_a_way_by_default() -> None:
    found = plan("[{tier: cpu, size: 64GiB}, {tier: disk, size: 1TB, bandwidth: 3GB/s}]", SIZE)
    engine = found.pools[0].engine
    assert engine.offload is not None
    ways = [(one.tier, one.size_bytes, one.bytes_per_s, one.delay_s) for one in engine.offload]
    assert ways == [("cpu", 64 * 2.0**30, 25e9, 10e-6), ("disk", 1e12, 3e9, 100e-6)]
    assert engine.kv_bytes_per_token == 128 * 1024.0
    assert load_text(SMALL).pools[0].engine.offload is None


def test_a_tier_holds_whole_blocks() -> None:
    """Sixteen tokens of 128 KiB are 2 MiB; a model says that size itself."""
    by_hand = plan("[{tier: cpu, size: 5MiB, bandwidth: 2GiB/s, latency: 1ms}]", SIZE)
    by_model = plan("[{tier: cpu, size: 5MiB, bandwidth: 2GiB/s}]", "model=llama-3.1-8b")
    for found in (by_hand, by_model):
        (tier,) = tiers(found)
        assert (tier.name, tier.blocks, tier.block_s) == ("cpu", 2, 2 / 2048)
    assert tiers(by_hand)[0].latency_s == 0.001


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("[]", SIZE), "engine.offload"),
        (("[{tier: tape, size: 1GB}]", SIZE), "'tape'"),
        (("[{tier: cpu}]", SIZE), "offload[0].size: missing"),
        (("[{tier: cpu, size: 0B}]", SIZE), "'0B' is too small"),
        (("[{tier: cpu, size: 1GB, bandwidth: 0B/s}]", SIZE), "'0B/s' is too small"),
        (
            ("[{tier: disk, size: 1GB}, {tier: cpu, size: 1GB}]", SIZE),
            "offload[1].tier: 'cpu' comes after 'disk'; allowed: each once, in the order cpu, disk",
        ),
        (("[{tier: cpu, size: 1GB}, {tier: cpu, size: 1GB}]", SIZE), "'cpu' comes twice"),
        (
            ("[{tier: cpu, size: 1GB}]", SIZE, f"{ENGINE}.prefix_caching=false"),
            "prefix_caching is off, so there are no cached blocks to offload",
        ),
        (("[{tier: cpu, size: 1GB}]",), "engine.kv_bytes_per_token: missing, and the scenario"),
    ],
)
def test_nonsense_is_answered_with_a_sentence(given: tuple[str, ...], said: str) -> None:
    assert said in sentence(*given)


def test_a_tier_that_holds_no_block_says_so() -> None:
    ((path, fault),) = hardware_faults(plan("[{tier: cpu, size: 1MiB}]", SIZE))
    assert path == ("serving", "pools", 0)
    assert "the tier cpu has 1 MiB, but a block of KV needs 2 MiB" in str(fault)


def test_the_model_of_the_pool_says_how_large_a_token_is() -> None:
    named = ("workload.0.model=llama-3.1-8b", "serving.pools.0.model=llama-3.1-8b")
    (tier,) = tiers(plan("[{tier: cpu, size: 64GiB}]", *named))
    assert tier.blocks == 64 * 2**30 // (128 * 1024 * 16)


def test_a_size_that_nothing_asks_for_is_noted() -> None:
    (note,) = plan("null", SIZE).notes
    assert "engine.kv_bytes_per_token: this pool does not use it" in note
