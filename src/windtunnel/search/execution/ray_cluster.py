"""Runs plans on Ray: a local instance started here, or an existing cluster.

A task is one run, and its result does not depend on where it ran. Every machine of a cluster needs
the same code (its digest is checked) and the files that a scenario names, under the same paths. A
task whose worker dies is retried a few times.
"""

import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from windtunnel.core.errors import InputError, WindtunnelError, os_reason
from windtunnel.core.system.extras import need
from windtunnel.core.system.processes import processors
from windtunnel.search.measure import Answers, FailedRun, Outcome, measured
from windtunnel.search.point import code_digest
from windtunnel.twin.scenario.plan import ScenarioPlan

LOCAL, RAY, AUTO, ADDRESS = "local", "ray", "auto", "ray://"
ALLOWED = "local, ray (starts one here), auto (the one running here), ray://HOST:PORT"
USUAL_PORT = 10001
PATIENCE_S = 5.0
"""Timeout for reaching a cluster."""
RETRIES = 3
"""How often a task is retried after its worker died."""
AHEAD = 2
"""Tasks submitted per processor, so that no worker waits for the next one."""


def check_place(on: str) -> None:
    """Rejects an unknown place, or Ray where it is not installed, before anything runs."""
    if on == LOCAL:
        return
    if on not in (RAY, AUTO) and not on.startswith(ADDRESS):
        raise InputError(f"{on!r} is not a place to run", where="--on", allowed=ALLOWED)
    needed = ["ray", "grpc"] if on.startswith(ADDRESS) else ["ray"]
    for name in needed:
        need(name, f"--on {on}", "ray", "Ray is not installed")


def run_there(
    code: str, plan: ScenarioPlan, memory_bytes: int | None, processes: int
) -> Outcome | str:
    """Runs one point on a worker: returns its outcome, or its code digest if that is not the
    sweep's.

    The `processes` workers of a machine may together use `memory_bytes` (None: most of its memory).
    """
    ours = code_digest()
    return measured(plan, memory_bytes, processes) if ours == code else ours


class RayCluster:
    """A connection to Ray."""

    def __init__(self, ray: Any, on: str, jobs: int | None, memory_bytes: int | None) -> None:
        self._ray = ray
        self._on = on
        self._memory_bytes = memory_bytes
        cpus = int(ray.cluster_resources().get("CPU", 1))
        self._at_once = AHEAD * max(cpus, 1) if jobs is None else jobs
        widest = max((int(one["Resources"].get("CPU", 0)) for one in ray.nodes()), default=1)
        self._processes = max(1, min(self._at_once, widest))  # at once on one machine, at most
        self._task = ray.remote(run_there).options(num_cpus=1, max_retries=RETRIES)
        self._code = code_digest()

    def evaluate(self, plans: Sequence[ScenarioPlan]) -> Answers:
        """Yields the outcomes of all plans as they end, each with the index of its plan."""
        flying: dict[Any, int] = {}
        begun = 0
        try:
            while begun < len(plans) or flying:
                while begun < len(plans) and len(flying) < self._at_once:
                    task = self._task.remote(
                        self._code, plans[begun], self._memory_bytes, self._processes
                    )
                    flying[task] = begun
                    begun += 1
                ended, _ = self._ray.wait(list(flying), num_returns=1)
                for task in ended:
                    yield flying.pop(task), self._outcome(task)
        finally:
            for task in flying:
                with suppress(Exception):  # whatever a cluster raises that is shutting down
                    self._ray.cancel(task, force=True)

    def _outcome(self, task: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            answer: Outcome | str = self._ray.get(task)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
            hint = "memory may have been short: fewer --jobs leave more to each"
            what = f"its worker process died during the run, {RETRIES + 1} times ({hint})"
            return FailedRun(what)
        except errors.RayError as error:
            raise self._refused(error) from error
        if isinstance(answer, str):
            what = "the cluster has different Windtunnel code than this machine"
            hint = f"install the same version there: {self._code[:12]} here, {answer[:12]} there"
            raise WindtunnelError(what, where=f"--on {self._on}", hint=hint)
        return answer

    def _refused(self, error: Exception) -> WindtunnelError:
        reason = str(error).strip().splitlines()[-1]
        hint = "every machine of the cluster needs windtunnel, and the files that a scenario names"
        return WindtunnelError(
            f"the cluster cannot run points: {reason}", where=f"--on {self._on}", hint=hint
        )


@contextmanager
def connected(on: str, jobs: int | None, memory_bytes: int | None = None) -> Iterator[RayCluster]:
    """Connects to a cluster for the duration of the context; an existing connection is left open.

    The runs on one of its machines may together use `memory_bytes` (None: most of its memory).
    """
    check_place(on)
    if on.startswith(ADDRESS):
        _refuse_the_unreachable(on)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    import ray

    before = ray.is_initialized()
    if not before:
        _begin(ray, on, jobs)
    try:
        yield RayCluster(ray, on, jobs, memory_bytes)
    finally:
        if not before:
            ray.shutdown()


def _begin(ray: Any, on: str, jobs: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says the same, once
            if on == RAY:
                cpus = jobs or processors()
                ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
            else:
                ray.init(address=on, **quiet)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        what = f"no running Ray was found: {reason}"
        hint = "`ray start --head` starts one, `--on ray` needs none"
        if on == RAY:
            what = f"Ray did not start: {reason}"
            hint = "its logs say why: /tmp/ray/session_latest/logs"
        if on.startswith(ADDRESS):  # the port accepted a connection
            what = f"the cluster answers, but refuses the connection: {reason}"
            hint = "if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to its own"
        raise WindtunnelError(what, where=f"--on {on}", hint=hint) from error


def _refuse_the_unreachable(on: str) -> None:
    """Tries the port first: Ray itself would retry for minutes."""
    host, _, port = on.removeprefix(ADDRESS).partition(":")
    where = f"--on {on}"
    if not host or not (port or str(USUAL_PORT)).isdecimal():
        raise InputError("this is not an address", where=where, allowed="ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port or USUAL_PORT)), timeout=PATIENCE_S).close()
    except OSError as error:
        hint = "check its address, and that it runs; `ray start --head` starts one"
        what = f"the cluster cannot be reached: {os_reason(error)}"
        raise WindtunnelError(what, where=where, hint=hint) from error
