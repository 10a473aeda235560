"""What is said to stand behind step times: the right measurements, or none."""

import math
from pathlib import Path

import msgspec
import pytest

from tests.models.test_table import kernel_tables, whole_steps
from windtunnel.models.calibration.evidence import (
    BASES,
    FITTED,
    LEFT_OUT,
    NONE,
    OPERATORS,
    OTHERS,
    SCALED,
    UNSEEN,
    Evidence,
    profile_evidence,
    table_evidence,
)
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.profile import (
    PARAMETERS,
    SCALED_ERROR,
    Profile,
    load_profile,
    physics_model,
    profile_for,
)
from windtunnel.models.step_time.table import Grid, Table, TimeCurve
from windtunnel.models.step_time.table_files import read_table

STEPS = load_profile("h200-pytorch")


def evidence(profile: Profile, name: str, degree: int = 1, decodes: int = 16) -> Evidence:
    shape, accelerator = resolve_model(name), resolve_accelerator(profile.accelerator)
    model = physics_model(shape, accelerator, profile, degree)
    return profile_evidence(profile, model, shape, StepWork([], decodes, decodes * 1000, decodes))


@pytest.mark.parametrize(
    ("model", "basis", "mape", "points"),
    [
        ("llama-3.1-8b", FITTED, 0.0197, 104),
        ("qwen3-8b", UNSEEN, 0.0265, 42),
        ("qwen2.5-32b", OTHERS, 0.0299, 448),
    ],
)
def test_the_nearest_measurements_of_a_profile_count(
    model: str, basis: str, mape: float, points: int
) -> None:
    found = evidence(STEPS, model)
    assert (found.basis, found.points) == (basis, points)
    assert found.mape == pytest.approx(mape, abs=5e-5)


def test_what_steps_on_one_gpu_do_not_have_is_added() -> None:
    """A slice of the 70B was measured, its collectives only in calls of their own."""
    steps = STEPS.errors["shapes"]["llama-3.1-70b-tp8-slice"]
    found = evidence(STEPS, "llama-3.1-70b", 8)
    assert found.basis == OPERATORS
    assert "all-reduce" in found.of
    assert found.mape is not None
    assert found.mape > 1.05 * steps.mape
    mixture = evidence(STEPS, "mixtral-8x7b")
    assert mixture.mape is not None
    assert mixture.mape > 0.5 * STEPS.errors["operators"]["experts"].mape


def test_an_operator_counts_by_its_share_of_a_step() -> None:
    h100 = load_profile("h100")
    shape = resolve_model("llama-3.1-8b")
    model = physics_model(shape, resolve_accelerator("h100"))
    parts = model.parts_s(StepWork([], 16, 16000, 16))
    whole_s = math.fsum(parts.values())
    assert whole_s == pytest.approx(model.step_s(StepWork([], 16, 16000, 16)))
    errors = {kind: one.mape for kind, one in h100.errors["operators"].items()} | {"rest": 0.5}
    expected = math.hypot(*(errors[kind] * part_s / whole_s for kind, part_s in parts.items()))
    dense = evidence(h100, "llama-3.1-8b")
    assert dense.basis == OPERATORS
    assert dense.mape == pytest.approx(expected)
    # The shorter a step, the more of it is what operators do not show.
    short, long = (evidence(h100, "llama-3.2-1b", decodes=n).mape for n in (1, 256))
    assert short is not None
    assert long is not None
    assert short > long


def test_hardware_that_nobody_measured_has_no_error_to_show() -> None:
    found = evidence(profile_for(resolve_accelerator("mi300x")), "llama-3.1-8b")
    assert (found.basis, found.mape, found.points) == (NONE, None, 0)
    silent = msgspec.structs.replace(STEPS, errors={})
    assert evidence(silent, "llama-3.1-8b").mape is None


def test_a_fit_at_the_end_of_a_range_says_so() -> None:
    b200 = load_profile("b200")
    assert "end of its range" not in evidence(clear(b200), "llama-3.1-8b").of
    cramped = {**clear(b200).parameters, "gemm_wave": PARAMETERS["gemm_wave"].high}
    found = evidence(msgspec.structs.replace(b200, parameters=cramped), "llama-3.1-8b")
    assert found.of.endswith("; at an end of its range in the fit: gemm_wave")


def clear(profile: Profile) -> Profile:
    """The same with every parameter that is at an end of its range where fits start."""
    ends = {name: PARAMETERS[name].start for name in profile.at_bounds(PARAMETERS)}
    return msgspec.structs.replace(profile, parameters={**profile.parameters, **ends})


def test_scaling_to_another_chip_adds_its_error() -> None:
    own, scaled = (
        evidence(profile_for(resolve_accelerator(gpu)), "llama-3.1-8b")
        for gpu in ("a100", "a100-40")
    )
    assert scaled.basis == SCALED
    assert own.mape is not None
    assert scaled.mape is not None
    assert scaled.mape > max(own.mape, SCALED_ERROR.mape)


def test_every_profile_has_evidence_for_every_model() -> None:
    for name in ("h200", "h100", "a100", "l40s", "b200", "gb200", "rtx-pro-6000"):
        for shape in MODELS:
            found = evidence(load_profile(name), shape)
            assert found.basis in BASES
            assert found.mape is None or 0.0 < found.mape < 0.5


def test_a_table_that_is_straight_misses_nothing_that_is_left_out() -> None:
    knots = [1.0, 2.0, 4.0, 8.0]

    def line(add: float) -> TimeCurve:
        return TimeCurve(knots, [add + knot for knot in knots])

    straight = Grid(knots, [], [line(knot) for knot in knots])
    found = table_evidence(Table(straight, straight, None, 0.0, None, None))
    assert found.basis == LEFT_OUT
    assert found.mape == pytest.approx(0.0, abs=1e-12)
    assert found.points == 2 * (4 * 2 + 2 * 4)


def test_a_table_with_a_bend_is_off_by_what_the_bend_hides() -> None:
    bent = Grid([1.0, 2.0], [], [TimeCurve([0.0, 1.0, 2.0], [1.0, 4.0, 3.0])] * 2)
    found = table_evidence(Table(bent, bent, None, 0.0, None, None))
    # At 1, between 1 and 3, one would guess 2 where 4 was measured.
    assert (found.mape, found.p90, found.points) == (0.5, 0.5, 4)


def test_a_table_of_two_sizes_cannot_be_tried(tmp_path: Path) -> None:
    path = whole_steps(tmp_path / "steps.jsonl")
    assert table_evidence(read_table(path, MODELS["llama-3.1-8b"])).basis == NONE


def test_layers_of_kernel_tables_are_tried_too(tmp_path: Path) -> None:
    shape = msgspec.structs.replace(MODELS["llama-3.1-8b"], layers=2)
    found = table_evidence(read_table(kernel_tables(tmp_path), shape))
    assert found.points == 1  # the layers' sum at 64 tokens; all else has two sizes
    assert found.mape == pytest.approx(0.0, abs=1e-9)


def test_attention_that_was_not_timed_is_no_evidence() -> None:
    """AMD publishes multiplications and experts, and no attention."""
    found = evidence(load_profile("mi355x"), "llama-3.1-8b")
    assert found.basis == NONE
    assert "no error of decode attention" in found.of
