"""Calibration recovers what made the measurements, and answers bad files with sentences."""

from pathlib import Path

import msgspec
import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.calibration.calibrate import (
    FEWEST_TO_FIT,
    error_of,
    evaluate,
    fit_profile,
    measured_range,
    predictions_ms,
    regime,
)
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.step_time.measurements import Measurement, read_measurements
from windtunnel.models.step_time.profile import Profile, load_profile

H200 = resolve_accelerator("h200")
GOOD = '{"shape": "llama-3.1-8b", "prefill": 0, "prior": 0, "decodes": 4, "context": 9, "ms": 5.0}'


def steps(shape: str) -> list[Measurement]:
    rows = [
        Measurement(shape, 1.0, decodes=decodes, context=context)
        for decodes in (1, 8, 64, 256)
        for context in (128, 2048, 8192)
    ]
    rows += [
        Measurement(shape, 1.0, prefill=prefill, prior=prior)
        for prefill in (64, 512, 4096)
        for prior in (0, 4096)
    ]
    return [*rows, Measurement(shape, 1.0, prefill=512, decodes=32, context=512)]


def truth() -> Profile:
    """The H200 under PyTorch, but with faster attention, slower memory and a lazier launch."""
    known = load_profile("h200-pytorch")
    changed = {
        "attention_efficiency": 0.5,
        "gemm_bandwidth": 0.8,
        "attention_bandwidth": 0.75,
        "layer_s": 40e-6,
    }
    return msgspec.structs.replace(known, parameters={**known.parameters, **changed})


def measured_by(profile: Profile, rows: list[Measurement]) -> list[Measurement]:
    times = predictions_ms(rows, H200, profile)
    return [msgspec.structs.replace(row, ms=ms) for row, ms in zip(rows, times, strict=True)]


def test_a_fit_recovers_what_made_the_measurements() -> None:
    rows = measured_by(truth(), [*steps("llama-3.1-8b"), *steps("llama-3.2-3b")])
    fitted = fit_profile(rows, H200, name="mine", origin="made up")
    for error in evaluate(rows, H200, fitted).values():
        assert error.mape < 0.01
    made = truth().parameters
    for name, tolerance in (("attention_efficiency", 0.07), ("gemm_bandwidth", 0.05)):
        assert fitted.parameters[name] == pytest.approx(made[name], rel=tolerance)
    assert fitted.parameters["attention_bandwidth"] == pytest.approx(0.75, rel=0.05)
    unseen = measured_by(truth(), steps("qwen2.5-14b"))
    assert evaluate(unseen, H200, fitted)["qwen2.5-14b"].mape < 0.03
    assert fitted.measured == {"tokens": 4096, "decodes": 256, "context": 8192}


def test_the_same_measurements_give_the_same_profile() -> None:
    rows = measured_by(truth(), [*steps("llama-3.1-8b"), *steps("llama-3.2-1b")][:24])
    first = fit_profile(rows, H200, name="mine", origin="twice")
    assert fit_profile(rows, H200, name="mine", origin="twice").to_json() == first.to_json()


def test_too_few_measurements_are_not_fitted() -> None:
    with pytest.raises(InputError, match="5 measurements are too few"):
        fit_profile(steps("llama-3.1-8b")[:5], H200, name="mine", origin="")


def test_errors_are_fractions_of_the_measured_time() -> None:
    profile = load_profile("h200")
    rows = measured_by(profile, steps("llama-3.1-8b"))
    off = [msgspec.structs.replace(row, ms=row.ms / 1.1) for row in rows]
    error = evaluate(off, H200, profile)["llama-3.1-8b"]
    assert error.mape == pytest.approx(0.1)
    assert error.p90 == pytest.approx(0.1)
    assert error.points == len(rows)


def test_percentiles_lie_between_neighbours() -> None:
    assert error_of([0.0, 1.0]).p90 == pytest.approx(0.9)
    assert error_of([0.3]).p90 == 0.3
    assert error_of([i / 10 for i in range(11)]).p90 == pytest.approx(0.9)


def test_measurements_are_read_with_fields_nobody_needs(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(GOOD[:-1] + ', "ms_min": 4.9, "runs": 60}\n\n' + GOOD + "\n")
    rows = read_measurements(path)
    assert rows == [Measurement("llama-3.1-8b", 5.0, decodes=4, context=9)] * 2
    work = rows[0].work()
    assert (work.chunks, work.decodes, work.context, work.samples) == ([], 4, 36, 4)
    assert measured_range(rows) == {"tokens": 4, "decodes": 4, "context": 9}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\n" * 9,
            "steps.jsonl: the file is binary; allowed: lines of text",
        ),
        (b"a: 1\n" * 4, "steps.jsonl:1: the line is not JSON (the same on the next 3 lines)"),
        (b"a: 1\n{}", "steps.jsonl:1: the line is not JSON\n"),
        (b"a: 1", "steps.jsonl:1: the line is not JSON"),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_measurements(path)
    assert str(caught.value).startswith(f"{tmp_path}/{says}")
    assert str(caught.value).count("\n") == says.count("\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "the line is not JSON"),
        ("\x00\x01", "the line is not JSON"),
        ("[" * 100_000, "the line is not JSON|not a measurement"),
        ("7", "not a measurement"),
        (GOOD.replace("5.0", "NaN"), "not JSON.*NaN"),
        (GOOD.replace("5.0", "1e999"), "not JSON|ms is inf|not a measurement"),
        (GOOD.replace("5.0", "0"), "ms is 0; allowed: a step of 0.001 .a microsecond."),
        (GOOD.replace("5.0", "5e-324"), "ms is 4.94066e-324"),
        (GOOD.replace("5.0", "1e308"), r"ms is 1e\+308; allowed: .* to 3600000 .an hour."),
        (GOOD.replace("5.0", "-1"), "ms is -1"),
        (GOOD.replace("5.0", '"fast"'), "not a measurement: expected `float`"),
        (GOOD.replace('"context": 9', '"context": -9'), "not a measurement.*context"),
        (GOOD.replace('"decodes": 4', '"decodes": 1e40'), "not a measurement"),
        (GOOD.replace('"decodes": 4', '"decodes": 0'), "neither prefill tokens nor decodes"),
        (GOOD.replace("3.1-8b", "3.1-9b"), "shape: .*llama-3.1-9b.*did you mean"),
        ("{}", "missing required field"),
    ],
)
def test_a_bad_line_is_a_sentence_with_its_number(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(GOOD + "\n" + line + "\n")
    with pytest.raises(InputError, match=sentence) as caught:
        read_measurements(path)
    assert f"{path}:2: " in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_only_the_first_faults_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(f"{GOOD}\n" + "{\n" * 1000)
    with pytest.raises(InputError) as caught:
        read_measurements(path)
    assert len(str(caught.value).splitlines()) == 10


def test_a_missing_folder_or_short_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_measurements(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        read_measurements(tmp_path)
    short = tmp_path / "short.jsonl"
    short.write_text(GOOD)
    with pytest.raises(InputError, match="holds 1 measurements; allowed: 20 or more"):
        read_measurements(short, fewest=FEWEST_TO_FIT)


def test_kinds_of_steps() -> None:
    kinds = [regime(row) for row in steps("llama-3.1-8b")]
    assert sorted(set(kinds)) == [
        "large decode batch",
        "large prefill",
        "large prefill, cached prefix",
        "mixed",
        "small decode batch",
        "small prefill",
        "small prefill, cached prefix",
    ]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no device files here")
def test_a_device_is_not_read() -> None:
    with pytest.raises(InputError, match="/dev/zero: the file cannot be read: it is not a regular"):
        read_measurements(Path("/dev/zero"))
