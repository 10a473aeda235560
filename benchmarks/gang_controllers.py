"""The gang controllers, compiled: 1,000 set replicas with 10,000 pods, at start, rest and loss.

A replica has ten pods in one gang: two of a standalone role, and two replicas of a scaling group of
one and three. Planning goes from an empty cluster to the last command, with pods placed and ready;
the simulated API server executes the commands in memory.
"""

from benchmarks.claim import Claim, insist_on_compiled, report
from windtunnel.core.clock import cpu_s
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import RUNNING, Pod
from windtunnel.gangs.templates import CliqueTemplate, GroupTemplate, SetSpec
from windtunnel.gangs.view import View
from windtunnel.twin.kubernetes.api_server import ApiServer

REPLICAS = 1_000
PODS = 10_000


def asked(replicas: int) -> SetSpec:
    def role(name: str, count: int) -> CliqueTemplate:
        return CliqueTemplate(name, count, count, {}, {"nvidia.com/gpu": 1.0}, f"hash-{name}")

    roles = (role("router", 2), role("leader", 1), role("worker", 3))
    return SetSpec(replicas, roles, (GroupTemplate("serve", ("leader", "worker"), 2, 2),), hash="1")


def settle(server: ApiServer, controller: Controller, now_s: float) -> int:
    """Executes commands until there are none; returns how many there were."""
    count = 0
    while commands := controller.reconcile(now_s):
        for command in commands:
            server.apply(command, now_s)
        count += len(commands)
    return count


def run(server: ApiServer, pod: Pod, now_s: float) -> None:
    pod.node, pod.scheduled_s = f"n{pod.uid}", now_s
    pod.phase, pod.started, pod.ready, pod.ready_s = RUNNING, True, True, now_s
    server.wrote(pod)


def planned() -> tuple[ApiServer, Controller, float]:
    """Plans the cluster from nothing, and returns the seconds that the controllers took."""
    server = ApiServer()
    view = server.view
    controller = Controller(view)
    server.add_set("web", asked(REPLICAS), 0.0)
    started_s = cpu_s()
    settle(server, controller, 0.0)
    took_s = cpu_s() - started_s
    assert len(view.pods) == PODS
    assert not any(pod.gated for pod in view.pods.values())
    for pod in view.pods.values():
        run(server, pod, 1.0)
    settle(server, controller, 1.0)
    assert view.sets["web"].status.available == REPLICAS
    return server, controller, took_s


def settled_s(view: View) -> float:
    """Seconds of a full reconciliation of a settled cluster, as after a restart."""
    controller = Controller(view)
    started_s = cpu_s()
    commands = controller.reconcile(2.0)
    took_s = cpu_s() - started_s
    assert commands == []
    controller.close()
    return took_s


def lost_s(server: ApiServer, controller: Controller, number: int) -> float:
    """Seconds from the loss of one pod to the last command about it."""
    view = server.view
    pod = list(view.pods.values())[number]
    server.delete_pod(pod, 3.0)
    server.remove_pod(pod)
    started_s = cpu_s()
    settle(server, controller, 3.0)
    took_s = cpu_s() - started_s
    assert len(view.pods) == PODS
    for one in list(view.pods.values())[-1:]:
        run(server, one, 3.0)
    settle(server, controller, 3.0)
    return took_s


def main() -> None:
    insist_on_compiled()
    runs = [planned() for _ in range(3)]
    server, controller, _ = runs[-1]
    rows = [
        ("plan 1,000 set replicas with 10,000 pods", min(run[2] for run in runs), 1.0),
        (
            "look at them when nothing is to be done",
            min(settled_s(server.view) for _ in range(5)),
            0.020,
        ),
        (
            "one pod lost among them",
            min(lost_s(server, controller, n) for n in (3, 50, 700)),
            0.002,
        ),
    ]
    for name, ours, most_s in rows:
        report(
            Claim(
                name,
                ours=ours * 1000,
                baseline=most_s * 1000,
                most=1.0,
                unit="CPU ms",
                against="the target",
            )
        )


if __name__ == "__main__":
    main()
