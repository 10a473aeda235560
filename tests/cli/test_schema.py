"""`windtunnel schema` prints the schema of scenario files."""

import json

import jsonschema
import pytest

from windtunnel.cli.main import main
from windtunnel.twin.scenario.load import json_schema


def test_it_prints_the_schema_that_every_example_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """That they do is held in `tests/twin/scenario/test_scenario_schema.py`."""
    with pytest.raises(SystemExit) as left:
        main(["schema"])
    assert left.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json_schema()
    faults = jsonschema.Draft202012Validator(printed).iter_errors({"nonsense": 1})
    assert any("nonsense" in fault.message for fault in faults)
