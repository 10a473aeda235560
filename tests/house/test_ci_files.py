"""The workflows in deploy/ci call a command that exists, with options that it has."""

import re
from pathlib import Path

import pytest
import yaml

from windtunnel.cli.simulation.check import check
from windtunnel.report.files.check_markdown import MARKER

pytestmark = pytest.mark.once

FILES = sorted((Path(__file__).parents[2] / "deploy" / "ci").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_workflow_is_yaml_and_its_options_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    (call,) = re.findall(r"windtunnel check (.*?-o check)", text, re.DOTALL)
    known = {name for option in check.params for name in option.opts}
    assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", call)) <= known
    assert '${SCENARIO:+--scenario "$SCENARIO"}' in call, "it may be left out"
    assert 'startswith("' not in text or MARKER in text


def test_both_services_have_one() -> None:
    assert [file.name for file in FILES] == ["github-check.yaml", "gitlab-check.yaml"]
