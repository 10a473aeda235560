"""So many requests, or tokens, in any minute: an exact sliding window with settled estimates.

What was let through is remembered until it is a window old, so that no minute, however it is laid,
holds more than the limit. An estimate is put right when the true amount is known.
"""

from collections import deque
from typing import Final

from windtunnel.core.errors import InputError

MINUTE_S: Final = 60.0
UNLIMITED: Final = 0


class Observed:
    """What a reply's headers said of the provider's limits; negative is unknown."""

    __slots__ = (
        "requests_left",
        "requests_limit",
        "requests_reset_s",
        "retry_after_s",
        "tokens_left",
        "tokens_limit",
        "tokens_reset_s",
    )

    def __init__(
        self,
        *,
        requests_limit: int = -1,
        requests_left: int = -1,
        requests_reset_s: float = -1.0,
        tokens_limit: int = -1,
        tokens_left: int = -1,
        tokens_reset_s: float = -1.0,
        retry_after_s: float = 0.0,
    ) -> None:
        self.requests_limit: Final = requests_limit
        self.requests_left: Final = requests_left
        self.requests_reset_s: Final = requests_reset_s
        self.tokens_limit: Final = tokens_limit
        self.tokens_left: Final = tokens_left
        self.tokens_reset_s: Final = tokens_reset_s
        self.retry_after_s: Final = retry_after_s


class Spent:
    """One amount in the window; settling changes it."""

    __slots__ = ("amount", "at_s", "is_gone")

    def __init__(self, at_s: float, amount: int) -> None:
        self.at_s: Final = at_s
        self.amount = amount
        self.is_gone = False


class Budget:
    """At most `limit` in any window; 0 is no limit. `source` says where the limit came from."""

    def __init__(self, limit: int, source: str, window_s: float = MINUTE_S) -> None:
        if limit < 0:
            raise InputError(f"{limit} is not a budget", allowed="0 (none) or more")
        self.limit = limit
        self.source = source
        self.window_s: Final = window_s
        self.used = 0
        self._spent: Final[deque[Spent]] = deque()

    def left(self, now: float) -> int:
        """What may still be spent now; below 0 when estimates were too low."""
        self._expire(now)
        return self.limit - self.used

    def spend(self, amount: int, now: float) -> Spent | None:
        """Books an amount that `ready_s` allowed; None when there is no limit to book against."""
        if self.limit == UNLIMITED:
            return None
        spent = Spent(now, amount)
        self._spent.append(spent)
        self.used += amount
        return spent

    def settle(self, spent: Spent, amount: int) -> None:
        """The true amount is known; what has left the window is no longer counted."""
        if not spent.is_gone:
            self.used += amount - spent.amount
            spent.amount = amount

    def ready_s(self, amount: int, now: float) -> float:
        """When this amount may be spent: now, or when enough has left the window."""
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

    def learn(self, limit: int, left: int, reset_s: float, now: float) -> bool:
        """What a provider said of its window: its limit, what is left of it, and until when.

        Negative numbers are unknown. A configured limit stays; whatever others spent on the same
        key is booked as spent. True when the limit changed.
        """
        changed = False
        if limit > 0 and self.source != "configured" and limit != self.limit:
            self.limit = limit
            self.source = "headers"
            changed = True
        if left >= 0 and self.limit != UNLIMITED:
            foreign = self.left(now) - left
            if foreign > 0:
                until_s = reset_s if 0.0 <= reset_s < self.window_s else self.window_s
                self._book_foreign(foreign, now + until_s - self.window_s)
        return changed

    def _book_foreign(self, amount: int, at_s: float) -> None:
        """Puts what others spent among ours, in the order in which it leaves the window."""
        place = len(self._spent)
        while place > 0 and self._spent[place - 1].at_s > at_s:
            place -= 1
        self._spent.insert(place, Spent(at_s, amount))
        self.used += amount

    def _expire(self, now: float) -> None:
        spent = self._spent
        while spent and spent[0].at_s + self.window_s <= now:
            gone = spent.popleft()
            gone.is_gone = True
            self.used -= gone.amount
