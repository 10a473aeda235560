"""How probes determine the start of a pod, as a kubelet counts them.

A container is *started* once it runs and its startup probe, if it has one, has passed; its other
probes begin then. It is *ready* once its readiness probe has passed often enough; without one, as
soon as it is started. A probe runs every `periodSeconds` after `initialDelaySeconds`; a startup or
liveness probe that fails `failureThreshold` times in a row gets the container killed. All probes
fail until the container has loaded what it serves, and pass from then on.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from windtunnel.core.units import format_duration
from windtunnel.gangs.objects import PodCliqueSet
from windtunnel.gangs.templates import CliqueTemplate, SetSpec
from windtunnel.gangs.view import View
from windtunnel.settings.limits import USUAL_RECYCLES

NOT_KILLED: Final = math.inf


class Probe(NamedTuple):
    """When a probe runs, and how many results count; defaults as in Kubernetes."""

    delay_s: float
    period_s: float
    failures: int
    successes: int

    def passed_s(self, from_s: float, load_s: float) -> float:
        """When it has passed often enough, if it runs from `from_s` on."""
        first_s = max(from_s, self.delay_s)
        late = math.ceil(max(0.0, load_s - first_s) / self.period_s)
        return first_s + (late + self.successes - 1) * self.period_s

    def killed_s(self, load_s: float) -> float:
        """When it has failed too often, if that is before the container has loaded."""
        last_s = self.delay_s + (self.failures - 1) * self.period_s
        return last_s if last_s < load_s else NOT_KILLED


def probe_of(container: Mapping[str, Any], key: str) -> Probe | None:
    found = container.get(key)
    if not isinstance(found, dict):
        return None
    period_s = max(1.0, _number(found, "periodSeconds", 10.0))
    failures = max(1, int(_number(found, "failureThreshold", 3.0)))
    successes = max(1, int(_number(found, "successThreshold", 1.0)))
    return Probe(_number(found, "initialDelaySeconds", 0.0), period_s, failures, successes)


def _number(probe: Mapping[str, Any], key: str, default: float) -> float:
    found = probe.get(key)
    return float(found) if isinstance(found, int | float) else default


class PodStart(NamedTuple):
    """The start of a pod, in seconds after its containers run."""

    unready: list[tuple[float, float]]
    """The intervals in which a container is started but not ready."""
    ready_s: float
    killed_s: float
    """When a probe that failed too often gets a container killed; infinity for never."""

    def unready_s(self) -> float:
        """The longest time for which it counts as started but not ready."""
        return max((end_s - start_s for start_s, end_s in self.unready), default=0.0)


def pod_start(pod_spec: Mapping[str, Any], load_s: float, *, serves: bool) -> PodStart:
    """The start of a pod that takes `load_s` to load.

    A pod that `serves` requests of a simulation gets none before it has loaded, whatever its
    probes; any other is ready when its probes say so.
    """
    unready: list[tuple[float, float]] = []
    ready_s, killed_s = 0.0, NOT_KILLED
    containers = pod_spec.get("containers")
    for container in containers if isinstance(containers, list) else []:
        startup, readiness, liveness = (
            probe_of(container, key) for key in ("startupProbe", "readinessProbe", "livenessProbe")
        )
        started_s = 0.0 if startup is None else startup.passed_s(0.0, load_s)
        if serves and readiness is None:
            started_s = max(started_s, load_s)
        up_s = started_s if readiness is None else readiness.passed_s(started_s, load_s)
        deadly = liveness if startup is None else startup
        if deadly is not None:
            killed_s = min(killed_s, deadly.killed_s(load_s))
        if started_s < up_s:
            unready.append((started_s, up_s))
        ready_s = max(ready_s, up_s)
    if serves and not containers:
        ready_s = load_s
    return PodStart(unready, ready_s, killed_s)


# Starts that take longer than a gang's termination delay.


def slow_start(
    spec: SetSpec, clique: CliqueTemplate, load_s: float, *, serves: bool
) -> tuple[float, float] | None:
    """The termination delay and the loading time of a clique whose pods are unready for longer than
    the delay; otherwise None."""
    delay_s = spec.delay_s(spec.group_of.get(clique.name))
    start = pod_start(clique.pod_spec, load_s, serves=serves)
    return (delay_s, load_s) if delay_s < start.unready_s() else None


def start_warnings(spec: SetSpec, load_s: float) -> list[str]:
    """Warnings about cliques whose gang would be terminated before it is ready, and about probes
    that kill."""
    said = []
    for clique in spec.cliques:
        slow = slow_start(spec, clique, load_s, serves=False)
        if slow is not None:
            said.append(
                f"clique {clique.name!r}: the termination delay, {format_duration(slow[0])}, is "
                f"shorter than loading, {format_duration(load_s)}: its gang would be terminated "
                "before it is ready, again and again; a startup probe holds that off"
            )
        killed_s = pod_start(clique.pod_spec, load_s, serves=False).killed_s
        if killed_s < NOT_KILLED:
            said.append(
                f"clique {clique.name!r}: a probe kills its container after "
                f"{format_duration(killed_s)}, before it has loaded ({format_duration(load_s)})"
            )
    return said


def recycle_loops(view: View, load_s: float, *, serves: bool) -> list[str]:
    """Descriptions of what was terminated again and again before it was ready, and why."""
    said = []
    for name, owner in sorted(view.sets.items()):
        for replica, times in owner.status.futile.items():
            if times >= USUAL_RECYCLES:
                said.append(_loop(owner, f"{name}-{replica}", times, load_s, serves=serves))
    for name, group in sorted(view.groups.items()):
        whole = view.sets.get(group.set_name)
        for index, times in group.status.futile.items():
            if whole is not None and times >= USUAL_RECYCLES:
                said.append(_loop(whole, f"{name}-{index}", times, load_s, serves=serves))
    return said


def _loop(owner: PodCliqueSet, what: str, times: int, load_s: float, *, serves: bool) -> str:
    why = recycle_cause(owner, load_s, serves=serves)
    return f"{what} recycled {times} times{f': {why}' if why else ' before it was ready'}"


def recycle_cause(owner: PodCliqueSet, load_s: float, *, serves: bool) -> str:
    """Why gangs of a set are terminated before they are ready; empty when their start is not the
    cause."""
    for clique in owner.spec.cliques:
        slow = slow_start(owner.spec, clique, load_s, serves=serves)
        if slow is not None:
            delay, loading = format_duration(slow[0]), format_duration(slow[1])
            return f"delay {delay} is shorter than loading, {loading}"
    return ""
