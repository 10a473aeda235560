"""Whether a soak was good enough: limits for what was seen, and a verdict with each number."""

import math

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.soak import Figures


class Envelope(msgspec.Struct, frozen=True):
    """What a fleet must keep to."""

    whole_s_p99: float = 1.0
    """Of the processor, for lists, roll-ups, planning and execution together.

    Half of what passes between two roll-ups would do; this leaves room.
    """
    landing_success: float = 0.99
    """The least share of actions that must have ended well."""

    def check(self) -> "Envelope":
        """Itself, when its limits make sense."""
        if not self.whole_s_p99 > 0.0:
            raise InputError(f"the limit of a cycle is {self.whole_s_p99} s", allowed="above 0")
        if not 0.0 <= self.landing_success <= 1.0:
            raise InputError(f"the landing success is {self.landing_success}", allowed="0 to 1")
        return self


class Check(msgspec.Struct, frozen=True):
    """One limit, and whether it was kept."""

    name: str
    value: float
    limit: float
    at_most: bool
    passed: bool
    words: str
    """More about it, where there is something to tell."""


def judge(seen: Figures, envelope: Envelope) -> list[Check]:
    """Every limit with its number. What was not seen at all does not pass."""
    limits = envelope.check()
    lost = f"{seen.losses} machines lost, {seen.losses_expected:.1f} expected"
    return [
        _at_most("whole_s_p99", seen.whole_s_p99, limits.whole_s_p99, f"{seen.cycles} cycles"),
        _at_least("landing_success", seen, limits.landing_success, f"{seen.actions} actions"),
        _at_most("duplicate_actions", seen.duplicate_actions, 0, f"{seen.asked_again} asked again"),
        _at_most("shortfalls", seen.shortfalls, 0, seen.shortfall_need or lost),
        _at_most(
            "invariants_broken",
            seen.invariants_broken,
            0,
            seen.broken or f"{seen.invariants_checked} checks",
        ),
    ]


def _at_most(name: str, value: float, limit: float, words: str) -> Check:
    return Check(name, value, limit, at_most=True, passed=value <= limit, words=words)


def _at_least(name: str, seen: Figures, limit: float, words: str) -> Check:
    value = seen.landing_success if seen.actions else math.nan
    return Check(name, value, limit, at_most=False, passed=value >= limit, words=words)


def has_passed(checks: list[Check]) -> bool:
    """Whether all limits were kept."""
    return all(one.passed for one in checks)
