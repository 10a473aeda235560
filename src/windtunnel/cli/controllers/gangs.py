"""`windtunnel gangs`: checks Grove manifests, and shows the objects they create on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import FILE, MOMENT, json_option
from windtunnel.cli.places import Output, keep_apart
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.gangs.api.load import Manifests
    from windtunnel.twin.kubernetes.settings import SimClusterSettings


@click.group(short_help="Check and explain manifests of gangs (PodCliqueSets).")
def gangs() -> None:
    """Check and explain gang manifests, and show how their pods are placed."""


@gangs.command(short_help="Check a file of manifests.")
@click.argument("file", type=FILE)
@click.option("--was", type=FILE, metavar="FILE",
              help="The applied version: also report changes of immutable fields.")  # fmt: skip
@click.option("--cluster", type=click.Path(path_type=Path), metavar="FILE",
              help="Cluster file: warn about gangs that would never become ready.")  # fmt: skip
@click.option("--grove", is_flag=True,
              help="Also report what Grove's API rejects, such as unknown fields.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
def validate(
    file: Path, was: Path | None, cluster: Path | None, *, grove: bool, as_json: bool
) -> None:
    """Check a file of Grove manifests, and list all errors."""
    from windtunnel.twin.kubernetes.probes import start_warnings

    found = _load(file, None if was is None else _load(was), grove=grove)
    times = _cluster(cluster, {}).times
    load_s = times.delays()["readiness"].mean_s
    warnings = {one.name: [*one.warnings, *start_warnings(one.spec, load_s)] for one in found.sets}
    if as_json:
        click.echo(
            json.dumps(
                {
                    "valid": True,
                    "kinds": list(found.kinds),
                    "skipped": list(found.foreign),
                    "warnings": warnings,
                }
            )
        )
        return
    for name, said in warnings.items():
        for warning in said:
            click.echo(f"{name}: note: {warning}")
    _note_skipped(found)
    notes = sum(map(len, warnings.values()))
    verdict = f"no errors (notes: {notes})" if notes else "nothing is wrong"
    click.echo(f"{file}: {', '.join(found.kinds)}: {verdict}")


@gangs.command(short_help="Show the objects that a file of manifests creates, as a tree.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.option("--yaml", "as_yaml", is_flag=True,
              help="Print the manifests of gangs, groups, cliques and pods.")  # fmt: skip
def render(file: Path, *, as_json: bool, as_yaml: bool) -> None:
    """Show the objects that a file of manifests creates, as a tree.

    The tree has gangs and their placement constraints, cliques with their pods and startup order,
    scaling groups, services and claims, as the controllers create them on an empty cluster.
    """
    from windtunnel.twin.kubernetes.render import lines_of, manifests_of, tree_of

    found = _load(file)
    _note_skipped(found)
    if as_json and as_yaml:
        raise InputError("--json and --yaml are two forms of the answer", hint="leave one out")
    if not found.sets:
        what = f"there is no PodCliqueSet in it, only {', '.join(found.kinds)}"
        raise InputError(what, where=str(file))
    if as_yaml:
        import yaml

        made = [one for asked in found.sets for one in manifests_of(asked, found.levels)]
        click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)
        return
    trees = [tree_of(one, found.levels) for one in found.sets]
    if as_json:
        click.echo(json.dumps([tree.as_json() for tree in trees], indent=2))
        return
    for tree in trees:
        for line in lines_of(tree):
            click.echo(line)


@gangs.command(short_help="Show gangs and why they wait: simulated from manifests, or live.")
@click.argument("file", type=FILE, required=False)
@click.option("--live", is_flag=True,
              help="Show the gangs of a Kubernetes cluster; nothing is simulated.")  # fmt: skip
@click.option("--kubeconfig", type=FILE, metavar="FILE",
              help="With --live: access to the cluster. [default: as kubectl]")  # fmt: skip
@click.option("--context", default="", metavar="NAME",
              help="With --live: context of the kubeconfig.")  # fmt: skip
@click.option("--namespace", default="", metavar="NAME",
              help="With --live: only gangs of this namespace. [default: all]")  # fmt: skip
@click.option("--cluster", type=FILE, metavar="FILE",
              help="Cluster file: machines, delays, events.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, 100_000), metavar="N",
              help="Instead of --cluster: number of machines. [default: 16]")  # fmt: skip
@click.option("--gpus", type=click.IntRange(0, 1024), metavar="N",
              help="Instead of --cluster: GPUs per machine. [default: 8]")  # fmt: skip
@click.option("--rack", type=click.IntRange(1, 100_000), metavar="N",
              help="Instead of --cluster: machines per rack. [default: 4]")  # fmt: skip
@click.option("--at", "at_s", type=MOMENT, metavar="TIME",
              help="Show the state at this time, such as 10m. [default: when nothing changes "
                   "any more]")  # fmt: skip
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of random draws. [default: 0]")
@click.option("--check", is_flag=True, help="Check the cluster's invariants after every event.")
@click.option("--wide", is_flag=True, help="Also show every pod and machine.")
@json_option("everything as JSON")
def status(
    file: Path | None,
    cluster: Path | None,
    at_s: float | None,
    seed: int,
    json_to: str | None,
    *,
    check: bool,
    wide: bool,
    live: bool,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    **machines: int | None,
) -> None:
    """Show gangs and why they wait: simulated from manifests, or live.

    Lists PodCliqueSets, gangs, their objects as a tree with conditions, events, and the reason why
    each waiting gang waits. With --live, shows the current state of a Kubernetes cluster instead
    of simulating one.
    """
    if live:
        _live_status(file, kubeconfig, context, namespace, json_to, wide=wide)
        return
    if file is None:
        raise InputError("there is no file to run", hint="name one, or look at a cluster (--live)")
    from windtunnel.core.units import format_duration
    from windtunnel.gangs.status import status_of
    from windtunnel.report.terminal.gangs import show_status
    from windtunnel.report.terminal.layout import screen
    from windtunnel.twin.kubernetes.build import LONGEST_S, play

    keep_apart({"the manifests": file, "--cluster": cluster}, {"--json": json_to})
    manifests = _load(file)
    if not manifests.sets:
        what = "there is no PodCliqueSet, so that nothing would run"
        raise InputError(what, where=str(file))
    with Output(json_to) as out:
        spec = _cluster(cluster, machines)
        played, loop = play(spec, manifests, at_s=at_s, seed=seed, check=check)
        found = status_of(played.view, loop.now_s)
        out.json(found)
    if not out.alone:
        show_status(found, screen(), wide=wide)
    _note_skipped(manifests)
    loops = played.recycle_loops()
    for sentence in loops:
        click.echo(f"note: {sentence}", err=True)
    if at_s is None and loops:
        click.echo("note: this would not end, and was stopped here", err=True)
    elif at_s is None and loop.next_s() < float("inf"):
        stopped = format_duration(LONGEST_S)
        click.echo(f"note: it had not settled after {stopped}, and was stopped there", err=True)


def _live_status(
    file: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    json_to: str | None,
    *,
    wide: bool,
) -> None:
    from windtunnel.live.operate.look import live_status
    from windtunnel.report.terminal.gangs import show_status
    from windtunnel.report.terminal.layout import screen

    if file is not None:
        raise InputError(f"--live shows a cluster, not {file}", hint="leave one of them out")
    with Output(json_to) as out:
        found = live_status(kubeconfig, context, namespace)
        out.json(found)
    if not out.alone:
        show_status(found, screen(), wide=wide, live=True)


def _cluster(path: Path | None, machines: dict[str, int | None]) -> SimClusterSettings:
    """The cluster of a file, or the uniform one that the options describe."""
    from windtunnel.twin.kubernetes.settings import load_cluster, plain_cluster

    if path is None:
        return plain_cluster(
            **{name: count for name, count in machines.items() if count is not None}
        )
    for name, count in machines.items():
        if count is not None:
            hint = "leave one of them out"
            raise InputError(f"--{name}: {path} says which machines there are", hint=hint)
    return load_cluster(path)


def _note_skipped(found: Manifests) -> None:
    """Reports skipped objects on standard error, so that standard output stays as requested."""
    if found.foreign:
        click.echo(f"note: not gangs, and skipped: {', '.join(found.foreign)}", err=True)


def _load(file: Path, was: Manifests | None = None, *, grove: bool = False) -> Manifests:
    from windtunnel.gangs.api.load import load_manifests

    return load_manifests(file, was, grove=grove)
