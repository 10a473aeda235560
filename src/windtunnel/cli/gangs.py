"""`windtunnel gangs`: checks Grove's manifests and shows what they would become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from windtunnel.gangs.api.load import Manifests


@click.group(short_help="Check and explain manifests of gangs (PodCliqueSets).")
def gangs() -> None:
    """Check and explain manifests of gangs: what must start, live and die together."""


@gangs.command(short_help="Say what is wrong with a file of manifests.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead.")
def validate(file: Path, as_json: bool) -> None:  # noqa: FBT001 - click passes it
    """Say what is wrong with a file of Grove's manifests, all of it at once."""
    found = _load(file)
    if as_json:
        warnings = {one.name: list(one.warnings) for one in found.sets}
        click.echo(json.dumps({"valid": True, "kinds": list(found.kinds), "warnings": warnings}))
        return
    for one in found.sets:
        for warning in one.warnings:
            click.echo(f"{one.name}: note: {warning}")
    click.echo(f"{file}: {', '.join(found.kinds)}: nothing is wrong")


def _load(file: Path) -> Manifests:
    from windtunnel.gangs.api.load import load_manifests

    return load_manifests(file)
