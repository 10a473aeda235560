"""`windtunnel studio`: scenarios and runs in a browser."""

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import Any

import click

from windtunnel.cli.options import FILE
from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError

TOKEN = "WINDTUNNEL_STUDIO_TOKEN"  # noqa: S105 - the name of a variable
WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{16,200}")


@click.command(short_help="Edit scenarios, watch runs and compare them in a browser.")
@click.argument("folder", required=False, type=FILE, default=Path())
@click.option("--runs", type=FILE, default=Path("runs"), show_default=True, metavar="FOLDER",
              help="Folder of runs; existing ones are the history.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True,
              help="Port to listen on; 0 takes a free port and prints it.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; any but loopback requires a token.")  # fmt: skip
@click.option("--attach", "attached", multiple=True, metavar="URL",
              help="Chart the metrics of a running gateway or server, at URL/metrics.")  # fmt: skip
def studio(folder: Path, runs: Path, port: int, host: str, attached: tuple[str, ...]) -> None:
    """Edit scenarios, watch runs and compare them in a browser.

    Serves the scenario files in FOLDER (default: the current one) and the runs in --runs. Errors
    are shown while you type, charts update during a run, and a click explains a slow request.
    Ctrl-C stops it. The environment variable WINDTUNNEL_STUDIO_TOKEN may hold the token.
    """
    from windtunnel.live.serving import EVERYWHERE, listen, run
    from windtunnel.studio.app import Studio, is_loopback, new_token

    if folder.is_file():
        hint = f"give its folder, {folder.parent}, and choose it there"
        raise InputError("this is a file", where=str(folder), hint=hint)
    if not folder.is_dir():
        raise InputError("there is no such folder", where=str(folder))
    if runs.exists() and not runs.is_dir():
        raise InputError("this is not a folder", where=f"--runs {runs}")
    for url in attached:
        _check_url(url)
    token = os.environ.get(TOKEN)
    if token is not None and not WELL_FORMED.fullmatch(token):
        allowed = "16 to 200 letters of A-Z, a-z, 0-9, - and _"
        raise InputError("this is not a token", where=TOKEN, allowed=allowed)
    if token is None and not is_loopback(host):
        token = new_token()
    served = Studio(folder, runs, attached)

    def build(_: asyncio.AbstractEventLoop) -> Any:
        return served.app(token)

    def ready(url: str) -> None:
        path = "/" if token is None else f"/?token={token}"
        click.echo(f"the studio is at {url}{path}")
        if host in EVERYWHERE:
            port_taken = url.rpartition(":")[2]
            there = f"http://{socket.gethostname()}:{port_taken}{path}"
            click.echo(f"from other machines, by this one's name or address: {there}")

    try:
        run(build, listen(host, port), ready)
    finally:
        served.close()


def _check_url(url: str) -> None:
    allowed = "the address of a program, as in http://127.0.0.1:8081"
    what = address_fault(url)
    if what:
        raise InputError(what, where="--attach", allowed=allowed)
