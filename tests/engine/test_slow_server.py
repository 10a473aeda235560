"""A server that becomes slow, and well again, in the middle of its work: as the reference does."""

import math
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_equivalence import TICK, Shape, limits, models, outcome, requests_of, traffic
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.models.step_time.model import MeasuredBounds, StepTimeModel, StepWork
from windtunnel.workload.request import Request


class Paced(StepTimeModel):
    """A model whose steps become longer at once: right for an engine that plans step by step."""

    def __init__(self, model: StepTimeModel) -> None:
        self.model = model
        self.factor = 1.0

    def step_s(self, work: StepWork) -> float:
        return self.model.step_s(work) * self.factor

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        raise AssertionError("the reference asks for single steps")

    def measured(self) -> MeasuredBounds | None:
        return self.model.measured()


class Change(NamedTuple):
    """From a time on, steps take so many times longer; and so many blocks are lost then."""

    at: int
    factor: int
    leak: int


def changes() -> st.SearchStrategy[list[Change]]:
    one = st.builds(
        Change,
        at=st.integers(0, 4000),
        factor=st.sampled_from([1, 2, 3, 8]),
        leak=st.sampled_from([0, 0, 1, 3]),
    )
    return st.lists(one, min_size=1, max_size=6).map(sorted)


def drive(
    server: Server | ReferenceServer, arrivals: list[Request], slow: list[Change], paced: Paced
) -> None:
    """Arrivals, then changes, then steps of the same instant."""
    came, changed = 0, 0
    for _ in range(200_000):
        arrival = arrivals[came].arrived_s if came < len(arrivals) else math.inf
        change = slow[changed].at * TICK if changed < len(slow) else math.inf
        if arrival == change == server.wake_s == math.inf:
            return
        if arrival <= min(change, server.wake_s):
            server.submit(arrivals[came], arrival)
            came += 1
        elif change <= server.wake_s:
            if isinstance(server, Server):
                server.slow_down(slow[changed].factor, change)
                server.leak(slow[changed].leak, change)
                assert server.pool.recount()[0] == server.pool.free
            else:
                paced.factor = slow[changed].factor
                for _ in range(min(slow[changed].leak, len(server.blocks.free))):
                    server.blocks.take()
            changed += 1
        else:
            server.advance(server.wake_s)
    raise AssertionError("the run does not end")


def keep_room(slow: list[Change], limits: EngineLimits, shapes: list[Shape]) -> list[Change]:
    """The same, but that no request is left without room: a driver would take it away."""
    sizes = [
        limits.blocks_of(one.prompt + limits.answer_tokens(one.prompt, one.output) - 1)
        for one in shapes
        if not limits.refusal(one.prompt, one.output)
    ]
    spare = limits.usable_blocks - max(sizes, default=0)
    kept: list[Change] = []
    for change in slow:
        kept.append(change._replace(leak=min(change.leak, spare)))
        spare -= kept[-1].leak
    return kept


@given(limits(), models(), traffic(), changes())
def test_a_slow_server_is_slow_from_the_next_step_on(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape], slow: list[Change]
) -> None:
    slow = keep_room(slow, limits, shapes)
    paced = Paced(model)
    obvious, fast = ReferenceServer(0, limits, paced), Server(0, limits, model)
    for server in (obvious, fast):
        drive(server, requests_of(shapes), slow, paced)
    assert [outcome(one) for one in fast.finished] == [outcome(one) for one in obvious.finished]
    assert fast.steps == obvious.steps
    assert math.isclose(fast.busy_s, obvious.busy_s, rel_tol=1e-9)
    assert fast.token_gaps.buckets == obvious.token_gaps.buckets
    assert fast.preemptions == obvious.preemptions
