"""Surges: rises that noise does not explain, whether they are worth a start, and where they lead.

A replica requested in a surge serves only once it has started. So surges are followed only while
enough of those before lasted that long; shorter ones are served by the ready replicas, or not at
all.
"""

from typing import Any, Final

_BY_CHANCE: Final = 4.0
"""Standard deviations above the expected rate, beyond which a rate is a surge."""
_FOLLOWED: Final = 0.25
"""The share of surges that must have lasted as long as a start for one to be followed."""
_REMEMBERED: Final = 0.9
"""Weight of a surge's outcome after the next one."""
_OVER: Final = 0.3
"""A surge is over when the rate falls below this share of its height."""


class Surges:
    """The current surge, if any, and the outcomes of earlier ones."""

    def __init__(self, startup_s: float) -> None:
        self._startup_s: Final = startup_s
        self.active = False
        self._began_s = 0.0
        self._base = 0.0  # the rate that it rose from
        self._peak = 0.0
        self._rising = False
        self._last = 0.0
        self._earlier = False  # whether an earlier surge is over
        # When to check whether a surge lasted, and the rate above which it did.
        self._waiting: list[list[float]] = []
        self._lasted = 1.0  # starts as if one had lasted, so that the first surge is followed
        self._outcomes = 1.0

    @property
    def share_lasting(self) -> float:
        """The share of surges so far that lasted as long as a start."""
        return self._lasted / self._outcomes

    @property
    def are_worth_a_start(self) -> bool:
        return self.share_lasting >= _FOLLOWED

    def see(self, now_s: float, rate: float, expected: float, deviation: float) -> None:
        """Takes the rate of the last seconds, the expected rate, and its standard deviation."""
        self._settle(now_s, rate)
        self._rising = rate > self._last + deviation
        if self.active:
            self._peak = max(self._peak, rate)
            fallen = rate < self._base + _OVER * (self._peak - self._base)
            if fallen or expected >= rate:
                self.active = False
                self._earlier = True
        elif rate - expected > _BY_CHANCE * deviation:
            self.active = self._rising = True
            self._began_s, self._base, self._peak = now_s, expected, rate
            self._waiting.append([now_s + self._startup_s, (expected + rate) / 2.0])
        self._last = rate

    def rate(self, now_s: float, window_s: float, highest: float) -> float:
        """The rate to plan for in a surge: extrapolated along its line while it rises.

        At most twice the current rate, since a line is a guess. Bursts often rise as high as
        earlier ones, so after an earlier burst the rise is expected to end at `highest`.
        """
        if not self._rising:
            return self._last
        slope = (self._last - self._base) / (now_s - self._began_s + window_s)
        line = self._last + min(slope * self._startup_s, self._last)
        known = self._last < highest or self._earlier
        return min(line, max(self._last, highest)) if known else line

    def _settle(self, now_s: float, rate: float) -> None:
        """Learns from surges that began as long ago as a start takes."""
        while self._waiting and self._waiting[0][0] <= now_s:
            _, above = self._waiting.pop(0)
            self._lasted = _REMEMBERED * self._lasted + (rate >= above)
            self._outcomes = _REMEMBERED * self._outcomes + 1.0

    def state(self) -> dict[str, object]:
        return {
            "active": self.active,
            "rates": [self._began_s, self._base, self._peak, self._last],
            "rising": self._rising,
            "earlier": self._earlier,
            "waiting": [list(entry) for entry in self._waiting],
            "lasted": [self._lasted, self._outcomes],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.active, self._rising = state["active"], state["rising"]
        self._earlier = state.get("earlier", False)
        self._began_s, self._base, self._peak, self._last = state["rates"]
        self._waiting = [list(entry) for entry in state["waiting"]]
        self._lasted, self._outcomes = state["lasted"]
