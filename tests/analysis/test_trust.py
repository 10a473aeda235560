"""A result says how far it can be believed: each finding where it should be, with its numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.test_table import kernel_tables
from tests.twin.runs import BUSY, one_server, run
from windtunnel.analysis.trust import CODES, SEVERITIES

PHYSICS = """\
name: physics
model: llama-3.1-8b
workload:
  - name: chat
    count: {count}
    arrivals: {{process: poisson, rate: 30/s}}
    prompt_tokens: {prompt}
    output_tokens: 50
serving:
  pools:
    - {{name: main, accelerator: {accelerator}}}
"""


def physics(*, count: int = 1200, prompt: int = 300, accelerator: str = "h200") -> str:
    return PHYSICS.format(count=count, prompt=prompt, accelerator=accelerator)


def trust(text: str, *sets: str) -> dict[str, Any]:
    found: dict[str, Any] = run(text, *sets, check=False)["trust"]
    return found


def about(found: dict[str, Any], code: str) -> list[tuple[str, str]]:
    return [(one["severity"], one["says"]) for one in found["findings"] if one["code"] == code]


@pytest.mark.parametrize("text", [one_server(), BUSY, physics(count=30)])
def test_findings_are_from_a_closed_set_and_the_gravest_come_first(text: str) -> None:
    found = trust(text)
    severities = [one["severity"] for one in found["findings"]]
    assert severities == sorted(severities, key=SEVERITIES.index, reverse=True)
    assert found["verdict"] == severities[0]
    assert {one["code"] for one in found["findings"]} <= set(CODES)
    assert all(one["says"].endswith(".") for one in found["findings"])
    json.dumps(found, allow_nan=False)


def test_a_calm_run_on_measured_hardware_is_good_throughout() -> None:
    found = trust(physics())
    assert found["verdict"] == "good"
    assert about(found, "calibration") == [
        (
            "good",
            "Step times of main (physics) are 9.4% off on average, over 6,361 timings of single "
            "operators, by their share of a step.",
        )
    ]
    assert about(found, "extrapolation") == [
        ("good", "Every step was within the sizes that were measured.")
    ]
    assert about(found, "sample-size") == [
        ("good", "The p99 of 1,200 completed requests has 12 beyond it.")
    ]
    error = found["pools"]["main"]["error"]
    assert (error["points"], error["basis"]) == (6361, "operators")
    steps = "serving.pools.0.step_time={model: physics, profile: h200-pytorch}"
    measured = trust(physics(), steps)["pools"]["main"]["error"]
    assert (measured["mape"], measured["points"]) == (0.0197, 104)
    assert measured["basis"] == "fitted steps"


def test_servers_that_vllm_refuses_to_start_are_a_caution() -> None:
    text = physics(count=5, accelerator="l4")
    assert about(trust(text), "max-model-len") == [
        (
            "caution",
            "The KV cache of main holds no request of max_model_len (131,072 tokens): vLLM refuses "
            "to start unless --max-model-len is at most 32,560.",
        )
    ]
    engine = "serving.pools.0.engine"
    for starts in (f"{engine}.max_model_len=32560", f"{engine}.kv_blocks=2000"):
        assert about(trust(text, starts), "max-model-len") == []
    assert about(trust(text, f"{engine}.max_model_len=32561"), "max-model-len")


@pytest.mark.parametrize(
    ("accelerator", "severity", "says"),
    [
        ("h100", "good", "are 8.2% off on average, over 7,765 timings of single operators"),
        ("b200", "caution", "off on average, over "),
        ("a100-40", "caution", "timings of single operators on the a100-80, scaled to other peaks"),
        ("mi300x", "doubt", "were not measured: profile mi355x has no error of decode attention"),
        ("tpu-v5p", "doubt", "were not measured: the efficiencies of profile generic are "),
    ],
)
def test_evidence_is_what_was_measured_of_the_accelerator(
    accelerator: str, severity: str, says: str
) -> None:
    (found,) = about(trust(physics(count=30, accelerator=accelerator)), "calibration")
    assert found[0] == severity
    assert says in found[1]


@pytest.mark.parametrize(
    ("model", "severity", "says"),
    [
        ("roofline", "doubt", "they are those of hardware without any losses."),
        ("blis-trained-physics", "caution", "the coefficients are those its authors published."),
    ],
)
def test_models_that_nobody_measured_say_so(model: str, severity: str, says: str) -> None:
    sets = f"serving.pools.0.step_time={{model: {model}}}"
    (found,) = about(trust(physics(count=30, accelerator="h100"), sets), "calibration")
    assert found[0] == severity
    assert found[1].startswith(f"The step times of main ({model}) were not measured: ")
    assert found[1].endswith(says)


def test_kernels_alone_leave_something_out(tmp_path: Path) -> None:
    table = f"serving.pools.0.step_time={{model: table, path: {kernel_tables(tmp_path)}}}"
    (found,) = about(trust(physics(count=30), table), "calibration")
    assert found[0] == "caution"
    assert "kernels alone: time between kernels is missing (per_step is 0)." in found[1]
    more = "serving.pools.0.step_time.per_step=1ms"
    (found,) = about(trust(physics(count=30), table, more), "calibration")
    assert found[0] == "good"


def test_percentiles_of_a_window_are_of_the_requests_in_it() -> None:
    found = trust(one_server(count=1200, rate="10/s"), "measure={from: 30s, to: 60s}")
    ((severity, says),) = about(found, "sample-size")
    assert severity == "caution"
    assert "of 3" in says.partition(" completed")[0]  # some 300, and not 1,200


def test_steps_beyond_what_was_measured_are_told_with_their_sizes() -> None:
    found = trust(physics(count=30, prompt=20_000))
    ((severity, says),) = about(found, "extrapolation")
    assert severity == "doubt"
    assert "contexts of up to 20,0" in says
    assert "(measured to 16,384)" in says
    beyond = found["pools"]["main"]["extrapolated"]
    # Chunks of 8,192: of every prompt the third is beyond, and all that decodes beside it.
    assert 0.1 < beyond["step_share"] <= beyond["time_share"] * 2
    assert beyond["steps"]["context"] > 0
    assert beyond["steps"]["tokens"] == beyond["steps"]["decodes"] == 0
    assert trust(one_server())["pools"]["main"]["extrapolated"] is None


def test_an_overload_is_doubted_for_three_reasons() -> None:
    found = trust(one_server(count=800, rate="20/s", output=30), "duration=30s")
    assert found["verdict"] == "doubt"
    assert about(found, "saturation")[0][0] == "doubt"
    assert about(found, "queue-growth")[0][0] == "doubt"
    assert about(found, "unfinished")[0][0] == "doubt"
    assert 0.0 < found["saturated"]["seconds"] <= 30.0
    assert found["saturated"]["stretches"][0]["cause"] == "all batch slots taken"


def test_time_without_a_server_is_no_time_in_which_servers_kept_up() -> None:
    crash = "faults=[{kind: engine-crash, at: 10s, select: {count: all}}]"
    slow = "serving.startup={load: {mean: 1h}}"
    found = trust(one_server(count=60, rate="1/s", output=14), "duration=60s", crash, slow)
    ((severity, says),) = about(found, "saturation")
    assert severity == "doubt"
    assert "for a server while none was ready, first from about 9.75 s on" in says
    ((_, unfinished),) = about(found, "unfinished")
    assert "kept up" not in unfinished
    (stretch,) = found["saturated"]["stretches"]
    assert (stretch["cause"], stretch["most_servers"]) == ("no server was ready", 0)
    assert 50.0 < found["saturated"]["seconds"] == stretch["end_s"] - stretch["start_s"] <= 50.5


def test_requests_that_had_not_ended_are_told_from_one_in_a_hundred() -> None:
    # Each takes about 0.2 s, one comes every second, and the hundredth comes at 100 s.
    text = one_server(count=1000, rate="1/s", output=14)
    assert about(trust(text, "duration=100.1s"), "unfinished")[0][0] == "caution"
    assert not about(trust(text, "duration=100.9s"), "unfinished")


def test_attainment_that_a_cut_makes_look_bad_is_told_with_both_numbers() -> None:
    # Ten come, a second apart, each takes about 0.2 s, and the last one is cut.
    text = one_server(count=1000, rate="1/s", output=14)
    ((severity, says),) = about(trust(text, "duration=10.1s"), "unfinished")
    assert severity == "doubt"
    assert says.endswith(
        "Attainment counts them as missed, though the servers kept up: 90% of all requests were in "
        "time, and 100% of those that ended."
    )
    overload = trust(one_server(count=800, rate="20/s", output=30), "duration=30s")
    assert "Attainment" not in about(overload, "unfinished")[0][1], "that is the servers' doing"


def test_a_long_tail_is_told_with_what_includes_it() -> None:
    # The last of 21 arrives at 21 s and takes about 5 s.
    text = one_server(count=21, rate="1/s", output=400)
    result = run(text, check=False)
    ((severity, says),) = about(result["trust"], "tail")
    assert severity == "caution"
    (figures,) = [one["figures"] for one in result["trust"]["findings"] if one["code"] == "tail"]
    assert figures["last_arrival"] + figures["seconds"] == result["simulated_seconds"]
    assert figures["share"] == figures["seconds"] / result["simulated_seconds"] > 0.1
    assert says.startswith("The last request arrived at 21 s, and the run went on for ")
    assert "Requests/s and cost include that tail; a duration ends the run" in says
    assert not about(trust(text, "duration=21s"), "tail")
    assert "a shorter duration" in about(trust(text, "duration=60s"), "tail")[0][1]


def test_servers_that_fill_for_long_are_told() -> None:
    even = "workload.0.arrivals={process: constant, rate: 10/s}"
    long = (even, "duration=20s", "workload.0.output_tokens=600")
    ((severity, says),) = about(trust(physics(), *long), "warm-up")
    assert severity == "caution"
    assert "latencies include that warm-up" in says
    assert not about(trust(physics(), even, "duration=20s"), "warm-up")


@pytest.mark.parametrize(
    ("count", "severity", "names"),
    [(99, "doubt", "p90, p95 and p99"), (199, "caution", "p95 and p99"), (999, "caution", "p99")],
)
def test_a_percentile_needs_ten_requests_beyond_it(count: int, severity: str, names: str) -> None:
    (found,) = about(trust(one_server(count=count, rate="10/s")), "sample-size")
    assert found[0] == severity
    assert found[1].startswith(f"The {names} of {count} completed requests ha")
    enough = about(trust(one_server(count=1000, rate="10/s")), "sample-size")
    assert enough == [("good", "The p99 of 1,000 completed requests has 10 beyond it.")]


def test_each_class_needs_its_own() -> None:
    found = [says for _, says in about(trust(BUSY), "sample-size")]
    assert any("completed requests of batch" in says for says in found)
    assert any("completed requests of critical" in says for says in found)


def test_a_run_without_latencies_has_none_to_believe() -> None:
    found = trust(one_server(count=3, prompt=20_000))
    assert about(found, "nothing-completed")[0][0] == "doubt"
    assert not about(found, "sample-size")


def test_bounds_that_move_a_mean_are_told() -> None:
    def of(**lengths: object) -> list[tuple[str, str]]:
        written = ", ".join(f"{key}: {value}" for key, value in lengths.items())
        found = trust(one_server(), f"workload.0.prompt_tokens={{{written}}}")
        return about(found, "lengths")

    assert of(distribution="exponential", mean=100, max=900) == []
    assert of(distribution="exponential", mean=100, max=200) == [
        (
            "caution",
            "The prompt_tokens of chat were asked to have a mean of 100; "
            "within min and max it is 86.47.",
        )
    ]
    ((severity, says),) = of(distribution="lognormal", mean=100, cv=3, max=120)
    assert severity == "doubt"
    assert "mean of 100; within min and max it is 48.9" in says
    # A tail without a mean cannot be far from it.
    tail = "{share: 0.5, start: 90, alpha: 0.9}"
    assert of(distribution="pareto-lognormal", mean=50, cv=0.3, max=900, tail=tail) == []


def test_what_was_repaired_in_a_trace_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    entry = f"workload.0={{trace: {{path: {path}}}}}"
    path.write_text("arrived,prompt_tokens,output_tokens\n2,5,5\n1,5,5\n\n")
    says = f"Of {path}, 1 row was out of order (the first: 3) and sorted, and 1 empty line "
    says += "was skipped (the first: 4)."
    assert about(trust(one_server(), entry), "repaired") == [("caution", says)]
    path.write_text("arrived,prompt_tokens,output_tokens\n2,5,5\n\n")
    says = f"Of {path}, 1 empty line was skipped (the first: 3)."
    assert about(trust(one_server(), entry), "repaired") == [("good", says)]


def test_rows_that_were_not_replayed_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrived,prompt_tokens,output_tokens\n0,5,5\n1,5,0\n2,oops\n3,0,1\n")
    entry = f"workload.0={{trace: {{path: {path}, skip_bad: 1}}}}"
    assert about(trust(one_server(), entry), "left-out") == [
        (
            "caution",
            f"Of {path}, 2 without a prompt or an output were not replayed, 1 that could not be "
            "read were not replayed.",
        )
    ]
    path.write_text("arrived,prompt_tokens,output_tokens\n0,5,5\n")
    assert about(trust(one_server(), entry), "left-out") == []
