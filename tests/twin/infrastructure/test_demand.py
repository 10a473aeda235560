"""What a cluster asks its fleet for."""

from windtunnel.core.loop import Loop
from windtunnel.fleet.demand.cluster import ClusterDemand
from windtunnel.fleet.demand.demand import PATIENCE_S
from windtunnel.fleet.demand.requests import ACCELERATOR, GPU, MachineKind
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import Node
from windtunnel.gangs.placement.constraints import REQUIRED, apart_by_host, node_terms
from windtunnel.gangs.templates import CliqueTemplate, PackDomains, SetSpec
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver

RACK = "topology.kubernetes.io/rack"
SMALL = MachineKind({GPU: 4.0, "pods": 110.0}, {ACCELERATOR: "h200"})
LARGE = MachineKind({GPU: 8.0, "pods": 110.0}, {ACCELERATOR: "h200"})


class World:
    """Pods of one set, and what is asked for them."""

    def __init__(
        self,
        *kinds: MachineKind,
        pods: int,
        gpus: int,
        minimum: int = 1,
        same: bool = False,
        apart: str = "",
        terms: list[dict[str, object]] | None = None,
    ):
        self.server = ApiServer()
        self.view = self.server.view
        self.view.levels["plain"] = {"rack": RACK}
        spec: dict[str, object] = {"nodeSelector": {ACCELERATOR: "h200"}}
        if terms is not None:
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        if apart:
            selector = {"matchLabels": {"grove.io/podclique": f"main-0-{apart}"}}
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
        requests = {GPU: float(gpus)}
        role = CliqueTemplate("server", pods, minimum, spec, requests, f"h{gpus}")
        pack = PackDomains("plain", "rack", "") if same else None
        self.server.add_set("main", SetSpec(1, (role,), pack=pack), 0.0)
        self.cluster = SimCluster(self.server)
        self.loop = Loop(Driver(self.cluster, Controller))
        self.loop.wake()
        self.rows = ClusterDemand(self.view, list(kinds), "c", node_terms, apart_by_host)
        self.machines = 0

    def ask(self, now_s: float = 0.0) -> list[tuple[str, int, int]]:
        """Names, accelerators and machines of the rows."""
        rows = self.rows.look(now_s).rows
        return [(row.name, row.accelerators, row.machines) for row in rows]

    def join(self, row: str, gpus: float, now_s: float, rack: str = "r1") -> None:
        name = f"m{self.machines}"
        self.machines += 1
        self.rows.demand.hold(name, row, self.machines)
        labels = {ACCELERATOR: "h200", RACK: rack}
        self.cluster.add_node(Node(name, {GPU: gpus, "pods": 110.0}, labels), now_s)
        self.loop.run(now_s)
        self.loop.wake()
        self.loop.run(now_s + 1.0)


def test_pods_share_machines_that_are_on_their_way() -> None:
    world = World(LARGE, pods=5, gpus=2)
    assert world.ask() == [("c.1", 8, 1), ("c.2", 8, 1)]
    assert world.ask(10.0) == [("c.1", 8, 1), ("c.2", 8, 1)], "and do not ask twice"


def test_pods_that_keep_away_from_each_other_by_host_get_a_machine_each() -> None:
    """Of one that they keep away from others by they can share a machine."""
    world = World(LARGE, pods=3, gpus=2, apart="server")
    assert world.ask() == [("c.1", 8, 1), ("c.2", 8, 1), ("c.3", 8, 1)]
    for number in range(3):
        world.join(f"c.{number + 1}", 8.0, 20.0 + 5.0 * number)
    assert sorted(pod.node for pod in world.view.pods.values()) == ["m0", "m1", "m2"]
    assert len(world.ask(40.0)) == 3
    together = World(LARGE, pods=3, gpus=2, apart="server", same=True)
    assert together.ask() == [("c.1", 8, 3)], "in one rack, as one row"
    assert World(LARGE, pods=3, gpus=2, apart="other").ask() == [("c.1", 8, 1)]


def test_a_machine_that_the_affinity_of_a_pod_allows() -> None:
    gold = MachineKind(LARGE.capacity, {**LARGE.labels, "tier": "gold"})
    exists: dict[str, object] = {"key": "tier", "operator": "Exists"}
    either: list[dict[str, object]] = [
        {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["iron"]}]},
        {"matchExpressions": [exists, {"key": "size", "operator": "Gt", "values": ["1"]}]},
    ]
    world = World(SMALL, gold, pods=1, gpus=2, terms=either)
    assert world.ask() == [("c.1", 8, 1)]
    (row,) = world.rows.demand.rows
    assert [one.text() for one in row.need("c").profile.requirements] == [
        "tier:Exists:",
        f"{ACCELERATOR}:In:h200",
    ]
    assert World(SMALL, gold, pods=1, gpus=2, terms=either[:1]).ask() == []


def test_the_smallest_machine_that_holds_a_pod() -> None:
    assert World(LARGE, SMALL, pods=1, gpus=4).ask() == [("c.1", 4, 1)]
    assert World(LARGE, SMALL, pods=1, gpus=5).ask() == [("c.1", 8, 1)]


def test_a_pod_that_no_machine_holds_is_told() -> None:
    world = World(LARGE, pods=1, gpus=16)
    assert world.ask() == []
    assert len(world.rows.demand.unplaceable) == 1


def test_a_row_is_kept_while_its_machine_is_in_use() -> None:
    world = World(LARGE, pods=1, gpus=8)
    world.ask()
    world.join("c.1", 8.0, 20.0)
    assert world.ask(30.0) == [("c.1", 8, 1)]
    (pod,) = world.view.pods.values()
    assert pod.node == "m0"
    world.server.delete(world.view.sets["main"], 40.0)
    world.loop.run(40.0)
    world.loop.wake()
    world.loop.run(60.0)
    assert world.ask(70.0) == []


def test_a_row_that_nobody_remembers_is_kept_for_the_machine_in_use() -> None:
    world = World(LARGE, pods=1, gpus=8)
    world.join("earlier.7", 8.0, 20.0)
    assert world.ask(30.0) == [("earlier.7", 8, 1)]


def test_a_gang_that_must_be_together_asks_for_all_its_machines() -> None:
    world = World(LARGE, pods=3, gpus=8, minimum=3, same=True)
    assert world.ask() == [("c.1", 8, 3)]
    assert world.rows.demand.rows[0].same == RACK


def test_room_that_a_pod_does_not_get_is_no_room_for_it() -> None:
    """Two machines in two racks hold a gang that must be in one: nobody gets what is free."""
    world = World(LARGE, pods=2, gpus=8, minimum=2, same=True)
    world.join("a", 8.0, 1.0, rack="r1")
    world.join("b", 8.0, 1.0, rack="r2")
    assert [name for name, _, _ in world.ask(10.0)] == ["a", "b"]
    assert world.ask(10.0 + PATIENCE_S) == [("c.1", 8, 2)]
    assert world.ask(100.0 + 3 * PATIENCE_S) == [("c.1", 8, 2)], "and it is asked for once"
