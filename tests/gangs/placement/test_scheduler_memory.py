"""What the scheduler keeps of the pods of a gang is what looking at all of them gives."""

from hypothesis import given
from hypothesis import strategies as st

from tests.gangs.manifests import clique, load_set, pod_clique_set
from windtunnel.gangs.commands import PatchGangPlacement
from windtunnel.gangs.objects import Pod, PodClique, PodGang
from windtunnel.gangs.placement.gang_pods import GangPods
from windtunnel.gangs.placement.placer import GangPlacer
from windtunnel.gangs.placement.requests import GangRequest
from windtunnel.gangs.placement.scheduler import GangScheduler
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.roster import roster_of
from windtunnel.gangs.templates import CliquePlace, PodGroup
from windtunnel.gangs.view import View

SPEC = load_set(pod_clique_set([clique("a")])).spec
OWNER = PodClique("web-0-a", CliquePlace("web", 0, "web-0"), SPEC.roles["a"], 1)
NAMES = [f"p{number}" for number in range(4)]
RACKS = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r2", "n4": ""}
ZONES = {"n0": "z0", "n1": "z0", "n2": "z0", "n3": "z1", "n4": "z1"}

steps = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["gated", "waits", "lost", "rearrange", "regroup", *RACKS]),
        st.booleans(),  # whether the gang is scored after that
    ),
    max_size=40,
)


def pod(name: str, state: str) -> Pod:
    made = Pod(name, OWNER, int(name[1:]) // 2)
    made.gates = ["gate"] if state == "gated" else []
    made.node = state if state in RACKS else ""
    return made


def scheduler(view: View) -> GangScheduler:
    space = Space()
    space.add_topology("t", ["zone", "rack", "host"])
    for name, rack in RACKS.items():
        labels = {"zone": ZONES[name], "host": name}
        space.add_node(name, {}, {**labels, "rack": rack} if rack else labels)
    return GangScheduler(view, space, GangPlacer(space), whole=True)


@given(steps)
def test_following_pods_one_by_one_is_looking_at_all_of_them(
    steps: list[tuple[str, str, bool]],
) -> None:
    view = View()
    tested = scheduler(view)
    home = dict(zip(NAMES, "aabb", strict=True))
    known = regrouped(GangPods(0), view, home)
    topology = "t"
    for name, state, scored in steps:
        if state == "rearrange":  # other levels than at the last score
            topology = "other" if topology == "t" else "t"
            tested.space.add_topology("other", ["rack"])
        elif state == "regroup":  # the gang refers to a pod in another group, or not at all
            home[name] = {"a": "b", "b": "", "": "a"}[home[name]]
            regrouped(known, view, home)
        else:
            before = [one for group in known.by_group.values() for _, _, one in group.waiting]
            view.pods.pop(name, None)
            if state != "lost":
                view.pods[name] = pod(name, state)
            moved = known.follow(name, view.pods.get(name))
            after = [one for group in known.by_group.values() for _, _, one in group.waiting]
            assert moved == (set(before) != set(after))
        fresh = regrouped(GangPods(0), view, home)
        for group in "ab":
            kept, made = known.by_group[group], fresh.by_group[group]
            assert (kept.waiting, kept.bound, kept.nodes) == (made.waiting, made.bound, made.nodes)
            asked = [request.name for request in tested._unbound_pods(kept)]
            assert asked == [one for _, _, one in kept.waiting]
            assert kept.nodes == [view.pods[one].node for _, _, one in kept.bound]
        assert known.nodes() == fresh.nodes()
        if scored and known.nodes():
            request = GangRequest("web-0", [], topology=topology)
            assert tested._score(request, known) == tested._score(request, fresh)
            assert tested._score(request, known) == score(topology, known.nodes())


def regrouped(known: GangPods, view: View, home: dict[str, str]) -> GangPods:
    groups = (PodGroup("a", 1), PodGroup("b", 1))
    for group in groups:
        group.pods = roster_of(name for name in NAMES if home[name] == group.name)
    _, new, _ = known.regroup(groups)
    for name in new:
        known.follow(name, view.pods.get(name))
    return known


def score(topology: str, nodes: list[str]) -> float:
    """How close nodes are, by the definition."""
    paths = [[ZONES[node], RACKS[node], node] for node in nodes]
    if topology == "other":
        paths = [[RACKS[node]] for node in nodes]
    levels = len(paths[0])
    for level in range(levels, 0, -1):
        heads = [path[:level] for path in paths]
        if all(all(head) for head in heads) and all(head == heads[0] for head in heads):
            return level / levels
    return 0.0


def test_an_old_reason_that_comes_in_late_is_taken_back() -> None:
    view = View()
    tested, changes = scheduler(view), view.watch()
    tested.space.add_node("big", {"pods": 9.0, "cpu": 9.0, "memory": 2.0**40}, {})
    gang = PodGang("web-0", "web", 0)
    gang.groups = (PodGroup("web-0-a", 2, pods=roster_of(["p0", "p1"])),)
    pods = [pod("p0", "waits"), pod("p1", "gated")]
    for thing in (gang, *pods):
        view.put(thing)

    def step() -> list[str]:
        """What is said of the gang."""
        tested.absorb(changes)
        changes.clear()
        if not tested.has_news:
            return []
        planned = tested.plan(0.0)
        for binding in planned.bindings:
            view.pods[binding.pod].node = binding.node
        told = [*planned.settled, *tested.report(planned, 0.0)]
        return [one.why_pending for one in told if isinstance(one, PatchGangPlacement)]

    (why,) = step()
    assert why.startswith("1 of at least 2 pods")
    pods[1].gates = []
    pods[1].mark(changes)
    assert "" not in step()  # the reason is not written yet
    assert [one.node for one in pods] == ["big", "big"]
    assert step() == []
    gang.why_pending = why
    gang.mark(changes)
    assert step() == [""]
    gang.why_pending = ""
    gang.mark(changes)
    assert step() == []
