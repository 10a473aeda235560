"""`windtunnel schema`: the JSON Schema of scenario files, for editors and other programs."""

import json

import click


@click.command(short_help="Print the JSON Schema of scenario files.")
def schema() -> None:
    """Print the JSON Schema of scenario files.

    With it, an editor completes keys and marks errors while you type.
    """
    from windtunnel.twin.scenario.load import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
