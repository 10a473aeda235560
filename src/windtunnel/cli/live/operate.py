"""`windtunnel operate`: the gang controllers on a Kubernetes API server."""

from __future__ import annotations

import click


@click.group(short_help="Run the gang controllers on a Kubernetes cluster.")
def operate() -> None:
    """Run the gang controllers on a Kubernetes cluster."""


@operate.command(short_help="Print the CustomResourceDefinitions of the kinds that it works on.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON List instead of YAML.")
def crds(*, as_json: bool) -> None:
    """Print the CustomResourceDefinitions of Grove's kinds, to be applied before the first start.

    windtunnel operate crds | kubectl apply --server-side -f -
    """
    from windtunnel.gangs.kubernetes.crds import crds as all_crds

    found = all_crds()
    if as_json:
        import json

        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
        return
    import yaml

    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)
