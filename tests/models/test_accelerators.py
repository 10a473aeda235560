"""The accelerator catalog is consistent with itself, and names resolve or explain."""

import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, Accelerator, resolve_accelerator
from windtunnel.models.step_time.roofline import all_reduce_s


@pytest.mark.parametrize("accelerator", ACCELERATORS.values(), ids=lambda a: a.name)
def test_narrower_numbers_are_never_slower(accelerator: Accelerator) -> None:
    rates = [accelerator.peak_flops(p) for p in ("fp32", "tf32", "bf16")]
    assert rates == sorted(rates)
    assert accelerator.peak_flops("fp16") == accelerator.peak_flops("bf16")
    for narrow in ("fp8", "int8", "fp4"):
        assert accelerator.peak_flops(narrow) >= accelerator.peak_flops("bf16")


@pytest.mark.parametrize("accelerator", ACCELERATORS.values(), ids=lambda a: a.name)
def test_figures_have_plausible_sizes(accelerator: Accelerator) -> None:
    assert 16e9 < accelerator.memory_bytes < 400e9
    assert 0.2e12 < accelerator.hbm_bytes_per_s < 10e12
    assert 50 < accelerator.bf16_flops / accelerator.hbm_bytes_per_s < 600 or (
        accelerator.name.startswith("h20-") or accelerator.name == "h20"
    )
    assert accelerator.source
    assert accelerator.link_bytes_per_s < accelerator.hbm_bytes_per_s
    assert accelerator.price_per_hour is None or 0.0 < accelerator.price_per_hour < 20.0


@pytest.mark.parametrize(
    ("name", "gib"),
    [("h100", 79.19), ("b200", 178.35), ("rtx-5090", 31.4), ("mi300x", 192), ("mi355x", 287.98)],
)
def test_memory_is_what_servers_see(name: str, gib: float) -> None:
    """As vLLM or PyTorch printed it: 80 GB of NVIDIA's are fewer GiB, 288 GB of AMD's are not."""
    assert resolve_accelerator(name).memory_bytes == gib * 2.0**30


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "h100-sxm"),
        ("H100", "h100-sxm"),
        ("NVIDIA H200", "h200"),
        ("a100", "a100-80"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("Google TPU v7x", "tpu7x"),
        ("trn2", "trainium2"),
    ],
)
def test_names_are_forgiving(text: str, name: str) -> None:
    assert resolve_accelerator(text).name == name


def test_an_unknown_accelerator_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'h201' is not in the catalog.*did you mean .*'h200'"):
        resolve_accelerator("h201")
    with pytest.raises(InputError, match=r"did you mean 'h100-sxm'\?"):  # of `allowed`, no alias
        resolve_accelerator("h1000")
    with pytest.raises(InputError, match="allowed: a100-40"):
        resolve_accelerator("")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="'fp5' is not known"):
        resolve_accelerator("h100").peak_flops("fp5")


def test_an_all_reduce_costs_nothing_alone_and_more_with_bytes() -> None:
    h100, l40s = resolve_accelerator("h100"), resolve_accelerator("l40s")
    assert all_reduce_s(1e6, 1, h100) == 0.0
    assert 0.0 < all_reduce_s(0.0, 8, h100) < all_reduce_s(1e8, 8, h100)
    # Each of two GPUs sends the message once in all: half to reduce, half to share.
    assert all_reduce_s(45e9, 2, h100) == pytest.approx(0.1, rel=1e-3)
    assert all_reduce_s(1e6, 4, l40s) > all_reduce_s(1e6, 4, h100)
