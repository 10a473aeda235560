"""`windtunnel rehearse`: runs a scenario on a real API server, and compares its simulation."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import FILE, json_option, output_option, seed_option, set_option
from windtunnel.cli.places import Output, folder_of, in_folder, keep_apart, traces_of
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.live.rehearse.program import LiveRun, Rehearsal

EXIT_DIFFERS = 1
DATA = "rehearsal.json"
LOGS = ("operator.jsonl", "gateway.jsonl", "gateway.yaml", "operate.stderr", "gateway.stderr")


@click.command(short_help="Run a scenario on a real API server, and compare with its simulation.")
@click.argument("scenario", type=FILE)
@click.option("--apiserver", type=FILE, metavar="FILE",
              help="API server binary to start. [default: the newest one that `make apiserver` "
              "has built]")  # fmt: skip
@click.option("--kubeconfig", type=FILE, metavar="FILE",
              help="Use this cluster instead. Simulated nodes are added to it: use a test "
                   "cluster.")  # fmt: skip
@set_option()
@seed_option("Override the scenario's seed.")
@output_option("runs/rehearse-NAME", "rehearsal.json and the logs of the operator and the gateway")
@json_option("rehearsal.json")
@click.pass_context
def rehearse(
    context: click.Context,
    *,
    scenario: Path,
    apiserver: Path | None,
    kubeconfig: Path | None,
    sets: tuple[str, ...],
    seed: int | None,
    output: str | None,
    json_to: str | None,
) -> None:
    """Run a scenario on a real API server, and compare with its simulation.

    `operate` and `gateway` run as in production, with simulated nodes and kubelets and emulated
    servers. The scenario's requests are sent in real time and its faults are injected. Then every
    decision, the latencies and SLO attainment are compared with the simulation. Without
    --kubeconfig, an API server is started on loopback.

    Exit codes: 0 no difference, or all explained by measured delays; 1 something differs; 2 bad
    input.
    """
    from windtunnel.analysis.rehearsal import compare
    from windtunnel.cli.live.rehearsed import RehearsedScenario
    from windtunnel.core.system.extras import need
    from windtunnel.report.files.folder import result_bytes
    from windtunnel.report.terminal.rehearsal import shown

    need("cryptography", "rehearse", "kubernetes")
    if apiserver is not None and kubeconfig is not None:
        what = "one of them says where the API server is"
        raise InputError(what, where="--apiserver --kubeconfig", hint="leave one of them out")
    found = RehearsedScenario(scenario, sets, seed)
    plan = found.plan
    place = folder_of(output, json_to, f"rehearse-{plan.name}")
    keep_apart(
        {"the scenario": scenario, "--kubeconfig": kubeconfig, **traces_of(plan)},
        {**in_folder(place, (DATA, *LOGS)), "--json": json_to},
    )
    with Output(json_to) as out:
        folder = out.folder(place)
        with _scratch() as scratch:
            simulated = found.simulated()
            rehearsal = found.rehearsal()
            live = _run(rehearsal, apiserver, kubeconfig, scratch)
            comparison = compare(
                simulated, found.rehearsed(live), live.delays, [*plan.notes, *found.notes]
            )
            data = found.as_data(comparison)
            if folder is not None:
                logs = {name: (scratch / name).read_bytes() for name in LOGS}
                folder.put({DATA: result_bytes(data), **logs})
        out.json(data)
    if not out.alone:
        for line in shown(comparison, plan.name, folder.path if folder is not None else None):
            click.echo(line)
    context.exit(0 if comparison.agree else EXIT_DIFFERS)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder for logs, kept if a program has failed."""
    from windtunnel.live.rehearse.program import ProgramFailed

    path = Path(tempfile.mkdtemp(prefix="windtunnel-rehearse-"))
    try:
        yield path
    except ProgramFailed:
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


def _run(
    rehearsal: Rehearsal, apiserver: Path | None, kubeconfig: Path | None, folder: Path
) -> LiveRun:
    from windtunnel.core.random import fresh_seed
    from windtunnel.live.rehearse.control_plane import KubernetesControlPlane, built_binary
    from windtunnel.live.rehearse.program import rehearse as play
    from windtunnel.live.system import new_loop
    from windtunnel.report.terminal.progress import status_line

    space = f"windtunnel-rehearsal-{fresh_seed() & 0xFFFFFFFF:08x}"
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(status_line(sys.stderr, patience_s=0.0))

        def say(what: str) -> None:
            if line is not None:
                line.show(lambda _: what)

        if kubeconfig is None:
            binary = built_binary() if apiserver is None else _executable(apiserver)
            say("starting an API server")
            plane = folder / "plane"
            plane.mkdir()
            kubeconfig = stack.enter_context(KubernetesControlPlane(plane, binary)).kubeconfig
        runner = stack.enter_context(asyncio.Runner(loop_factory=new_loop))
        return runner.run(play(rehearsal, kubeconfig, space, folder, say))


def _executable(path: Path) -> Path:
    import os

    if not path.is_file() or not os.access(path, os.X_OK):
        what = "there is no program there that can be run"
        raise InputError(what, where=f"--apiserver {path}", hint="`make apiserver` builds one")
    return path
