"""docs/explanation/engine.md explains every engine setting, with the default that is in force."""

import re
from pathlib import Path

import pytest

from windtunnel.engine.settings import EngineSettings

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "engine.md"


def test_every_setting_is_there_with_its_default() -> None:
    _, _, table = PAGE.read_text().partition("| `version` |")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .{20,} \|$", f"| `version` |{table}", re.MULTILINE)
    written = {name: default.strip("`") for name, default in rows}
    spec = EngineSettings()
    special = {
        "max_num_seqs": "vLLM's",
        "max_num_batched_tokens": "vLLM's",
        "memory_utilization": "vLLM's",
        "max_model_len": "the model's",
        "host_overhead": "0s",
        "lora": "none",
        "offload": "none",
        "speculative": "none",
        "kv_bytes_per_token": "the model's",
    }
    expected = {
        key: special.get(
            key, str(getattr(spec, name)).replace("True", "true").replace("False", "false")
        )
        for name, key in (
            (name, field.alias or name) for name, field in EngineSettings.model_fields.items()
        )
    }
    assert written == expected
    assert spec.max_model_len is None
    assert spec.host_overhead_s == 0.0
