"""The store of a cluster: who owns what, what goes with whom, and who is told."""

from windtunnel.gangs.commands import Command, Create, CreatePod, Delete, Emit, Scale, Ungate
from windtunnel.gangs.objects import CLIQUE, SET, PodClique, PodGang, ScalingGroup
from windtunnel.gangs.statuses import ObjectEvent
from windtunnel.gangs.templates import CliquePlace, CliqueTemplate, GroupTemplate, SetSpec
from windtunnel.twin.kubernetes.api_server import ApiServer


def template(name: str, replicas: int = 1) -> CliqueTemplate:
    return CliqueTemplate(name, replicas, replicas, {}, {"cpu": 1.0}, f"hash-{name}")


def two_roles() -> ApiServer:
    """A set of one role that stands alone and a scaling group of another."""
    server = ApiServer()
    a, b = template("a"), template("b")
    server.add_set("web", SetSpec(1, (a, b), (GroupTemplate("g", ("b",)),)), 0.0)
    alone = PodClique("web-0-a", CliquePlace("web", 0, "web-0"), a, 1)
    group = ScalingGroup("web-0-g", "web", 0, GroupTemplate("g", ("b",)))
    member = PodClique("web-0-g-0-b", CliquePlace("web", 0, "web-0", "", "web-0-g", 0), b, 1)
    for thing in (alone, group, member, PodGang("web-0", "web", 0)):
        server.apply(Create(thing), 1.0)
    for clique in (alone, member):
        server.apply(CreatePod(clique, 0), 2.0)
    return server


def test_a_pod_is_born_gated_with_a_name_and_an_id_of_its_own() -> None:
    server = two_roles()
    view = server.view
    pods = list(view.pods.values())
    assert [pod.clique for pod in pods] == ["web-0-a", "web-0-g-0-b"]
    assert len({pod.uid for pod in pods}) == len({pod.name[-5:] for pod in pods}) == 2
    assert all(pod.gated and pod.created_s == 2.0 and pod.template_hash for pod in pods)
    server.apply(Ungate(pods[0]), 3.0)
    assert [pod.gated for pod in pods] == [False, True]


def test_a_command_that_no_longer_fits_does_nothing() -> None:
    server = two_roles()
    view = server.view
    clique = view.cliques["web-0-a"]
    another = PodClique("web-0-a", CliquePlace("web", 0, "x"), template("a"), 1)
    another.uid = clique.uid + "0"
    stale: list[Command] = [
        CreatePod(clique, 0),  # the index is taken
        Create(another),
        Delete(another, "it was another one"),
        Scale(CLIQUE, "web-9-a", 7),
    ]
    for command in stale:
        server.apply(command, 5.0)
    assert view.cliques["web-0-a"] is clique
    assert len(view.pods) == 2


def test_what_is_owned_goes_with_its_owner() -> None:
    server = two_roles()
    view = server.view
    for pod in view.pods.values():
        pod.node = "n1"
    server.apply(Delete(view.groups["web-0-g"], "test"), 5.0)
    assert list(view.cliques) == ["web-0-a"]
    assert [pod.terminating for pod in view.pods.values()] == [False, True]
    server.apply(Delete(view.sets["web"], "test"), 6.0)
    assert not view.cliques
    assert not view.gangs
    assert not view.sets
    assert [pod.deleted_s for pod in view.pods.values()] == [6.0, 5.0]
    for pod in list(view.pods.values()):
        server.remove_pod(pod)
    assert not view.pods


def test_a_pod_on_no_node_goes_at_once() -> None:
    server = two_roles()
    view = server.view
    pod = next(iter(view.pods.values()))
    server.apply(Delete(pod, "test"), 5.0)
    assert pod.name not in view.pods
    assert pod.name not in view.cliques[pod.clique].pods


def test_a_watcher_is_told_what_changed_and_only_that() -> None:
    server = two_roles()
    view = server.view
    changes = view.watch()
    assert list(changes.cliques) == ["web-0-a", "web-0-g-0-b"]
    assert list(changes.sets) == ["web"]
    changes.clear()
    pod = next(iter(view.pods.values()))
    pod.node = "n1"
    view.changed(pod)
    assert list(changes.pods) == [pod.name]
    assert list(changes.cliques) == ["web-0-a"]
    assert not changes.sets
    assert not changes.parts
    view.changed(view.cliques["web-0-g-0-b"])
    assert list(changes.groups) == ["web-0-g"]
    assert changes.parts == {"web": {0: None}}
    view.unwatch(changes)


def test_an_event_is_told_once() -> None:
    server = two_roles()
    view = server.view
    for at_s in (1.0, 2.0):
        server.apply(Emit(ObjectEvent("one", "Warning", SET, "web", "Why", "because", at_s)), at_s)
    assert [event.at_s for event in view.events.values()] == [1.0]
