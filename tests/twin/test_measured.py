"""The part of a run that figures are of."""

import json
from pathlib import Path

import polars
import pytest
from click.testing import CliRunner

import windtunnel as wt
from windtunnel.cli.simulation.simulate import simulate
from windtunnel.core.errors import InputError
from windtunnel.report.terminal.run import measured_text

SCENARIO = {
    "name": "measured",
    "seed": 3,
    "duration": "40s",
    "workload": [
        {
            "name": "chat",
            "prompt_tokens": 400,
            "output_tokens": 40,
            "arrivals": {"process": "poisson", "rate": "30/s"},
        }
    ],
    "slo": {"standard": {"ttft": "60ms"}},
    "serving": {
        "pools": [
            {
                "name": "main",
                "replicas": 2,
                "engine": {"kv_blocks": 2000, "max_num_seqs": 8},
                "step_time": {"model": "linear", "fixed": "5ms", "per_prefill_token": "40us"},
            }
        ]
    },
}


def test_figures_are_of_the_requests_that_arrive_in_the_window() -> None:
    whole = wt.simulate(SCENARIO)
    part = wt.simulate({**SCENARIO, "measure": {"from": "10s", "to": "30s"}})
    rows = whole.to_polars()
    assert rows.equals(part.to_polars())  # what is measured changes nothing that happens
    inside = rows.filter((polars.col("arrived") >= 10.0) & (polars.col("arrived") < 30.0))
    done = inside.filter(polars.col("outcome") == "completed")
    ttft = done["first_token"] - done["arrived"]
    assert 0 < inside.height < rows.height
    assert part["measured"] == {"from": 10.0, "to": 30.0, "requests": inside.height}
    assert whole["measured"] is None
    assert part["latency"]["ttft"]["mean"] == pytest.approx(ttft.mean())
    assert part["latency"]["ttft"]["mean"] != whole["latency"]["ttft"]["mean"]
    assert part["throughput"]["requests_per_s"] == pytest.approx(done.height / 20.0)
    assert part["slo"]["standard"]["requests"] == inside.height
    assert part["slo"]["standard"]["attained"] == pytest.approx(
        (ttft <= 0.06).sum() / inside.height
    )
    for key in ("requests", "tokens", "cost", "servers"):
        assert part[key] == whole[key]
    assert measured_text(part) == ", measured from 10 s to 30 s"


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({"from": "9s", "to": "9s"}, "measure.to: nothing is measured; allowed: over 9 s"),
        ({"from": "40s"}, "measure.from: nothing is measured: the run ends before"),
    ],
)
def test_a_window_without_a_request_is_refused(window: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        wt.simulate({**SCENARIO, "measure": window})


def test_a_window_in_which_nothing_arrives_is_a_doubt(tmp_path: Path) -> None:
    run = wt.simulate({**SCENARIO, "measure": {"from": "1s", "to": "1.000001s"}})
    assert run["measured"]["requests"] == 0
    assert run["latency"]["ttft"]["p99"] is None
    (finding,) = [one for one in run["trust"]["findings"] if one["code"] == "nothing-completed"]
    assert "`measure`" in finding["says"]
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({**SCENARIO, "measure": {"from": "1s", "to": "1.000001s"}}))
    done = CliRunner().invoke(simulate, [str(path), "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "report.html").is_file()
