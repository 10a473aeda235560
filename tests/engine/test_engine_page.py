"""docs/explanation/engine.md explains every engine setting, with the default that is in force."""

import re
from pathlib import Path

import pytest

from windtunnel.twin.scenario.serving_spec import EngineSpec

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "engine.md"


def test_every_setting_is_there_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .{20,} \|$", PAGE.read_text(), re.MULTILINE)
    written = {name: default.strip("`") for name, default in rows}
    spec = EngineSpec()
    special = {
        "max_model_len": "the model's",
        "host_overhead": "0s",
        "lora": "none",
        "offload": "none",
        "kv_bytes_per_token": "the model's",
    }
    expected = {
        name: special.get(
            name, str(getattr(spec, name)).replace("True", "true").replace("False", "false")
        )
        for name in EngineSpec.model_fields
    }
    assert written == expected
    assert spec.max_model_len is None
    assert spec.host_overhead == 0.0
