"""Writes what of `deploy/` follows from declarations: the chart's CRDs, rights, and fleet values.

    python deploy/generate.py

`python -m tests.kubernetes.chart` then renders the chart into `deploy/operator.yaml`.
"""

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from windtunnel.cli.live.operate import crds
from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.live.operate.rights import by_feature

CHART = Path(__file__).with_name("helm") / "windtunnel"
VALUES = CHART / "values.schema.json"


def generated() -> dict[Path, str]:
    """The text of each file."""
    return {
        CHART / "crds" / "windtunnel.yaml": CliRunner().invoke(crds).output,
        CHART / "files" / "rights.yaml": yaml.safe_dump(by_feature(), sort_keys=False),
        VALUES: values_schema(),
    }


def values_schema() -> str:
    """The schema of the chart's values, with that of `operator.fleet`; the rest is by hand."""
    written = json.loads(VALUES.read_text(encoding="utf-8"))
    fleet = _plain(FleetFile.schema_of_files())
    written["definitions"] = {**fleet.pop("$defs"), "FleetFile": fleet}
    written["properties"]["operator"]["properties"]["fleet"] = {
        "type": "object",
        "if": {"minProperties": 1},
        "then": {"$ref": "#/definitions/FleetFile"},
    }
    return json.dumps(written, indent=1).replace("#/$defs/", "#/definitions/") + "\n"


def _plain(schema: Any) -> Any:
    """Without titles, descriptions, examples and defaults, which check nothing."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):  # whose keys are names
            found[key] = {name: _plain(one) for name, one in value.items()}
        elif key not in ("title", "description", "examples", "default"):
            found[key] = _plain(value)
    return found


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
