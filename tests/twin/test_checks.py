"""What is wrong with a run is found: at once where an event changed it, and else before long."""

import math
from collections.abc import Callable

import pytest

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.invariants import InvariantChecker
from windtunnel.twin.checks import INVARIANTS, RunChecker
from windtunnel.twin.compose import compose
from windtunnel.twin.results.recorder import UNFINISHED
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.replicas import READY
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.request import Request

SERVERS = 20
EVENT = 300
"""At which something goes wrong."""
SCENARIO = f"""
name: checked
workload:
  - name: chat
    count: 200
    arrivals: {{process: poisson, rate: 40/s}}
    prompt_tokens: {{distribution: uniform, min: 1, max: 90}}
    output_tokens: {{distribution: uniform, min: 1, max: 60}}
serving:
  admission: {{policy: flow-control}}
  pools:
    - {{name: main, replicas: {SERVERS}, engine: {{kv_blocks: 200}},
       step_time: {{model: linear, fixed: 20ms}}}}
"""


def found(harm: Callable[[Simulation], None], scenario: str = SCENARIO) -> tuple[str, int, int]:
    """The invariant that breaks after the harm, how many events later, and how many it may take."""
    simulation = compose(load_text(scenario))
    after_event = RunChecker(simulation, InvariantChecker(INVARIANTS))
    most = 0

    def look(state: Simulation) -> None:
        nonlocal most
        if state.events == EVENT:
            most = len(state.servers) + state.recorder.arrived - state.recorder.ended
            harm(state)
        after_event.check(lambda: "here")

    with pytest.raises(InvariantBroken) as caught:
        simulation.run(breathe, look)
    return caught.value.what.split("'")[1], simulation.events - EVENT, most


def miscount_arrivals(simulation: Simulation) -> None:
    simulation.recorder.total.requests += 1


def lease_again(simulation: Simulation) -> None:
    gateway = simulation.services[0].gateway
    assert gateway is not None
    gateway.driver.gateway.in_flight += 1


def send_nothing(simulation: Simulation) -> None:
    simulation.services[0].signals.sent(0, 10)


def lose_from_line(simulation: Simulation) -> None:
    simulation.services[0].signals.unplaced += 1


@pytest.mark.parametrize(
    ("harm", "invariant"),
    [
        (miscount_arrivals, "requests-conserved"),
        (lease_again, "gateway-agrees"),
        (send_nothing, "in-flight-exact"),
        (lose_from_line, "line-moves"),
    ],
)
def test_what_an_event_gets_wrong_is_found_after_it(
    harm: Callable[[Simulation], None], invariant: str
) -> None:
    name, later, _ = found(harm)
    assert (name, later) == (invariant, 0)


def count_in_silence(simulation: Simulation) -> None:
    simulation.services[0].signals.in_flight[SERVERS - 1] += 1


def count_a_replica_twice(simulation: Simulation) -> None:
    simulation.cluster.pools[0].counts[READY] += 1


def forget_a_server(simulation: Simulation) -> None:
    simulation.services[0].router.candidates.pop()


def take_blocks(simulation: Simulation) -> None:
    simulation.servers[0].pool.take(1)


def wake_a_server_in_silence(simulation: Simulation) -> None:
    last = max(simulation.servers, key=lambda one: (one.wake_s, one.index))
    last.wake_s = simulation.now_s / 2


@pytest.mark.parametrize(
    ("harm", "invariant"),
    [
        (count_in_silence, "in-flight-exact"),
        (count_a_replica_twice, "replicas-counted"),
        (forget_a_server, "ready-chosen"),
        (take_blocks, "blocks-conserved"),
        (wake_a_server_in_silence, "agenda-ordered"),
    ],
)
def test_what_changes_without_a_word_is_found_by_the_next_look_at_everything(
    harm: Callable[[Simulation], None], invariant: str
) -> None:
    name, later, most = found(harm)
    assert name == invariant
    assert later <= most


def test_an_event_that_changes_when_a_server_acts_moves_it_on_the_agenda() -> None:
    def wake_a_changed_server(simulation: Simulation) -> None:
        changes = simulation.cluster.changes
        assert changes is not None
        assert changes.servers, "the event changed a server"
        number = next(iter(changes.servers))
        simulation.servers[number].wake_s = simulation.now_s + 1e-6

    name, later, _ = found(wake_a_changed_server)
    assert (name, later) == ("agenda-ordered", 0)


def test_what_goes_wrong_shortly_before_the_end_is_found_at_the_end() -> None:
    """Requests are unfinished then: what is counted of them is not looked at afterwards."""
    text = SCENARIO.replace("rate: 40/s", "rate: 400/s").replace("count: 200", "count: 4000")
    simulation = compose(load_text(text.replace("name: checked", "name: checked\nduration: 5s")))
    after_event = RunChecker(simulation, InvariantChecker(INVARIANTS))
    harmed = False

    def look(state: Simulation) -> None:
        nonlocal harmed
        if state.now_s > 4.9 and not harmed:
            harmed = True
            state.requests.in_flight.queued_prompt_tokens[0] += 1
        after_event.check(lambda: "here")

    with pytest.raises(InvariantBroken, match="in-flight-exact"):
        simulation.run(breathe, look, lambda _: after_event.check_whole(lambda: "here"))
    assert simulation.recorder.count(UNFINISHED) == 0, "before they are counted as unfinished"


def test_looks_at_everything_are_as_rare_as_there_is_much_to_look_at() -> None:
    simulation = compose(load_text(SCENARIO))
    after_event = RunChecker(simulation, InvariantChecker(INVARIANTS))
    changes = simulation.cluster.changes
    assert changes is not None
    simulation.run(breathe, lambda _: after_event.check(lambda: "here"))
    assert 2 <= changes.looks <= 1 + simulation.events // SERVERS


def test_a_server_that_acts_sooner_for_one_that_awaits_room_goes_first() -> None:
    """Cancelled in its fourth step, the first is planned into a fifth: at 4 s it is left out."""
    text = """
name: two
workload: [{name: chat, count: 1, arrivals: {process: constant, rate: 1/s}, prompt_tokens: 16,
            output_tokens: 1}]
serving:
  pools:
    - {name: main, replicas: 2, engine: {kv_blocks: 3, async_scheduling: true},
       step_time: {model: linear, fixed: 1s}}
"""
    cluster = compose(load_text(text)).cluster
    first, other, wanting = Request(0, 0.0, 16, 6), Request(1, 0.5, 16, 4), Request(2, 3.5, 20, 1)
    for request, server, now_s in ((first, 0, 0.0), (other, 1, 0.5), (wanting, 0, 3.5)):
        while cluster.agenda.first().wake_s <= now_s:
            actor = cluster.agenda.first()
            cluster.advance(cluster.servers[actor.turn], actor.wake_s)
        request.server = server
        if request is not wanting:
            cluster.submit(request, cluster.servers[server], now_s)
    cluster.cancel(first, 3.5)
    assert cluster.reserve(wanting, 20, 3.5) == -1
    assert cluster.agenda.first() is cluster.servers[1]
    cluster.await_room(wanting, 20)
    assert cluster.agenda.fault() is None
    assert cluster.agenda.first() is cluster.servers[0]
    assert cluster.servers[0].wake_s < math.inf
