"""Small clusters and gangs for the tests of placement."""

from windtunnel.core.taints import Taint
from windtunnel.gangs.placement.placer import Member, Pass, Victim
from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    PodShape,
    UnboundPod,
)
from windtunnel.gangs.placement.space import Space

GPU = "nvidia.com/gpu"


def cluster(
    *racks: list[int], block_of: list[int] | None = None, taints: dict[str, Taint] | None = None
) -> Space:
    """A list of GPUs by node for each rack; racks are in block 0 unless said otherwise."""
    space = Space()
    space.add_topology("t", ["block", "rack", "host"])
    for number, rack in enumerate(racks):
        block = block_of[number] if block_of is not None else 0
        for place, gpus in enumerate(rack):
            name = f"n{number}{place}"
            labels = {"block": f"b{block}", "rack": f"r{number}", "host": name}
            labels["kubernetes.io/hostname"] = name  # as every kubelet sets it
            own = () if taints is None or name not in taints else (taints[name],)
            space.add_node(name, {GPU: gpus}, labels, own)
    return space


def group(
    space: Space,
    name: str,
    minimum: int,
    gpus: int = 1,
    *,
    pods: int = 0,
    pack: PackConstraint | None = None,
) -> GroupRequest:
    return GroupRequest(name, minimum, waiting(space, name, pods or minimum, gpus), pack=pack)


def waiting(space: Space, name: str, count: int, gpus: int = 1) -> list[UnboundPod]:
    shape = one(space, gpus)
    return [UnboundPod(f"{name}-{number}", shape) for number in range(count)]


def one(space: Space, gpus: int) -> PodShape:
    return space.shape({GPU: gpus})


def nodes_of(done: Pass, prefix: str = "") -> list[str]:
    return sorted(binding.node for binding in done.bindings if binding.pod.startswith(prefix))


def rack_of(node: str) -> str:
    return node[1]


def says(done: Pass) -> dict[str, str]:
    return {verdict.gang: verdict.says for verdict in done.verdicts}


def running(space: Space, gang: GangRequest, done: Pass) -> Victim:
    """A gang that a pass placed, as one that could make way."""
    shapes = {pod.name: pod.shape for request in gang.groups for pod in request.pods}
    minima = {pod.name for request in gang.groups for pod in request.pods[: request.minimum]}
    members = [
        Member(binding.pod, binding.node, shapes[binding.pod], extra=binding.pod not in minima)
        for binding in done.bindings
        if binding.gang == gang.name
    ]
    return Victim(gang.name, gang.priority, gang.order, members)


def free_gpus(space: Space) -> list[int]:
    number = space.resources[GPU]
    return [node.free[number] for node in space.nodes]
