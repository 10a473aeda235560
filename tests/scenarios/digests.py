"""Digests of what examples give: run as a program, it writes those that tests hold the code to.

A change of behaviour that is meant changes them; `git diff` then shows which examples it reached.
"""

import hashlib
import json
import tempfile
from pathlib import Path

from click.testing import CliRunner

from windtunnel.cli.simulation.simulate import simulate

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "digests.json"
EXAMPLES = (
    "disaggregation",
    "elastic",
    "faults",
    "first",
    "incidents/pressure",
    "library/gang-stuck",
    "lora",
    "offload",
    "overload",
    "sessions",
    "two-models",
    "whole-loop",
)
FILES = ("result.json", "control.jsonl")
"""Not Parquet: its bytes depend on the library's version."""


def digests_of(example: str, folder: Path) -> dict[str, str]:
    """Of the files of a run, by name."""
    path = str(ROOT / "examples" / f"{example}.yaml")
    CliRunner().invoke(simulate, [path, "-o", str(folder)], catch_exceptions=False)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}


def write() -> None:
    """Writes the digests of all examples that are held."""
    with tempfile.TemporaryDirectory() as folder:
        found = {name: digests_of(name, Path(folder, name)) for name in EXAMPLES}
    KEPT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    write()
