"""`windtunnel schema` prints a schema that holds for the examples."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from windtunnel.cli.main import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.fixture
def schema(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    with pytest.raises(SystemExit) as left:
        main(["schema"])
    assert left.value.code == 0
    printed: dict[str, object] = json.loads(capsys.readouterr().out)
    return printed


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_fits_the_schema(schema: dict[str, object], example: Path) -> None:
    content = yaml.safe_load(example.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(content)) == []


def test_an_unknown_key_does_not(schema: dict[str, object]) -> None:
    faults = jsonschema.Draft202012Validator(schema).iter_errors({"nonsense": 1})
    assert any("nonsense" in fault.message for fault in faults)
