"""`windtunnel capacity`: the page shows what it prints, and errors are sentences."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.cli.simulation.capacity import capacity
from windtunnel.core.errors import InputError
from windtunnel.models.capacity import GIB

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "kv-capacity.md"


def test_the_page_shows_what_is_printed() -> None:
    shown = re.search(r"\n    \$ windtunnel (.*)\n((?:    .*\n|\n)+)", PAGE.read_text())
    assert shown is not None
    result = CliRunner().invoke(capacity, shown[1].split()[1:], catch_exceptions=False)
    lines = [line.removeprefix("    ") for line in shown[2].rstrip().splitlines()]
    assert result.output.splitlines() == lines


def test_json_has_settings_budget_and_tokens() -> None:
    words = ["llama-3.1-8b", "-a", "h100", "--version", "0.19", "--json", "-"]
    result = CliRunner().invoke(capacity, words, catch_exceptions=False)
    found = json.loads(result.output)
    assert found["settings"]["max_num_seqs"] == 1024
    budget = found["budget"]
    spent = sum(budget[f"{name}_bytes"] for name in ("weight", "activation", "runtime", "graph"))
    assert budget["usable_bytes"] - spent == pytest.approx(budget["left_bytes"])
    assert budget["usable_bytes"] == pytest.approx(0.9 * 79.19 * GIB)
    assert found["kv"]["tokens"] == found["kv"]["blocks"] * 16


def test_a_hybrid_shows_its_states() -> None:
    words = ["Qwen/Qwen3.6-35B-A3B", "-a", "h200", "--kv-cache-dtype", "fp8"]
    result = CliRunner().invoke(capacity, words, catch_exceptions=False)
    assert "state of a request, all layers and GPUs: 61.4 MiB" in result.output
    assert "1 attention and 3 recurrent groups of 10" in result.output
    assert "blocks of 2096 tokens in a group" in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["llama-3.1-8b", "-a", "a100", "--kv-cache-dtype", "fp8"], "a100-80 has no fp8"),
        (["llama-3.1-8b", "-a", "h100", "--version", "9"], "--version: engine version '9'"),
        (["llama-3.1-70b", "-a", "h100"], "try tensor_parallel: 4 or accelerator: mi325x"),
        (["moonshotai/Kimi-Linear-48B-A3B", "-a", "h100"], "Kimi delta attention"),
    ],
)
def test_errors_are_sentences(words: list[str], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        CliRunner().invoke(capacity, words, catch_exceptions=False)
