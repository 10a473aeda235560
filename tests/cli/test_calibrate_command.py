"""`windtunnel calibrate` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.cli.calibrate import calibrate
from windtunnel.core.errors import InputError
from windtunnel.models.accelerators import resolve_accelerator
from windtunnel.models.calibrate import Measurement, predictions_ms
from windtunnel.models.profile import load_profile


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    """Steps as the H200's profile predicts them, a tenth too fast."""
    rows = [
        Measurement(shape, 1.0, prefill=prefill, decodes=decodes, context=512)
        for shape in ("llama-3.1-8b", "qwen2.5-7b")
        for prefill in (0, 256, 2048)
        for decodes in (1, 16, 64, 200)
    ]
    times = predictions_ms(rows, resolve_accelerator("h200"), load_profile("h200"))
    path = tmp_path / "steps.jsonl"
    with path.open("w") as file:
        for row, ms in zip(rows, times, strict=True):
            line = {"shape": row.shape, "prefill": row.prefill, "prior": 0}
            line |= {"decodes": row.decodes, "context": row.context, "ms": ms / 1.1}
            file.write(json.dumps(line) + "\n")
    return path


def run(*args: object) -> str:
    result = CliRunner().invoke(
        calibrate, [str(arg) for arg in args], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def test_evaluate_prints_json_and_nothing_else(measurements: Path) -> None:
    printed = json.loads(run("--evaluate", measurements, "--profile", "h200", "--json", "-"))
    assert list(printed) == ["shapes"]
    assert list(printed["shapes"]) == ["llama-3.1-8b", "qwen2.5-7b"]
    for figures in printed["shapes"].values():
        assert list(figures) == ["mape", "p90", "points"]
        assert figures["mape"] == pytest.approx(0.1)
        assert figures["points"] == 12


def test_a_fit_writes_a_profile_and_a_page(measurements: Path, tmp_path: Path) -> None:
    profile, page = tmp_path / "mine.json", tmp_path / "page.html"
    printed = run(measurements, "--accelerator", "h200", "-o", profile, "--report", page)
    assert "large prefill" not in printed.splitlines()[0]
    assert "mixed" in printed
    assert load_profile(str(profile)).origin == "24 steps in steps.jsonl."
    text = page.read_text()
    assert text.count("<circle") == 24
    assert "http" not in text
    again = json.loads(run("--evaluate", measurements, "--profile", profile, "--json", "-"))
    assert again["shapes"]["llama-3.1-8b"]["mape"] < 0.05


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "nothing to fit"),
        (["--evaluate", "x.jsonl", "-o", "y.json"], "--evaluate fits nothing"),
        (["x.jsonl", "--profile", "h200"], "add --evaluate FILE"),
        (["x.jsonl"], "cannot be read"),
        (["x.jsonl", "--accelerator", "abacus"], "'abacus' is not in the catalog"),
        (["--evaluate", "x.jsonl", "--profile", "h999"], "no profile 'h999'"),
    ],
)
def test_misuse_is_a_sentence(args: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(*args)
