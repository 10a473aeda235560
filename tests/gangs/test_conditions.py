"""When something counts as breached: every row of the table, and the events and times around it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gangs.manifests import clique, group, load_set, pod_clique_set, workload
from tests.gangs.world import World
from windtunnel.core.kubernetes import NEVER
from windtunnel.gangs.commands import Command, PatchStatus
from windtunnel.gangs.controllers import cliques
from windtunnel.gangs.controllers.conditions import breach
from windtunnel.gangs.controllers.termination import Broken, breach_of, broken_group
from windtunnel.gangs.objects import PodClique, PodCliqueSet
from windtunnel.gangs.statuses import CliqueStatus
from windtunnel.gangs.templates import CliquePlace

INF = float("inf")


@pytest.mark.parametrize(
    ("updating", "scheduled", "fit", "ever", "rule", "status", "reason"),
    [
        (True, 0, 0, True, "Terminate", "Unknown", "UpdateInProgress"),
        (True, 3, 3, True, "Hold", "Unknown", "UpdateInProgress"),
        (False, 0, 0, False, "Hold", "False", "InsufficientScheduledPods"),
        (False, 0, 0, True, "Hold", "False", "InsufficientScheduledPods"),
        (False, 0, 0, False, "Terminate", "False", "InsufficientScheduledPods"),
        (False, 0, 0, True, "Terminate", "True", "ScheduledReplicasBelowMinAvailable"),
        (False, 1, 1, True, "Hold", "True", "ScheduledReplicasBelowMinAvailable"),
        (False, 1, 1, False, "Hold", "True", "ScheduledReplicasBelowMinAvailable"),
        (False, 1, 0, True, "Hold", "True", "ScheduledReplicasBelowMinAvailable"),
        (False, 2, 1, True, "Hold", "True", "InsufficientReadyPods"),
        (False, 3, 1, True, "Hold", "True", "InsufficientReadyPods"),
        (False, 2, 2, True, "Hold", "False", "SufficientReadyPods"),
        (False, 3, 2, True, "Hold", "False", "SufficientReadyPods"),
    ],
)
def test_the_table_with_a_minimum_of_two(
    updating: bool, scheduled: int, fit: int, ever: bool, rule: str, status: str, reason: str
) -> None:
    template = load_set(pod_clique_set([clique("a", 3, 2)])).spec.roles["a"]
    seen = CliqueStatus(scheduled=scheduled, lost_rule=rule)
    seen.first_scheduled_s = 1.0 if ever else NEVER
    seen.update_started_s = 1.0 if updating else NEVER
    found = breach(PodClique("web-0-a", CliquePlace("web", 0, "web-0"), template, 3), seen, fit)
    assert found[:2] == (status, reason)
    if reason == "ScheduledReplicasBelowMinAvailable":
        assert found[2] == f"Scheduled replicas ({scheduled}) below MinAvailable (2)"


def of_group(replicas: int, minimum: int) -> World:
    roles = [clique("b", 1), clique("c", 2, 2)]
    return World(3 * replicas, pod_clique_set(roles, [group("g", "bc", replicas, minimum)])).run()


@pytest.mark.parametrize(
    ("replicas", "minimum", "hurt", "status", "reason"),
    [
        (5, 2, 1, "False", "SufficientAvailablePodCliqueScalingGroupReplicas"),
        (2, 1, 1, "False", "SufficientAvailablePodCliqueScalingGroupReplicas"),
        (3, 2, 2, "True", "ScheduledReplicasBelowMinAvailable"),
        (3, 3, 1, "True", "ScheduledReplicasBelowMinAvailable"),
        (2, 1, 2, "False", "InsufficientScheduledPods"),
    ],
)
def test_a_group_whose_replicas_lost_a_pod(
    replicas: int, minimum: int, hurt: int, status: str, reason: str
) -> None:
    world = of_group(replicas, minimum)
    for index in range(hurt):
        world.kill(world.pods(f"g-{index}-c")[0])
    world.run()
    assert world.condition("web-0-g") == (status, reason)


@pytest.mark.parametrize(("hurt", "status"), [(1, "False"), (2, "True")])
def test_a_group_whose_pods_are_scheduled_and_not_ready(hurt: int, status: str) -> None:
    world = of_group(3, 2)
    for index in range(hurt):
        pod = world.pods(f"g-{index}-c")[0]
        pod.ready = False
        world.startable = lambda _: False
        world.view.changed(pod)
    world.run()
    assert world.condition("web-0-g")[0] == status
    if status == "True":
        assert world.condition("web-0-g")[1] == "InsufficientReadyPods"


def test_what_is_ready_enough_and_what_is_not() -> None:
    """Starting counts as fit; started and not ready, or ended with an error, does not."""
    world = World(3, pod_clique_set([clique("a", 3, 3)]))
    world.startable = lambda _: False
    world.run()
    assert world.condition("web-0-a") == ("False", "SufficientReadyPods")
    pod = world.pods()[0]
    pod.started = True
    world.view.changed(pod)
    world.run()
    assert world.condition("web-0-a") == ("True", "InsufficientReadyPods")
    pod.started, pod.erroneous = False, True
    world.view.changed(pod)
    world.run()
    assert world.condition("web-0-a") == ("True", "InsufficientReadyPods")
    message = world.view.cliques["web-0-a"].conditions["MinAvailableBreached"].message
    assert message.endswith("expected at least 3, found 2")


def test_times_move_only_with_the_status() -> None:
    world = World(10, workload(1)).run(100.0)

    def since_s() -> float:
        return world.view.cliques["web-0-sg-x-0-pc-c"].conditions["MinAvailableBreached"].since_s

    assert since_s() == 0.0
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(50.0)
    assert since_s() == 100.0
    pod = world.pods("sg-x-0-pc-c")[1]
    world.kill(pod)
    world.run(50.0)  # another number, the same status
    assert since_s() == 100.0
    world.open()
    world.startable = lambda pod: pod.index != 0
    world.run(50.0)
    for one in world.pods("sg-x-0-pc-c"):
        if not one.ready:
            one.started = True
            world.view.changed(one)
    world.run()
    assert world.condition("web-0-sg-x-0-pc-c") == ("True", "InsufficientReadyPods")
    world.startable = lambda _: True
    world.run()
    assert world.condition("web-0-sg-x-0-pc-c")[0] == "False"
    assert since_s() == 250.0


def test_losing_all_is_told_once_per_step_and_on_no_other_step() -> None:
    world = World(10, workload(1)).run()
    lost = "AllScheduledReplicasLost"
    assert world.events(lost) == []  # nothing is lost by starting
    world.kill(world.pods("pc-a")[0])
    world.run()
    assert world.events(lost) == []  # one is left
    world.kill(*(pod for pod in world.pods("pc-a") if pod.node))
    world.run(1000.0)
    assert [event.name for event in world.events(lost)] == ["web-0-pc-a"]
    world.crash()
    world.run(1000.0)
    assert len(world.events(lost)) == world.told(lost) == 1  # from none to none is no step
    world.open()
    world.run()
    world.kill(*world.pods("pc-a"), *world.pods("sg-x-0-pc-c"), *world.pods("sg-x-1-pc-b"))
    world.run()
    names = sorted(event.name for event in world.events(lost))
    assert names == [
        "web-0-pc-a",
        "web-0-pc-a",
        "web-0-sg-x",
        "web-0-sg-x-0-pc-c",
        "web-0-sg-x-1-pc-b",
    ]
    assert {event.level for event in world.events(lost)} == {"Warning"}


@pytest.mark.parametrize("most", range(1, 8))
def test_an_event_survives_a_crash_and_is_not_doubled(most: int) -> None:
    world = World(10, workload(1)).run()
    world.kill(*world.pods("pc-a"))
    world.reconcile(most)
    world.crash()
    world.run()
    assert len(world.events("AllScheduledReplicasLost")) == 1


def due(broken: Broken | None) -> float:
    return INF if broken is None else broken.due_s()


def test_what_was_never_scheduled_is_never_due() -> None:
    world = World(10, workload(1))
    world.cordon_all_but(0)
    world.run()
    one, whole = world.view.cliques["web-0-pc-a"], world.view.groups["web-0-sg-x"]
    assert (due(breach_of(one, 10.0, "")), due(broken_group(whole, 10.0, {}))) == (INF, INF)
    world.open()
    world.run(5.0)
    assert (due(breach_of(one, 10.0, "")), due(broken_group(whole, 10.0, {}))) == (INF, INF)
    world.kill(world.pods("pc-a")[0], world.pods("sg-x-0-pc-c")[0])
    world.run()
    assert (due(breach_of(one, 10.0, "")), due(broken_group(whole, 10.0, {}))) == (15.0, 15.0)


@pytest.mark.parametrize("most", range(1, 30))
def test_a_crash_in_a_termination_costs_no_extra_recycle(most: int) -> None:
    world = World(10, workload(1, terminationDelay="10s")).run()
    world.kill(world.pods("pc-a")[0])
    world.run(9.0)
    before = world.uids()
    world.now_s += 1.0
    done = 0
    while done < most:
        count = world.reconcile(most - done)
        done += count
        if not count:
            break
    world.crash()
    world.open()
    world.run(100.0)
    assert world.running() == 10
    assert not before & world.uids()
    assert len(world.events("PodCliqueSetReplicaDeleteSuccessful")) <= 1
    made = [clique.uid for clique in world.view.cliques.values()]
    assert len(made) == len(set(made)) == 5
    assert world.view.sets["web"].status.recycled == {}


COUNTS = st.integers(0, 2)
TIMES = st.sampled_from([NEVER, 1.0, 2.0])


@given(
    st.fixed_dictionaries({
        "replicas": COUNTS, "updated": COUNTS, "scheduled": COUNTS, "ready": COUNTS,
        "updated_ready": COUNTS, "gated": COUNTS, "erroneous": COUNTS, "unready": COUNTS,
        "update_started_s": TIMES, "update_ended_s": TIMES, "first_scheduled_s": TIMES,
        "first_ready_s": TIMES, "observed": st.booleans(), "stuck": st.booleans(),
        "update_peak": COUNTS, "lost_rule": st.sampled_from(["", "Hold", "Terminate"]),
    }),
    st.lists(st.tuples(st.sampled_from(["scheduled", "ready", "updated"]), COUNTS), max_size=2),
    st.integers(0, 2),
)  # fmt: skip
def test_a_status_that_is_not_made_again_is_what_would_be_made(
    fields: dict[str, Any], changes: list[tuple[str, int]], replicas: int
) -> None:
    """Seen twice in a row, with counts that are mostly those of the status."""
    spec = load_set(pod_clique_set([clique("a", 2, 1)])).spec
    owner = PodCliqueSet("web", spec)
    thing = PodClique("web-0-a", CliquePlace("web", 0, "web-0"), spec.roles["a"], replicas)
    thing.status = CliqueStatus(**fields)
    tally = thing.tally
    tally.active, tally.updated = fields["replicas"], fields["updated"]
    tally.scheduled, tally.ready, tally.gated = (
        fields["scheduled"], fields["ready"], fields["gated"]
    )  # fmt: skip
    tally.erroneous, tally.unready = fields["erroneous"], fields["unready"]
    tally.updated_ready = fields["updated_ready"]
    for name, count in changes:
        setattr(tally, name, count)
    fast = cliques._is_written(owner, thing, thing.status, min(thing.min_available, replicas))
    commands: list[Command] = []
    made = cliques.made_status(owner, thing, 3.0)[0]
    if fast:
        assert made == thing.status
    cliques.observe(owner, thing, 3.0, commands)
    patched = [one.status for one in commands if isinstance(one, PatchStatus)]
    assert patched == ([] if made == thing.status else [made])
    thing.status = made
    assert (
        tally.updated != tally.active
        or made.updating
        or cliques._is_written(owner, thing, made, min(thing.min_available, replicas))
    )
