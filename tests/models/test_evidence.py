"""What is said to stand behind step times: the right measurements, or none."""

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
    UNSEEN,
    profile_evidence,
    table_evidence,
)
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import MODELS, resolve_model
from windtunnel.models.step_time.profile import load_profile, profile_for
from windtunnel.models.step_time.table import Grid, Table, TimeCurve
from windtunnel.models.step_time.table_files import read_table

H200 = load_profile("h200")


@pytest.mark.parametrize(
    ("model", "degree", "basis", "mape", "points"),
    [
        ("llama-3.1-8b", 1, FITTED, 0.0197, 104),
        ("llama-3.1-70b", 8, FITTED, 0.0263, 111),
        ("qwen3-8b", 1, UNSEEN, 0.0265, 42),
        ("llama-3.1-8b", 2, OTHERS, 0.0299, 448),
        ("mixtral-8x7b", 1, OPERATORS, 0.2221, 2997),
    ],
)
def test_the_nearest_measurements_of_a_profile_count(
    model: str, degree: int, basis: str, mape: float, points: int
) -> None:
    found = profile_evidence(H200, resolve_model(model), degree)
    assert (found.basis, found.points) == (basis, points)
    assert found.mape == pytest.approx(mape, abs=5e-5)


def test_a_profile_of_operators_is_as_good_as_those_that_a_model_runs() -> None:
    h100 = load_profile("h100")
    dense = profile_evidence(h100, MODELS["llama-3.1-8b"], 1)
    assert dense.basis == OPERATORS
    assert dense.mape == pytest.approx((0.0784 + 0.1172 + 0.1051) / 3)
    assert dense.points == 2729 + 2053 + 2932
    spread = profile_evidence(h100, MODELS["llama-3.1-8b"], 2)
    assert spread.points == dense.points + 60


def test_hardware_that_nobody_measured_has_no_error_to_show() -> None:
    generic = profile_for(resolve_accelerator("l4"))
    found = profile_evidence(generic, MODELS["llama-3.1-8b"], 1)
    assert (found.basis, found.mape, found.points) == (NONE, None, 0)
    silent = msgspec.structs.replace(H200, errors={})
    assert profile_evidence(silent, MODELS["llama-3.1-8b"], 1).mape is None


def test_every_profile_has_evidence_for_every_model() -> None:
    for name in ("h200", "h100", "a100", "l40s"):
        for shape in MODELS.values():
            found = profile_evidence(load_profile(name), shape, 1)
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
