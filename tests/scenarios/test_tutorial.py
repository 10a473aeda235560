"""What the tutorial tells a newcomer to type works."""

import re
import shlex
from pathlib import Path

import pytest

from windtunnel.core.errors import WindtunnelError
from windtunnel.twin.scenario.load import load

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "first-run.md").read_text()


def test_its_python_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(compile(code, "first-run.md", "exec"), {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["1", "2", "3", "4"]
    waits = [float(line[1]) for line in lines]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 60.0
    assert waits[3] < 0.5


def test_its_commands_and_overrides_load() -> None:
    commands = re.findall(r"^    windtunnel simulate (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        file, *options = shlex.split(command)
        load(ROOT / file, options[1::2])
    for example, override in [
        ("first", "serving.pools.0.replicas=none"),
        ("physics", "model=llama-3.1-405b"),
        ("physics", "serving.pools.0.accelerator=l40s"),
        ("physics", "serving.pools.0.tensor_parallel=2"),
    ]:
        assert f"`--set {override}`" in PAGE
        path = ROOT / "examples" / f"{example}.yaml"
        refusals = {"none": "'none' is not a whole number", "405b": "does not fit on h200"}
        refusal = refusals.get(re.split("[-=]", override)[-1])
        if refusal is not None:
            with pytest.raises(WindtunnelError, match=refusal):
                load(path, [override])
        else:
            load(path, [override])
