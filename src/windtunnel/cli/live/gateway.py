"""`windtunnel gateway`: admission and routing in front of OpenAI-compatible servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import FILE, set_option

if TYPE_CHECKING:
    from windtunnel.live.gateway.program import GatewayProgram


@click.command(short_help="Put admission and routing in front of OpenAI-compatible servers.")
@click.argument("config", required=False, type=FILE)
@click.option("--server", "servers", multiple=True, metavar="URL",
              help="Server to route to, as in http://10.0.0.7:8000; may be repeated.")  # fmt: skip
@click.option("--host", default=None, help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=None,
              help="Port to listen on; 0 takes a free port. Metrics and /servers are on the next "
              "port, unless `live.admin` sets another. [default: 8080]")  # fmt: skip
@click.option("--picker-port", type=click.IntRange(1, 65535), default=None,
              help="Also serve as Envoy's Endpoint Picker on this port.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Send no request to a server; answer with the decision and its reason. For "
              "mirrored traffic.")  # fmt: skip
@set_option("Override a field of CONFIG, as in serving.router.policy=least-loaded.")
@click.option("--check", is_flag=True, help="Check the configuration without starting.")
def gateway(
    *,
    config: Path | None,
    servers: tuple[str, ...],
    host: str | None,
    port: int | None,
    picker_port: int | None,
    dry_run: bool,
    sets: tuple[str, ...],
    check: bool,
) -> None:
    """Put admission and routing in front of OpenAI-compatible servers.

    CONFIG has the sections `serving.router`, `serving.admission`, `serving.disaggregation` and
    `slo` of a scenario, with the same effect as in a simulation, and `live` with addresses, keys
    and limits. SIGHUP reloads it; SIGTERM or Ctrl-C finishes running answers, then stops.

    A request may name its class of service in a header, as in `x-slo-class: interactive`. If
    CONFIG lists keys, it must send one as OpenAI's clients do: `authorization: Bearer KEY`.
    """
    from windtunnel.live.admin import log_to_stderr
    from windtunnel.live.gateway.program import check_start, gateway_log, run_gateway
    from windtunnel.live.gateway.settings import (
        DEFAULT_PORT,
        Configuration,
        read_settings,
        split_address,
    )

    def shown_host(name: str) -> str:
        return f"[{name}]" if ":" in name else name

    def read() -> Configuration:
        listen = f"live.picker.listen={shown_host(host or '127.0.0.1')}:{picker_port}"
        more = () if picker_port is None else (listen,)
        if dry_run:
            more = (*more, "live.dry_run=true")
        found = read_settings(config, (*sets, *more), servers)
        if host is None and port is None:
            return found
        settings = found.settings
        written = split_address(settings.live.listen)
        assert written is not None
        shown = shown_host(host if host is not None else written.host)
        used = port if port is not None else (written.port if host is None else DEFAULT_PORT)
        live = settings.live.model_copy(update={"listen": f"{shown}:{used}"})
        return found._replace(settings=settings.model_copy(update={"live": live}))

    configuration = read()
    settings = configuration.settings
    if check:
        check_start(settings.live, os.environ)
        click.echo("the configuration is valid")
        return
    log_to_stderr(gateway_log)

    def ready(url: str, program: GatewayProgram) -> None:
        live = settings.live
        count = len(live.servers)
        sources = [f"{count} server{'s' if count != 1 else ''}"] if count else []
        sources += [f"servers in {live.servers_file}"] if live.servers_file else []
        sources += [f"servers of {one.name}" for one in live.servers_dns]
        sources += [f"servers of the {one.kind} {one.place}" for one in live.servers_kubernetes]
        router = settings.serving.router.policy
        admission = settings.serving.admission.policy
        policies = ", ".join((*sources, f"{router} routing", f"{admission} admission"))
        if live.dry_run:
            policies += "; dry run: no request is sent to a server"
        click.echo(f"listening on {url}: {policies}; metrics and /servers on {program.admin_url}")

    program = run_gateway(configuration, ready, read)
    ended = program.proxy.metrics.answered
    click.echo(f"stopped; {ended} request{'s were' if ended != 1 else ' was'} answered or refused")
