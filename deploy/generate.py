"""Writes what of `deploy/` follows from declarations: the chart's CRDs and rights.

    python deploy/generate.py

`python -m tests.kubernetes.chart` then renders the chart into `deploy/operator.yaml`.
"""

from pathlib import Path

import yaml
from click.testing import CliRunner

from windtunnel.cli.live.operate import crds
from windtunnel.live.operate.rights import by_feature

CHART = Path(__file__).with_name("helm") / "windtunnel"


def generated() -> dict[Path, str]:
    """The text of each file."""
    return {
        CHART / "crds" / "windtunnel.yaml": CliRunner().invoke(crds).output,
        CHART / "files" / "rights.yaml": yaml.safe_dump(by_feature(), sort_keys=False),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
