"""Profiles: the bundled ones are sound, and a bad file gets a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.kernels import Kernels
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.profile import (
    BUNDLED,
    GENERIC,
    PARAMETERS,
    SCALED_ERROR,
    bundled_profiles,
    load_profile,
    physics_model,
    profile_for,
    read_profile,
    scaled_profile,
)


@pytest.mark.parametrize("name", bundled_profiles())
def test_bundled_profiles_are_sound_and_say_where_they_come_from(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert list(profile.parameters) == list(PARAMETERS)
    assert profile.origin.endswith(".")
    assert profile.calibrated == bool(profile.errors) == bool(profile.measured)
    assert (BUNDLED / f"{name}.json").read_text() == profile.to_json()


def test_measured_accelerators_have_their_own_profile() -> None:
    for name in ("h200", "h100-sxm", "a100-80", "l40s", "b200", "gb200", "rtx-pro-6000"):
        profile = profile_for(resolve_accelerator(name))
        assert profile.calibrated
        assert profile.accelerator == name
    assert profile_for(resolve_accelerator("h200")).name == "h200"  # vLLM's kernels, not PyTorch's


def test_attention_on_the_h200_is_that_of_flash_attention_3() -> None:
    """One layer's calls of vLLM's kernels, in microseconds, of 32 heads over 8 of keys."""
    shape = resolve_model("llama-3.1-8b")
    model = physics_model(shape, resolve_accelerator("h200"))
    for batch, context, measured in ((8, 8191, 83.3), (64, 4095, 270.9), (64, 8191, 490.8)):
        work = StepWork([], batch, batch * context, batch)
        attention_s = model.parts_s(work)["decode attention"] / shape.layers
        assert attention_s * 1e6 == pytest.approx(measured, rel=0.12)
    for tokens, measured in (
        (8192, 912.2),
        (16384, 3310.4),
    ):  # the same on an H100, whose chip it is
        attention_s = model.parts_s(StepWork([(tokens, 0, tokens)], 0, 0, 1))["prefill attention"]
        assert attention_s / shape.layers * 1e6 == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("gpu", ["h100", "h200", "gb200", "b300", "gb300"])
def test_small_kernels_of_latent_attention_are_those_that_are_served(gpu: str) -> None:
    """Tables of vLLM 0.24 have norms of many kernels, 50 to 65 us per layer; only the B200's were
    timed again with the fused ones."""
    served = load_profile("b200").parameters["latent_layer_s"]
    assert served < 15e-6
    assert load_profile(gpu).parameters["latent_layer_s"] <= served


@pytest.mark.parametrize(("release", "measured"), [("", 58.8), ("-vllm-0.19", 86.6)])
def test_experts_of_gpt_oss_start_as_in_the_release(release: str, measured: float) -> None:
    """One token in one layer on an H200, in microseconds: vLLM 0.24's kernels, and 0.19's."""
    shape = resolve_model("gpt-oss-20b")
    h200 = resolve_accelerator("h200")
    model = physics_model(shape, h200, load_profile(f"h200{release}"))
    found = model.parts_s(StepWork([], 1, 1000, 1))["experts of 4-bit weights"] / shape.layers
    assert found * 1e6 == pytest.approx(measured, rel=0.15)


def test_amds_gpus_have_their_own_multiplications_and_nobody_elses_profile_comes_from_them() -> (
    None
):
    """8192 x 8192 weights in fp4 take one token 14.1 us by AITER, 2.4 of 8 TB/s."""
    accelerator = resolve_accelerator("mi355x")
    profile = profile_for(accelerator)
    assert profile.name == "mi355x"
    kernels = Kernels(profile.physics_parameters(), accelerator, "fp4")
    seconds = kernels.gemm_s(1, 8192, 8192, 0.5625, kernels.gemm_rates(0.5625))
    assert seconds * 1e6 == pytest.approx(14.1, rel=0.2)
    for other in ACCELERATORS.values():
        amd = other.name.startswith("mi") and other.name != "mi355x"
        assert (profile_for(other).scaled_from == "mi355x") == amd


def test_messages_of_collectives_are_counted_in_numbers_of_two_bytes() -> None:
    """One all-reduce among eight H200s: 166 us for 16 Mi numbers, 18.1 us for a million."""
    h200 = load_profile("h200")
    kernels = Kernels(h200.physics_parameters(), resolve_accelerator("h200"))
    assert kernels.all_reduce_s(2.0 * (1 << 24), 8) * 1e6 == pytest.approx(166, rel=0.2)
    assert kernels.all_reduce_s(2.0 * (1 << 20), 8) * 1e6 == pytest.approx(18.1, rel=0.1)


@pytest.mark.parametrize(("gpus", "mebi", "us"), [(2, 16, 83), (4, 16, 113), (4, 64, 342)])
def test_large_all_reduces_are_as_fast_as_nccls(gpus: int, mebi: int, us: float) -> None:
    """Among GB200s, which follow the B200's where that is faster (two of them: 71 us)."""
    kernels = Kernels(load_profile("gb200").physics_parameters(), resolve_accelerator("gb200"))
    assert kernels.all_reduce_s(2.0 * mebi * 2**20, gpus) * 1e6 == pytest.approx(us, rel=0.15)


@pytest.mark.parametrize("gpu", ["b200", "gb200", "b300", "gb300"])
def test_four_bits_start_as_they_were_timed_and_not_as_assumed_for_gpus_without(gpu: str) -> None:
    own, assumed = load_profile(gpu).parameters, load_profile("h200").parameters
    assert own["fp4_launch_s"] > assumed["fp4_launch_s"]
    assert own["fp4_expert_launch_s"] < assumed["fp4_expert_launch_s"]
    assert own["fp4_expert_visit_s"] > 5e-8


def test_the_rest_gets_generic_efficiencies_and_is_told_so() -> None:
    for accelerator in ACCELERATORS.values():
        profile = profile_for(accelerator)
        assert profile.accelerator == accelerator.name
    for name in ("tpu7x", "gaudi-3", "trainium2"):
        assert profile_for(resolve_accelerator(name)).name == GENERIC


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("a100-40", "a100-80"), ("h100-pcie", "h100-sxm"), ("l4", "l40s"), ("rtx-4090", "l40s")],
)
def test_hardware_without_tables_is_scaled_from_the_nearest(name: str, nearest: str) -> None:
    here, there = resolve_accelerator(name), profile_for(resolve_accelerator(nearest))
    scaled = profile_for(here)
    assert (scaled.accelerator, scaled.scaled_from) == (name, nearest)
    assert scaled.parameters == there.parameters
    assert not scaled.calibrated
    assert scaled.bounds() is None


@pytest.mark.parametrize(
    ("name", "bf16", "fp4", "attention"),
    [("b300", 0.83, 0.30, 0.69), ("gb300", 0.80, 0.31, 0.69)],
)
def test_newer_gpus_reach_what_was_published_of_their_tables(
    name: str, bf16: float, fp4: float, attention: float
) -> None:
    """Large calls reach these fractions; a fit of all calls is near."""
    found = profile_for(resolve_accelerator(name))
    assert found.calibrated
    assert found.name == name
    assert found.parameters["gemm_efficiency"] == pytest.approx(bf16, rel=0.07)
    assert found.parameters["fp4_efficiency"] == pytest.approx(fp4, rel=0.2)
    assert found.parameters["attention_efficiency"] == pytest.approx(attention, rel=0.1)


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "b300"])
def test_the_kernels_of_sglang_have_profiles_that_are_chosen_by_name(name: str) -> None:
    """No accelerator has them by default. SGLang's tables have other kernels for recurrent layers,
    which take longer for long prompts."""
    own, other = load_profile(name), load_profile(f"{name}-sglang")
    assert profile_for(resolve_accelerator(name)).name == name
    assert other.accelerator == own.accelerator
    shape, work = resolve_model("Qwen/Qwen3.5-27B"), StepWork([(8192, 0, 8192)], 0, 0, 1)
    here, there = (
        physics_model(shape, resolve_accelerator(name), one).parts_s(work) for one in (own, other)
    )
    assert there["recurrent prefill"] > 1.5 * here["recurrent prefill"]
    assert there["prefill attention"] == pytest.approx(here["prefill attention"], rel=0.15)


def test_experts_of_wider_tokens_start_later() -> None:
    """B200, one token, fp8: 19 to 20 us for 2,048 numbers, 33 to 39 for 5,120, of 128 x 1 wide."""
    kernels = Kernels(load_profile("b200").physics_parameters(), resolve_accelerator("b200"), "fp8")
    narrow, wide = (
        kernels.experts_s(
            8.0,
            8.0,
            ffn=256,
            hidden=hidden,
            matrices=3,
            weight_bytes=1.0,
            rates=kernels.expert_rates(1.0),
        )
        for hidden in (2048, 4096)
    )
    assert narrow == pytest.approx(19.6e-6, rel=0.15)
    assert wide == pytest.approx(28.2e-6, rel=0.15)


def test_the_error_of_scaling_is_what_leaving_one_chip_out_gives() -> None:
    """On an H100 as on an A100, and so on: the bundled figure is no wish."""
    errors = []
    chips = {"h200": "h100", "gb200": "b200", "b300": "b200", "gb300": "b200"}
    names = ("a100", "h100", "h200", "l40s", "rtx-pro-6000", "b200", "gb200", "b300", "gb300")
    measured = [load_profile(name) for name in names]
    for own in measured:
        accelerator = resolve_accelerator(own.accelerator)
        chip = chips.get(own.name, own.name)
        others = [one for one in measured if chips.get(one.name, one.name) != chip]
        scaled = scaled_profile(accelerator, others)
        for shape in ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-4b"):
            for work in (StepWork([], 16, 16000, 16), StepWork([(2048, 0, 2048)], 0, 0, 1)):
                mine, theirs = (
                    physics_model(resolve_model(shape), accelerator, one).step_s(work)
                    for one in (own, scaled)
                )
                errors.append(abs(theirs / mine - 1.0))
    assert sum(errors) / len(errors) == pytest.approx(SCALED_ERROR.mape, rel=0.5)


def test_steps_on_the_h200_keep_their_accuracy() -> None:
    for error in load_profile("h200-pytorch").errors["shapes"].values():
        assert error.mape <= 0.05
        assert error.p90 <= 0.12


def test_the_h200_says_how_far_it_is_off_on_models_that_it_was_not_fitted_to() -> None:
    errors = load_profile("h200-pytorch").errors
    assert len(errors["unseen shapes"]) >= 8
    assert not set(errors["unseen shapes"]) & set(errors["shapes"])
    for error in errors["unseen shapes"].values():
        assert error.mape <= 0.08


def test_models_know_how_far_their_profile_was_measured() -> None:
    shape = resolve_model("llama-3.1-8b")
    bounds = physics_model(shape, resolve_accelerator("h200")).measured()
    assert bounds is not None
    assert (bounds.tokens, bounds.decodes, bounds.context, bounds.prompt) == (
        16384,
        512,
        16384,
        16384,
    )
    assert physics_model(shape, resolve_accelerator("l4")).measured() is None


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = load_profile("h200")
    path = tmp_path / "mine.json"
    path.write_text(profile.to_json())
    assert load_profile(str(path)) == profile


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no profile 'h20'.*h100.*did you mean"):
        load_profile("h20")


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(load_profile("h200").to_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "not JSON"),
        ("{}", "format is None"),
        (changed(lambda d: d.update(format=99)), "format is 99"),
        (changed(lambda d: d.update(colour=1)), "unknown field 'colour'"),
        (changed(lambda d: d.pop("parameters")), "parameters"),
        (changed(lambda d: d.update(accelerator="abacus")), "abacus"),
        (changed(lambda d: d["parameters"].pop("layer_s")), "'layer_s' is missing"),
        (changed(lambda d: d["parameters"].update(gemm_blent=3.0)), "did you mean 'gemm_blend'"),
        (changed(lambda d: d["parameters"].update(layer_s=float("nan"))), "layer_s. is nan"),
        (changed(lambda d: d["parameters"].update(layer_s="quick")), "parameters"),
        (
            changed(lambda d: d["parameters"].update(gemm_efficiency=1.2)),
            "'gemm_efficiency' is 1.2; allowed: 0.05 to 1: fraction of the bf16 matrix peak",
        ),
        (changed(lambda d: d["measured"].update(tokens=-1)), "'tokens' is -1"),
    ],
)
def test_a_bad_file_is_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_profile(path)


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_profile(str(tmp_path / "none.json"))
    with pytest.raises(InputError, match="cannot be read"):
        load_profile(str(tmp_path))
    (tmp_path / "raw.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not JSON"):
        load_profile(str(tmp_path / "raw.json"))
    (tmp_path / "big.json").write_bytes(b" " * (1 << 21))
    with pytest.raises(InputError, match="the profile is too large"):
        load_profile(str(tmp_path / "big.json"))
