"""Budgets of requests or tokens per minute: an exact sliding window with settled estimates.

Amounts are remembered until they are a window old, so that no minute, wherever it begins, exceeds
the limit. An estimate is corrected when the true amount is known.

A limit learned from replies may be per second, minute, hour or day. Limits per second and per
minute are enforced. Longer ones are left to the provider: it does not say whether they are restored
gradually or all at midnight, and a client that is silent until tomorrow is of no use.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from windtunnel.core.errors import InputError

SECOND_S: Final = 1.0
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
UNLIMITED: Final = 0
CONFIGURED: Final = "configured"

_SLACK: Final = 1.5
"""Resets are rounded, and seen slightly late: times within this factor count as equal."""


@dataclass(frozen=True)
class ObservedLimit:
    """One limit as reported in a reply's headers; negative is unknown.

    A limit holds for its window; its reset is how long until all of it is available again.
    """

    limit: int = -1
    left: int = -1
    reset_s: float = -1.0
    window_s: float = -1.0


UNSAID: Final = ObservedLimit()


@dataclass(frozen=True, kw_only=True)
class ObservedLimits:
    """The provider's limits as reported in a reply's headers, and the wait it asked for."""

    requests: ObservedLimit = UNSAID
    tokens: ObservedLimit = UNSAID
    retry_after_s: float = 0.0


class Spent:
    """One amount in the window; settling changes it."""

    def __init__(
        self,
        at_s: float,
        amount: int,
        is_foreign: bool = False,  # noqa: FBT001, FBT002 - compiled calls are cheaper by place
    ) -> None:
        self.at_s: Final = at_s
        self.amount = amount
        self.is_foreign: Final = is_foreign
        """Whether other clients spent it on the same key, as inferred from headers."""
        self.is_gone = False


class WindowFinder:
    """Infers the length of a limit's window from successive replies.

    Two kinds of providers use the same headers. If everything is restored at once, a reset is the
    rest of the window. If it is restored steadily, a reset is as long as the used part takes: with
    9,999 of 10,000 left and a reset in 8.64 s, all of it takes a day. Until replies say enough, a
    minute is assumed.
    """

    def __init__(self) -> None:
        self.window_s = MINUTE_S
        self._longest_reset_s = 0.0
        self._suspected_s = 0.0
        self._suspected_used = 0
        self._suspected_reset_s = 0.0

    def saw(self, limit: int, left: int, reset_s: float) -> None:
        """Takes in one reply; negative is unknown."""
        if reset_s <= 0.0:
            return
        if reset_s > self._longest_reset_s:
            self._longest_reset_s = reset_s
        if self._longest_reset_s > self.window_s * _SLACK:
            # No reset is longer than its window.
            self.window_s = _window_of(self._longest_reset_s)
        if not 0 <= left < limit:
            return
        used = limit - left
        whole_s = reset_s * limit / used
        if whole_s <= SECOND_S * _SLACK:
            if self._longest_reset_s <= SECOND_S * _SLACK:
                self.window_s = SECOND_S
        elif whole_s > MINUTE_S * _SLACK:
            self._suspect(whole_s, used, reset_s)

    def _suspect(self, whole_s: float, used: int, reset_s: float) -> None:
        """Accepts a long window if it follows from low and from high use alike.

        The reset must have grown with use: early in a minute that is restored at once, it stays the
        same while more and more is used.
        """
        found_s = 0.0
        for known_s in (HOUR_S, DAY_S):
            if known_s <= whole_s * _SLACK and whole_s <= known_s * _SLACK:
                found_s = known_s
        if found_s == 0.0 or found_s != self._suspected_s:
            self._suspected_s = found_s
            self._suspected_used = used
            self._suspected_reset_s = reset_s
        elif max(used, self._suspected_used) >= 2 * min(used, self._suspected_used) and max(
            reset_s, self._suspected_reset_s
        ) >= _SLACK * min(reset_s, self._suspected_reset_s):
            self.window_s = max(self.window_s, found_s)


def _window_of(reset_s: float) -> float:
    """Returns the shortest window that such a reset fits into."""
    for known_s in (SECOND_S, MINUTE_S, HOUR_S):
        if reset_s <= known_s * _SLACK:
            return known_s
    return DAY_S


class Budget:
    """At most `limit` in any window; 0: no limit. `source` says where the limit came from."""

    def __init__(self, limit: int, source: str, window_s: float = MINUTE_S) -> None:
        if limit < 0:
            raise InputError(f"{limit} is not a budget", allowed="0 (none) or more")
        self.limit = limit
        self.source = source
        self.window_s = window_s
        self.used = 0
        self._finder: Final = WindowFinder()
        self._spent: Final[deque[Spent]] = deque()

    @property
    def per_minute(self) -> int:
        """The limit, converted to a minute."""
        return int(self.limit * MINUTE_S / self.window_s)

    def left(self, now: float) -> int:
        """Returns what may still be spent now; below 0 if estimates were too low."""
        self._expire(now)
        return self.limit - self.used

    def spend(self, amount: int, now: float) -> Spent | None:
        """Books an amount that `ready_s` allowed; None if there is no limit to book against."""
        if self.limit == UNLIMITED:
            return None
        spent = Spent(now, amount)
        self._spent.append(spent)
        self.used += amount
        return spent

    def settle(self, spent: Spent, amount: int) -> None:
        """Replaces an estimate by the true amount, unless it has already left the window."""
        if not spent.is_gone:
            self.used += amount - spent.amount
            spent.amount = amount

    def ready_s(self, amount: int, now: float) -> float:
        """Returns when this amount may be spent: now, or when enough has left the window."""
        if self.limit == UNLIMITED:
            return now
        self._expire(now)
        excess = self.used + amount - self.limit
        if excess <= 0:
            return now
        for spent in self._spent:
            excess -= spent.amount
            if excess <= 0:
                ready_s = spent.at_s + self.window_s
                return ready_s if ready_s > now else now
        return float("inf")

    def configure(self, limit: int) -> None:
        """Sets a limit per minute configured by the user; replies no longer change it."""
        self._move_window(MINUTE_S)
        self.limit = limit
        self.source = CONFIGURED

    def learn(self, observed: ObservedLimit, now: float) -> bool:
        """Learns from a provider's reply; an unknown window is inferred from the rest.

        A configured limit stays. What other clients spent on the same key is booked as spent.
        Returns whether the limit changed.
        """
        limit, left, reset_s = observed.limit, observed.left, observed.reset_s
        window_s = observed.window_s
        if window_s <= 0.0:
            self._finder.saw(limit, left, reset_s)
            window_s = self._finder.window_s
        is_ours = self.source == CONFIGURED
        if window_s > MINUTE_S or (is_ours and window_s != self.window_s):
            return False if is_ours else self._forget_limit()
        changed = False
        if limit > 0 and not is_ours and (limit != self.limit or window_s != self.window_s):
            self._move_window(window_s)
            self.limit = limit
            self.source = "headers"
            changed = True
        if left >= 0 and self.limit != UNLIMITED:
            foreign = self.left(now) - left
            if foreign > 0:
                until_s = reset_s if 0.0 <= reset_s < self.window_s else self.window_s
                self._book_foreign(foreign, now + until_s - self.window_s)
        return changed

    def _forget_limit(self) -> bool:
        """Drops a limit that was taken as one per minute but holds for a longer time."""
        if self.limit == UNLIMITED:
            return False
        self.limit = UNLIMITED
        self.source = "default"
        self.used = 0
        while self._spent:
            self._spent.popleft().is_gone = True
        return True

    def _move_window(self, window_s: float) -> None:
        """Changes the window, and drops foreign spending, whose times belonged to the old one."""
        if window_s == self.window_s:
            return
        self.window_s = window_s
        for _ in range(len(self._spent)):
            spent = self._spent.popleft()
            if spent.is_foreign:
                self.used -= spent.amount
            else:
                self._spent.append(spent)

    def _book_foreign(self, amount: int, at_s: float) -> None:
        """Inserts foreign spending among ours, in the order in which it leaves the window."""
        place = len(self._spent)
        while place > 0 and self._spent[place - 1].at_s > at_s:
            place -= 1
        self._spent.insert(place, Spent(at_s, amount, True))  # noqa: FBT003
        self.used += amount

    def _expire(self, now: float) -> None:
        spent = self._spent
        while spent and spent[0].at_s + self.window_s <= now:
            gone = spent.popleft()
            gone.is_gone = True
            self.used -= gone.amount
