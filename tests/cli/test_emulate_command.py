"""`windtunnel emulate` refuses what it cannot serve, with a sentence, before it listens."""

import asyncio
import json
import math
from pathlib import Path

import pytest

from tests.live.emulated import STEADY
from tests.models.test_hf_config import LLAMA
from windtunnel.cli.live.emulate import EmulateOptions, build_intake, described, served_plan
from windtunnel.cli.main import main


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing says what to serve; allowed: --model NAME, or a scenario"),
        (["--model", "llama-3.1-8c"], "did you mean"),
        (["--model", "llama-3.1-8b", "--accelerator", "h2000"], "h2000"),
        (["--model", "llama-3.1-8b", "--speedup", "0"], "--speedup: a speedup of 0; allowed"),
        (["--model", "llama-3.1-8b", "--speedup", "nan"], "--speedup"),
        (["--model", "llama-3.1-8b", "--rate-limit", "some"], "--rate-limit: 'some' is not a rate"),
        (["--model", "llama-3.1-8b", "--fault", "500=2"], "--fault 500=2: '2' is not a share"),
        (["--model", "llama-3.1-8b", "--set", "serving.pools.0.engine.max_seqs=2"], "max_seqs"),
        (["--model", "llama-3.1-405b"], "does not fit"),
        (
            [
                "--model",
                "llama-3.1-8b",
                "--set",
                "serving.pools.0.step_time.model=blis-trained-physics",
            ],
            "serving.pools[0].engine: an emulated server streams tokens",
        ),
        (["missing.yaml"], "missing.yaml"),
        (["examples/disaggregation.yaml"], "serving.disaggregation: an emulated server does all"),
        (["examples/elastic.yaml"], "scaling: an emulated server keeps the servers"),
        (["examples/offload.yaml"], "serving.pools[0].engine.offload: an emulated server keeps"),
        (
            [
                "examples/physics.yaml",
                "--set",
                "serving.admission={policy: tier-shed, threshold: 4}",
            ],
            "serving.admission: an emulated server admits",
        ),
        (["--model", "llama-3.1-8b", "--set", "serving.pools.0.replicas=999"], "up to 256"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["emulate", "--port", "0", *options])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_a_model_has_one_name_wherever_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my-config.json"
    file.write_text(json.dumps(LLAMA))
    loop = asyncio.new_event_loop()
    for given, name in (
        (str(file), "my-config"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ):
        options = EmulateOptions(None, math.inf, None, (), 10)
        plan = served_plan(None, [f"model={given}"], 0)
        assert build_intake(plan, options, loop).served.model == name
    loop.close()
    with pytest.raises(SystemExit):
        main(["capacity", str(file), "--accelerator", "h200", "--json", "-"])
    assert json.loads(capsys.readouterr().out)["model"] == "my-config"


def test_options_are_short_for_fields(tmp_path: Path) -> None:
    plan = served_plan(None, ["model=llama-3.1-70b", "serving.pools.0.tensor_parallel=4"], 7)
    assert plan.seed == 7
    (pool,) = plan.pools
    assert (pool.accelerator, pool.tensor_parallel, pool.replicas) == ("h200", 4, 1)
    assert described(plan, 2.0) == "1 server on 4 x h200, 2 times as fast"
    file = tmp_path / "steady.yaml"
    file.write_text(STEADY)
    plan = served_plan(file, ["serving.pools.0.replicas=3"], None)
    assert described(plan, 1.0) == "3 servers with linear step times"
