"""`windtunnel gangs`."""

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from tests.gangs.manifests import workload
from windtunnel.cli.gangs import gangs
from windtunnel.core.errors import InputError


def written(tmp_path: Path, manifest: object) -> str:
    path = tmp_path / "m.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return str(path)


def test_a_good_file_is_said_to_be_good(tmp_path: Path) -> None:
    file = written(tmp_path, workload(1))
    done = CliRunner().invoke(gangs, ["validate", file])
    assert done.output == f"{file}: PodCliqueSet web: nothing is wrong\n"
    done = CliRunner().invoke(gangs, ["validate", "--json", file])
    assert json.loads(done.output) == {
        "valid": True,
        "kinds": ["PodCliqueSet web"],
        "warnings": {"web": []},
    }


def test_a_bad_file_is_a_sentence(tmp_path: Path) -> None:
    manifest = workload(1)
    manifest["kind"] = "Deployment"
    done = CliRunner().invoke(gangs, ["validate", written(tmp_path, manifest)])
    assert isinstance(done.exception, InputError)
    assert "'Deployment' is not a kind that is known here" in str(done.exception)
