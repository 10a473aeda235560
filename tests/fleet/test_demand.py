"""`Demand` asks for the same machines as the slow reference, whatever happens to pods and nodes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.reference_demand import ReferenceDemand, SlowNode, SlowPod
from windtunnel.core.taints import ALL_TAINTS, Toleration
from windtunnel.fleet.demand.demand import MOST_SPARE, Demand
from windtunnel.fleet.demand.requests import ACCELERATOR, CPU, GPU, TAINTS, MachineKind, PodRequest
from windtunnel.fleet.requirements import requirement

KINDS = [
    MachineKind({GPU: 8.0, CPU: 16.0}, {ACCELERATOR: "h200"}),
    MachineKind({GPU: 4.0, CPU: 8.0}, {ACCELERATOR: "h200"}),
    MachineKind({GPU: 8.0, CPU: 32.0}, {ACCELERATOR: "l4", "zone": "z"}),
    MachineKind({GPU: 2.0, CPU: 8.0}, {ACCELERATOR: "h200", TAINTS: "NoSchedule@team=a"}),
]
TOLERATIONS = [(), (), (ALL_TAINTS,), (Toleration("team", "Equal", "a", ""),)]
SELECTORS: list[dict[str, str]] = [{}, {ACCELERATOR: "h200"}, {ACCELERATOR: "l4", "zone": "z"}]
NOT_H200 = requirement(ACCELERATOR, "NotIn", ["h200"])
AFFINITIES = [
    (),
    (),
    ((requirement("zone", "DoesNotExist"),),),
    ((NOT_H200, requirement("zone", "In", ["y", "z"])), (requirement("zone", "Exists"),)),
]
APART: list[tuple[str, ...]] = [(), (), ("a",), ("b",), ("a", "b")]
RACK = "rack"


class Both:
    """The fast and the slow one, told the same."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw = draw
        self.fast, self.slow = Demand("c", KINDS), ReferenceDemand("c", KINDS)
        self.now_s = 0.0
        self.made = 0
        self.slow.together = {"g0": RACK}
        self.fast.gang("g0", RACK)
        self.slow.priorities = {"o1": 7}
        self.fast.prioritize("o1", 7)

    def pick(self, names: list[str]) -> str | None:
        return self.draw.draw(st.sampled_from(names)) if names else None

    def step(self) -> None:
        actions = [
            self.pods_come,
            self.pod_goes,
            self.pod_is_bound,
            self.pod_changes,
            self.machine_joins,
            self.machine_leaves,
            self.node_changes,
            self.row_changes,
            self.look,
        ]
        self.draw.draw(st.sampled_from(actions))()

    def pods_come(self) -> None:
        for _ in range(self.draw.draw(st.integers(1, 6))):
            self.made += 1
            requests = {GPU: float(self.draw.draw(st.sampled_from([0, 1, 2, 4, 8, 16])))}
            if self.draw.draw(st.booleans()):
                requests[CPU] = self.draw.draw(st.sampled_from([0.1, 3.0, 12.0]))
            request = PodRequest(
                f"p{self.made}",
                f"u{self.made}",
                requests,
                self.draw.draw(st.sampled_from(SELECTORS)),
                self.draw.draw(st.sampled_from(["g0", "g1"])),
                self.draw.draw(st.sampled_from(["o0", "o1"])),
                self.now_s,
                ("q", self.made),
                self.draw.draw(st.sampled_from(AFFINITIES)),
                self.draw.draw(st.sampled_from(TOLERATIONS)),
                self.draw.draw(st.sampled_from(APART)),
            )
            self.slow.pods[request.name] = SlowPod(request)
            self.tell(request.name)

    def tell(self, name: str) -> None:
        pod = self.slow.pods[name]
        pending = pod.active and not pod.node
        self.fast.pod(pod.request, pod.node, pending=pending, gated=pod.gated)

    def pod_goes(self) -> None:
        name = self.pick(list(self.slow.pods))
        if name is not None:
            del self.slow.pods[name]
            self.fast.pod_gone(name)

    def pod_is_bound(self) -> None:
        waiting = [name for name, pod in self.slow.pods.items() if pod.active and not pod.node]
        name, node = self.pick(waiting), self.pick(list(self.slow.nodes))
        if name is not None and node is not None:
            self.slow.pods[name].node = node
            self.tell(name)

    def pod_changes(self) -> None:
        name = self.pick(list(self.slow.pods))
        if name is not None:
            pod = self.slow.pods[name]
            pod.gated = self.draw.draw(st.booleans())
            pod.active = self.draw.draw(st.booleans())
            self.tell(name)

    def machine_joins(self) -> None:
        """A machine comes for a row that asks for one, or for one that nobody remembers."""
        self.made += 1
        name, kind = f"m{self.made}", self.draw.draw(st.sampled_from(KINDS))
        self.slow.nodes[name] = SlowNode(dict(kind.capacity), {**kind.labels, RACK: "r"})
        row = self.pick([*self.slow.rows, f"old.{self.made % 3}"])
        assert row is not None
        self.tell_node(name)
        self.slow.holders[name] = (row, self.made)
        self.fast.hold(name, row, self.made)

    def tell_node(self, name: str) -> None:
        node = self.slow.nodes[name]
        self.fast.node(name, node.capacity, node.labels, ready=node.ready, cordoned=node.cordoned)

    def machine_leaves(self) -> None:
        name = self.pick(list(self.slow.holders))
        if name is not None:
            del self.slow.holders[name]
            self.fast.release(name)
            if self.draw.draw(st.booleans()):
                del self.slow.nodes[name]
                self.fast.node_gone(name)
                for pod in [one for one in self.slow.pods if self.slow.pods[one].node == name]:
                    del self.slow.pods[pod]
                    self.fast.pod_gone(pod)

    def node_changes(self) -> None:
        name = self.pick(list(self.slow.nodes))
        if name is not None:
            node = self.slow.nodes[name]
            node.ready, node.cordoned = self.draw.draw(st.booleans()), self.draw.draw(st.booleans())
            self.tell_node(name)

    def row_changes(self) -> None:
        """The fleet counts a machine for another row."""
        name, row = self.pick(list(self.slow.holders)), self.pick(list(self.slow.rows))
        if name is not None and row is not None:
            rank = self.slow.holders[name][1]
            self.slow.holders[name] = (row, rank)
            self.fast.hold(name, row, rank)

    def look(self) -> None:
        self.now_s += self.draw.draw(st.sampled_from([0.0, 10.0, 30.0, 60.0]))
        before = {row.name for row in self.fast.rows}
        self.slow.look(self.now_s)
        self.fast.look(self.now_s)
        assert self.fast.rows == list(self.slow.rows.values())
        assert self.fast.unplaceable == self.slow.unplaceable
        assert (before - set(self.fast.dropped)) | set(self.fast.added) == set(self.slow.rows)
        self.fast.added.clear()
        self.fast.dropped.clear()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_same_machines_are_asked_for_as_by_the_reference(data: st.DataObject) -> None:
    both = Both(data)
    for _ in range(data.draw(st.integers(1, 60))):
        both.step()
    both.look()
    both.look()


def test_a_machine_is_asked_for_that_meets_the_affinity_of_a_pod() -> None:
    """The small h200 would do for its GPUs, but not for its affinity."""
    demand = Demand("c", KINDS)
    pod = PodRequest("p", "u", {GPU: 2.0}, {}, affinity=((NOT_H200,),))
    demand.pod(pod, "", pending=True, gated=False)
    demand.look(0.0)
    (row,) = demand.rows
    assert row.accelerators == 8
    assert NOT_H200 in row.need("c").profile.requirements
    assert demand.unplaceable == {}
    nowhere = ((requirement(ACCELERATOR, "In", ["tpu"]),),)
    demand.pod(PodRequest("q", "v", {}, {}, affinity=nowhere), "", pending=True, gated=False)
    demand.look(1.0)
    assert list(demand.unplaceable) == ["q"]


def test_a_machine_is_asked_for_whose_taints_a_pod_tolerates() -> None:
    """The smallest machines are tainted, and a machine that is there has another taint."""

    def asked(*tolerations: Toleration) -> tuple[int, list[str]]:
        demand = Demand("c", KINDS)
        pod = PodRequest("p", "p", {GPU: 2.0}, {}, tolerations=tolerations)
        demand.pod(pod, "", pending=True, gated=False)
        demand.node("n", {GPU: 8.0}, {TAINTS: "NoExecute@broken="}, ready=True, cordoned=False)
        demand.hold("n", "old", 0)
        demand.look(0.0)
        (row,) = demand.rows
        return row.accelerators, [one.text() for one in row.need("c").profile.requirements]

    assert asked() == (4, [f"{TAINTS}:NotIn:NoSchedule@team=a"])
    assert asked(TOLERATIONS[-1][0]) == (2, [])
    tainted = [MachineKind({GPU: 8.0}, {TAINTS: "NoSchedule@team=a"})]
    demand = Demand("c", tainted)
    for name, gpus in (("kept off", 8.0), ("too large", 9.0)):
        demand.pod(PodRequest(name, name, {GPU: gpus}, {}), "", pending=True, gated=False)
    demand.look(0.0)
    assert demand.unplaceable == {"kept off": True, "too large": False}


def test_what_is_kept_of_pods_does_not_grow_with_their_turnover() -> None:
    def pod(name: str, group: str) -> PodRequest:
        return PodRequest(name, name, {GPU: 1.0}, {ACCELERATOR: "h200"}, apart=(group,))

    demand, most = Demand("c", KINDS), 0
    for name in ("m0", "m1"):
        demand.node(name, KINDS[0].capacity, KINDS[0].labels, ready=True, cordoned=False)
        demand.hold(name, name, 0)
    for name in "ab":  # one for each machine
        demand.pod(pod(name, "kept"), "", pending=True, gated=False)
    for number in range(2 * MOST_SPARE):
        demand.pod(pod("p", f"set {number}"), "", pending=True, gated=False)
        demand.look(0.0)
        most = max(most, len(demand._shapes))
        demand.pod_gone("p")
    assert most == MOST_SPARE + 2 * len("ab") + 1
    demand.pod(pod("c", "kept"), "", pending=True, gated=False)
    demand.look(1.0)
    assert [row.name for row in demand.rows] == ["m0", "m1", "c.1"], "a third machine for a third"


def test_a_restart_goes_on_with_the_rows_that_pods_still_need() -> None:
    def pods(demand: Demand, names: str) -> None:
        for name in names:
            pod = PodRequest(name, name, {GPU: 8.0}, {ACCELERATOR: "h200"}, created_s=ord(name))
            demand.pod(pod, "", pending=True, gated=False)

    before = Demand("c", KINDS)
    pods(before, "abc")
    before.look(0.0)
    assert [row.name for row in before.rows] == ["c.1", "c.2", "c.3"]
    after = Demand("c", KINDS)
    after.restore(before.rows, before.issued)
    pods(after, "ab")
    after.look(5.0)
    assert [row.need("c").key() for row in after.rows] == [
        row.need("c").key() for row in before.rows[:2]
    ]
    pods(after, "de")
    after.look(6.0)
    assert [row.name for row in after.rows] == ["c.1", "c.2", "c.4", "c.5"], "no name comes twice"


def test_a_row_of_a_machine_in_use_keeps_its_name_where_the_books_were_lost() -> None:
    demand = Demand("c", KINDS)
    labels = {ACCELERATOR: "h200"}
    demand.node("n", {GPU: 8.0}, labels, ready=True, cordoned=False)
    demand.hold("n", "c.1", 1)
    demand.pod(PodRequest("a", "a", {GPU: 8.0}, labels), "n", pending=False, gated=False)
    demand.pod(PodRequest("b", "b", {GPU: 8.0}, labels), "", pending=True, gated=False)
    demand.look(0.0)
    assert [row.name for row in demand.rows] == ["c.1", "c.2"]
