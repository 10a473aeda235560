"""Limiters with a memory, over time."""

from tests.scaling.worlds import Wants, fleet, variant
from windtunnel.scaling.limiters import (
    Limiter,
    MatchedRolesLimiter,
    RateLimiter,
    SustainedLimiter,
    ZeroAfterLimiter,
)
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policy import Policy, PolicyParts
from windtunnel.scaling.scaler import Scaler


class World:
    """A pool of one variant that becomes at once what is decided."""

    def __init__(self, size: int, *limiters: Limiter) -> None:
        self.size = size
        self.wants = Wants(size)
        self.scaler = Scaler(
            {"m": Policy("p", PolicyParts([self.wants], CostOrdered(), list(limiters)))}, 3.0
        )

    def tick(self, now_s: float, wanted: int) -> int:
        self.wants.wanted = wanted
        (decision,) = self.scaler.tick(fleet(variant(ready=self.size), taken_s=now_s), now_s)
        self.size = decision.target
        return self.size


def story(limiter: Limiter, start: int, *ticks: tuple[float, int]) -> list[int]:
    world = World(start, limiter)
    return [world.tick(now_s, wanted) for now_s, wanted in ticks]


def test_a_direction_must_be_asked_for_a_whole_window() -> None:
    ticks = [(0.0, 2), (30.0, 1), (60.0, 2), (75.0, 1), (100.0, 4), (120.0, 4), (160.0, 4)]
    assert story(SustainedLimiter(60.0, 60.0), 4, *ticks) == [4, 4, 2, 2, 2, 2, 4]


def test_a_direction_that_is_lost_starts_anew() -> None:
    assert (
        story(SustainedLimiter(0.0, 60.0), 4, (0.0, 2), (45.0, 4), (60.0, 2), (100.0, 2)) == [4] * 4
    )


def test_windows_of_zero_act_at_once() -> None:
    assert story(SustainedLimiter(0.0, 0.0), 4, (0.0, 2), (1.0, 7), (2.0, 1)) == [2, 7, 1]


def test_rates_count_from_the_size_within_the_period() -> None:
    up = story(RateLimiter(2, None, 60.0), 1, (0.0, 9), (15.0, 9), (30.0, 9), (60.0, 9), (75.0, 9))
    assert up == [3, 3, 3, 5, 5]
    down = story(RateLimiter(None, 3, 60.0), 9, (0.0, 0), (30.0, 0), (60.0, 0), (90.0, 9))
    assert down == [6, 6, 3, 9]


def test_the_last_replica_goes_after_the_time_without_work() -> None:
    assert story(ZeroAfterLimiter(60.0), 1, (0.0, 0), (30.0, 0), (60.0, 0)) == [1, 1, 0]


def test_memories_are_plain_data() -> None:
    for limiter, again in (
        (SustainedLimiter(60.0, 60.0), SustainedLimiter(60.0, 60.0)),
        (RateLimiter(1, 1, 60.0), RateLimiter(1, 1, 60.0)),
        (ZeroAfterLimiter(60.0), ZeroAfterLimiter(60.0)),
    ):
        story(limiter, 4, (0.0, 2), (10.0, 0), (20.0, 9))
        again.restore(limiter.state())
        assert again.state() == limiter.state() != {}


def test_roles_grow_in_the_same_proportion() -> None:
    prefill = variant("p", ready=2, role="prefill", maximum=4)
    decode = variant("d", ready=2, role="decode")
    policy = Policy("p", PolicyParts([Wants(10)], CostOrdered(), [MatchedRolesLimiter()]))
    decisions = Scaler({"m": policy}, 45.0).tick(fleet(prefill, decode), 0.0)
    assert [decision.target for decision in decisions] == [4, 4]
    assert decisions[1].limits[0].name == "matched roles"
    assert decisions[1].limits[0].without == 10


def test_a_role_without_room_does_not_hold_the_others() -> None:
    prefill = variant("p", ready=2, role="prefill", maximum=2)
    decode = variant("d", ready=2, role="decode")
    policy = Policy("p", PolicyParts([Wants(10)], CostOrdered(), [MatchedRolesLimiter()]))
    decisions = Scaler({"m": policy}, 45.0).tick(fleet(prefill, decode), 0.0)
    assert [decision.target for decision in decisions] == [2, 10]
