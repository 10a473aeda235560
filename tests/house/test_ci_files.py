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


def test_a_release_has_wheels_for_every_system_and_documentation_by_version() -> None:
    file = Path(__file__).parents[2] / ".github" / "workflows" / "release.yaml"
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    built = [
        (one["runner"][:6], one["arch"]) for one in jobs["wheels"]["strategy"]["matrix"]["include"]
    ]
    both = [(system, arch) for system in ("macos-", "ubuntu") for arch in ("a", "x")]
    assert sorted((system, arch[0]) for system, arch in built) == both
    steps = [str(step.get("run", step.get("with"))) for step in jobs["docs"]["steps"]]
    assert any('"site/$GITHUB_REF_NAME"' in step and "site/latest" in step for step in steps)
    assert any("'keep_files': True" in step for step in steps), "earlier versions stay"
    conf = (Path(__file__).parents[2] / "docs" / "conf.py").read_text(encoding="utf-8")
    assert "version = release = windtunnel.__version__" in conf
