"""A turn of a conversation finds all that was said before it in the cache, answers included."""

import math

import pytest

from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_equivalence import drive
from tests.twin.runs import one_server
from tests.workload.plans import Conversation
from windtunnel.engine.server import Server
from windtunnel.twin.compose import compose
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import step_time_of
from windtunnel.workload.distributions import Lengths, Times
from windtunnel.workload.request import Request
from windtunnel.workload.settings.sources import PrefixSettings, SourceSettings

BLOCK = 16
TURNS = 3


class Rows:
    """Keeps the requests that have ended."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self.requests += requests


def talks(prompt: int, output: int, shared: int, sessions: int = 3) -> ScenarioPlan:
    """Conversations of three turns, a second apart, on a server with room for all of them."""
    plan = load_text(one_server(count=sessions, prompt=prompt, output=output))
    source = plan.workload[0]
    assert isinstance(source, SourceSettings)
    turns = Lengths("constant", float(TURNS), 0.0, TURNS, TURNS)
    think = Times("constant", 1.0, 0.0, 0.0, 1.0)
    talking = source.model_copy(
        update={
            "session": Conversation(turns, think, accumulates=True).section(),
            "prefix": PrefixSettings(tokens=shared) if shared else None,
        }
    )
    return plan.changed(workload=[talking])


def turns_of(plan: ScenarioPlan) -> tuple[list[Request], Server]:
    """The turns in the order in which they came, and the server that answered them."""
    rows = Rows()
    simulation = compose(plan, rows)
    simulation.run(breathe)
    return sorted(rows.requests, key=lambda r: (r.arrived_s, r.id)), simulation.servers[0]


@pytest.mark.parametrize("shared", [0, 24, 40])
@pytest.mark.parametrize(("prompt", "output"), [(33, 20), (16, 16), (5, 7), (100, 300), (16, 17)])
def test_a_turn_hits_whatever_was_said_before(prompt: int, output: int, shared: int) -> None:
    """Full blocks of it, whoever wrote them. The last token of an answer was never computed."""
    turns, server = turns_of(talks(prompt, output, shared))
    assert len(turns) == 3 * TURNS
    first = {request.session: request for request in reversed(turns)}
    for request in turns:
        said = shared + request.turn * (prompt + output)
        assert request.prompt_tokens == said + prompt
        if request.turn:
            hits = (said - 1) // BLOCK * BLOCK
        else:  # only the system prompt can be known, and is once the first conversation has begun
            hits = 0 if request is first[0] else shared // BLOCK * BLOCK
        assert request.prefix_hit_tokens == hits
    computed = sum(r.prompt_tokens - r.prefix_hit_tokens for r in turns)
    assert server.prefilled_tokens == computed


@pytest.mark.parametrize(
    ("prompt", "output", "shared"), [(33, 20, 24), (16, 16, 0), (100, 300, 40)]
)
def test_the_reference_engine_hits_the_same(prompt: int, output: int, shared: int) -> None:
    plan = talks(prompt, output, shared)
    turns, server = turns_of(plan)
    again = []
    for turn in turns:
        request = Request(turn.id, turn.arrived_s, turn.prompt_tokens, turn.output_tokens)
        request.prefix, request.answer_key = turn.prefix, turn.answer_key
        again.append(request)
    reference = ReferenceServer(0, server.limits, step_time_of(plan.pools[0], None))
    drive(reference, again)
    for one, other in zip(turns, again, strict=True):
        assert one.prefix_hit_tokens == other.prefix_hit_tokens
        assert math.isclose(one.finished_s, other.finished_s, rel_tol=1e-9)
