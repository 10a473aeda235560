"""`windtunnel calibrate` on the command line."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.cli.calibrate import calibrate
from windtunnel.core.errors import InputError
from windtunnel.models.calibration.calibrate import predictions_ms
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.step_time.measurements import Measurement
from windtunnel.models.step_time.profile import load_profile


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
    assert printed.startswith("profile mine.json of h200, calibrated: 24 steps in steps.jsonl.\n")
    assert printed.endswith(f"Wrote {profile}\nWrote {page}\n")
    assert printed.count("llama-3.1-8b ") > 1
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed
    assert "mixed" in printed
    assert load_profile(str(profile)).origin == "24 steps in steps.jsonl."
    text = page.read_text()
    assert text.count("<circle") == 24
    assert "http:" not in text
    assert "https:" not in text
    again = json.loads(run("--evaluate", measurements, "--profile", profile, "--json", "-"))
    assert again["shapes"]["llama-3.1-8b"]["mape"] < 0.05


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "nothing to fit; allowed: .* or --replay DIR"),
        (["--evaluate", "x.jsonl", "-o", "y.json"], "--evaluate fits nothing"),
        (["x.jsonl", "--profile", "h200"], "add --evaluate FILE"),
        (["x.jsonl"], "cannot be read"),
        (["x.jsonl", "--accelerator", "abacus"], "'abacus' is not in the catalog"),
        (["--evaluate", "x.jsonl", "--profile", "h999"], "no profile 'h999'"),
        (["--replay", "x", "-o", "y.json"], "--replay fits no profile"),
        (["--replay", "x"], "cannot be read"),
        (["--tables", "x"], "add --replay DIR"),
    ],
)
def test_misuse_is_a_sentence(args: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(*args)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Ten requests, each alone: 20 ms to the first token, 11 ms to every other."""
    folder = tmp_path / "run"
    folder.mkdir()
    meta = {"model": "llama-3.1-8b", "vllm_version": "0.19.0", "engine_kwargs": {"max_num_seqs": 4}}
    (folder / "meta.json").write_text(json.dumps(meta))
    with (folder / "requests.jsonl").open("w") as file:
        for number in range(10):
            at = 10.0 * number
            line = {
                "input_toks": 256,
                "output_toks": 100,
                "arrival_time": 1.7e9 + at,
                "queued_ts": at,
            }
            line |= {"scheduled_ts": at, "first_token_ts": at + 0.020, "last_token_ts": at + 1.109}
            file.write(json.dumps(line) + "\n")
    with (folder / "steps.jsonl").open("w") as file:
        for prefill, decodes in ((256, 0), (512, 0), (0, 1), (0, 8)):
            for size in (0, 4096):
                step: dict[str, object] = {
                    "shape": "llama-3.1-8b",
                    "prefill": prefill,
                    "prior": size if prefill else 0,
                }
                step |= {"decodes": decodes, "context": size, "ms": 19.0 if prefill else 10.0}
                file.write(json.dumps(step) + "\n")
    return folder


def test_a_replay_prints_json_and_nothing_else(recorded: Path) -> None:
    tables = recorded / "steps.jsonl"
    printed = json.loads(run("--replay", recorded, "--tables", tables, "--json", "-"))
    keys = ["settings", "requests", "per_step_s", "order_agreement", "preemptions", "latency"]
    assert list(printed) == keys
    assert printed["settings"]["async_scheduling"] is True
    assert printed["per_step_s"] == pytest.approx(1e-3, rel=0.01)
    assert printed["order_agreement"] == 1.0
    for figures in printed["latency"].values():
        assert abs(figures["mean"]["error"]) < 1e-3


def test_a_replay_shows_a_table_and_takes_other_settings(recorded: Path) -> None:
    args = ("--replay", recorded, "--tables", recorded / "steps.jsonl")
    shown = run(*args, "--scheduling", "sync", "--kv-blocks", 40, "--model", "llama-3.1-8b")
    assert "synchronous scheduling, 40 KV blocks" in shown
    assert "ms per step beyond the tables" in shown
    assert shown.count("%") == 13
    for name in ("time to first token", "time per output token", "end-to-end latency"):
        assert re.search(
            rf"^{name} +p99 +[0-9.]+ (ms|s) +[0-9.]+ (ms|s) +[+-]", shown, re.MULTILINE
        )
    use = r"use it: step_time: {model: table, path: (.*), per_step: ([0-9.]+ms)}"
    found = re.fullmatch(use, shown.splitlines()[-1])
    assert found is not None
    assert found[1] == str(recorded / "steps.jsonl")
    with pytest.raises(InputError, match=r"no step of llama-3\.2-3b was measured"):
        run(*args, "--model", "llama-3.2-3b")
    with pytest.raises(InputError, match=r"--kv-blocks is 9{17}\.\.\.; allowed: at most"):
        run(*args, "--kv-blocks", "9" * 30)


def test_a_recorded_type_of_the_cache_is_replayed_and_drafts_are_not(recorded: Path) -> None:
    """With an fp8 cache the kernels take less of the measured time, the host more."""
    meta = recorded / "meta.json"
    given = json.loads(meta.read_text())
    fitted = {}
    for dtype in ("auto", "bfloat16", "fp8_e4m3"):
        given["engine_kwargs"] = {"max_num_seqs": 4, "kv_cache_dtype": dtype}
        meta.write_text(json.dumps(given))
        found = json.loads(run("--replay", recorded, "--accelerator", "h100", "--json", "-"))
        assert found["settings"]["kv_cache_dtype"] == dtype
        fitted[dtype] = found["per_step_s"]
    assert fitted["auto"] == fitted["bfloat16"] != fitted["fp8_e4m3"]
    for change, sentence in (
        ({"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype is 'nvfp4'; allowed: auto, fp8"),
        ({"quantization": "fp8"}, r"quantised llama-3.1-8b when it started \(fp8\)"),
        ({"speculative_config": {"method": "mtp"}}, "the server drafted tokens"),
    ):
        given["engine_kwargs"] = change
        meta.write_text(json.dumps(given))
        with pytest.raises(InputError, match=sentence):
            run("--replay", recorded, "--accelerator", "h100")


def test_a_run_on_several_gpus_is_replayed_on_an_accelerator(recorded: Path) -> None:
    """Measured tokens take 11 ms: what two H100s, in either way, do not take is the host's."""
    meta = recorded / "meta.json"
    given = json.loads(meta.read_text())
    fitted = {}
    for degree in ("tensor_parallel", "pipeline_parallel"):
        given["engine_kwargs"] = {"max_num_seqs": 4, f"{degree}_size": 2}
        meta.write_text(json.dumps(given))
        with pytest.raises(InputError, match=r"the run was on 2 GPUs.*add --accelerator NAME"):
            run("--replay", recorded, "--tables", recorded / "steps.jsonl")
        shown = run("--replay", recorded, "--accelerator", "h100")
        assert f"ms per step beyond the kernels of h100, {degree} 2" in shown
        found = json.loads(run("--replay", recorded, "--accelerator", "h100", "--json", "-"))
        assert abs(found["latency"]["tpot"]["mean"]["error"]) < 0.02
        fitted[degree] = found["per_step_s"]
    # A request alone is served faster by two GPUs that share every layer than by one after another.
    assert 0.0 < fitted["pipeline_parallel"] < fitted["tensor_parallel"] - 1e-3 < 0.011
    given["engine_kwargs"] = {"data_parallel_size": 2}
    meta.write_text(json.dumps(given))
    with pytest.raises(InputError, match="has no experts to share: its 2 ranks are servers"):
        run("--replay", recorded, "--accelerator", "h100")
