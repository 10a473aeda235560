"""`windtunnel operate`: gangs, placement, autoscaling and machines on a Kubernetes API server."""

from __future__ import annotations

import os
from pathlib import Path

import click

from windtunnel.cli.options import FILE, MEMORY, TIME, option
from windtunnel.core.errors import InputError

INIT_IMAGE = "GROVE_INIT_CONTAINER_IMAGE"


@click.group(invoke_without_command=True,
             short_help="Run gangs, placement, autoscaling and machines on "
             "Kubernetes.")  # fmt: skip
@click.option("--kubeconfig", type=FILE, metavar="FILE",
              help="Access to the cluster. [default: KUBECONFIG, the pod's service account, "
              "~/.kube/config]")  # fmt: skip
@click.option("--context", default="", metavar="NAME",
              help="Context of the kubeconfig. [default: the current context]")  # fmt: skip
@click.option("--namespace", default="", metavar="NAME",
              help="Only this namespace. [default: all]")  # fmt: skip
@click.option("--lease-namespace", default="", metavar="NAME",
              help="Namespace of the leader's Lease and the webhooks' certificate. [default: that "
              "of the kubeconfig or the service account]")  # fmt: skip
@click.option("--init-image", default=None, metavar="IMAGE",
              help="Image of the init container that enforces the startup order of cliques. "
              f"[default: ${INIT_IMAGE}]")  # fmt: skip
@click.option("--no-gangs", is_flag=True,
              help="Do not manage PodCliqueSets: for --autoscale and --fleet on clusters "
                   "without Grove's kinds.")  # fmt: skip
@click.option("--place", is_flag=True,
              help="Also bind pods with `schedulerName: windtunnel`, gang by gang.")  # fmt: skip
@click.option("--autoscale", is_flag=True,
              help="Also scale the targets of Autoscalers and Kthena policies.")  # fmt: skip
@click.option("--prometheus", default="", metavar="URL",
              help="Prometheus server for Autoscalers with `metrics.source: "
              "prometheus`.")  # fmt: skip
@click.option("--prometheus-token-file", type=FILE, metavar="FILE",
              help="Bearer token, sent to that server only.")  # fmt: skip
@option("--canary", FILE, "Folder with the scenarios and recorded traffic for checks of changed"
                          " policies (`canary`).", metavar="FOLDER")  # fmt: skip
@option("--canary-memory", MEMORY, "Memory limit of a canary check.", "768MiB", metavar="SIZE")
@option("--canary-timeout", TIME, "Time limit of a canary check.", "10min", metavar="TIME")
@click.option("--fleet", type=FILE, metavar="FILE",
              help="Also get machines for unschedulable pods; FILE has the sections `fleet` (as "
                   "in a scenario) and `live.fleet`.")  # fmt: skip
@click.option("--webhook-port", type=click.IntRange(0, 65535), default=None, metavar="PORT",
              help="Serve the validating and defaulting webhooks of PodCliqueSets on this port, "
              "with generated certificates; not in a dry run. [default: no webhooks]")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=9445, metavar="PORT",
              help="Port of /metrics, /healthz and /readyz; 0 takes a free port. "
              "[default: 9445]")  # fmt: skip
@click.option("--host", metavar="ADDRESS",
              help="Address of these ports. [default: all addresses in a pod, otherwise "
              "127.0.0.1]")  # fmt: skip
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write observations and decisions to this event log. It is rotated at "
              "256 MiB, and 16 rotated files are kept.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Observe and decide without writing to the cluster.")  # fmt: skip
@click.pass_context
def operate(
    context_of: click.Context,
    *,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    lease_namespace: str,
    init_image: str | None,
    metrics_port: int,
    host: str | None,
    webhook_port: int | None,
    log: Path | None,
    dry_run: bool,
    no_gangs: bool,
    place: bool,
    autoscale: bool,
    prometheus: str,
    prometheus_token_file: Path | None,
    canary: Path | None,
    canary_memory: float,
    canary_timeout: float,
    fleet: Path | None,
) -> None:
    """Run gangs, placement, autoscaling and machines on Kubernetes.

    The gang controllers manage PodCliqueSets as in a simulation: create pods behind gates, start
    them in order, terminate gangs that stay below their minimum, roll out changes. With --place,
    pods are bound to nodes gang by gang. With --autoscale, Autoscalers and Kthena policies scale
    gangs, Deployments and other targets. With --fleet, unschedulable pods get machines, and
    machines that are no longer needed are given back.

    If several operators run, only the holder of the Lease acts. SIGHUP reloads the kubeconfig;
    SIGTERM or Ctrl-C finishes pending writes, releases the Lease and stops.
    """
    if context_of.invoked_subcommand is not None:
        return
    from windtunnel.live.admin import log_to_stderr
    from windtunnel.live.kubernetes.config import check_namespace
    from windtunnel.live.operate.program import (
        OperatorOptions,
        OperatorProgram,
        operator_log,
        run_operator,
        usual_host,
    )

    check_namespace(namespace, "--namespace")
    check_namespace(lease_namespace, "--lease-namespace")
    if no_gangs and (place or webhook_port is not None or not (autoscale or fleet)):
        raise InputError(
            "--place and --webhook-port are for gangs"
            if place or webhook_port is not None
            else "nothing is left to do",
            where="--no-gangs",
            allowed="--autoscale and --fleet beside it",
        )
    image = os.environ.get(INIT_IMAGE, "") if init_image is None else init_image
    server = checks = file = None
    # What is not asked for is not loaded, so that the operator starts sooner.
    if prometheus or prometheus_token_file is not None:
        from windtunnel.live.operate.scaling.sources import prometheus_server

        server = prometheus_server(prometheus, prometheus_token_file, autoscale=autoscale)
    if canary is not None:
        from windtunnel.live.operate.scaling.canary import canary_options

        checks = canary_options(canary, canary_memory, canary_timeout, autoscale=autoscale)
    if fleet is not None:
        from windtunnel.live.operate.fleet.file import read_fleet_file, unpriced

        file = read_fleet_file(fleet)
        for sentence in unpriced(file):
            click.echo(f"note: {fleet}: {sentence}", err=True)
    options = OperatorOptions(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        lease_namespace=lease_namespace,
        host=usual_host(os.environ) if host is None else host,
        metrics_port=metrics_port,
        init_image=image,
        log=log,
        dry_run=dry_run,
        gangs=not no_gangs,
        placing=place,
        scaling=autoscale,
        prometheus=server,
        canary=checks,
        fleet=file,
        webhook_port=webhook_port,
    )
    log_to_stderr(operator_log)

    def ready(program: OperatorProgram) -> None:
        what = "nothing is written (dry run)" if dry_run else f"as {program.identity}"
        where = f"namespace {namespace}" if namespace else "all namespaces"
        click.echo(f"operating on {where}, {what}; metrics and probes on {program.admin_url}")

    program = run_operator(options, ready)
    decided = program.decided
    click.echo(f"stopped after {decided:,} decision{'' if decided == 1 else 's'}")


@operate.command(short_help="Print the CustomResourceDefinitions of the kinds that it manages.")
@click.option("--for", "features", multiple=True, type=click.Choice(["gangs", "autoscale"]),
              help="Only the kinds of this feature: Grove's for gangs, Autoscaler for "
              "autoscale. May be repeated. [default: all]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON List instead of YAML.")
def crds(*, features: tuple[str, ...], as_json: bool) -> None:
    """Print the CustomResourceDefinitions of Grove's kinds and of Autoscaler.

    Apply them before the first start:

    windtunnel operate crds | kubectl apply --server-side -f -
    """
    from windtunnel.gangs.kubernetes.crds import crds as gang_crds
    from windtunnel.scaling.kubernetes.crds import crds as scaling_crds

    kinds = {"gangs": gang_crds, "autoscale": scaling_crds}
    found = [one for name, of in kinds.items() if not features or name in features for one in of()]
    if as_json:
        import json

        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
        return
    import yaml

    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)
