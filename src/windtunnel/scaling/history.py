"""Recent numbers by key, kept in the memory of policy parts, and their means."""

from typing import Any, Final


class History:
    """Timestamped numbers by key, as far back as the window reaches.

    They are kept in time order in a dict of plain data that belongs to the caller's memory.
    """

    def __init__(self, window_s: float, kept: dict[str, Any]) -> None:
        self._window_s: Final = window_s
        self._kept: Final[dict[str, list[list[float]]]] = kept

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def add(self, key: str, now_s: float, number: float) -> None:
        """Adds a number and drops those at or before the start of the window."""
        oldest_s = now_s - self._window_s
        kept = self._kept.setdefault(key, [])
        gone = 0
        while gone < len(kept) and kept[gone][0] <= oldest_s:
            gone += 1
        del kept[:gone]
        kept.append([now_s, number])

    def note(self, key: str, now_s: float, number: float) -> None:
        """As `add`, but replaces the latest number if it is equal.

        Extremes stay the same, and a number that rarely changes costs the same at any interval.
        """
        kept = self._kept.get(key)
        if kept and kept[-1][1] == number:
            kept.pop()
        self.add(key, now_s, number)

    def since(self, key: str, start_s: float) -> list[int]:
        """The numbers after this time, oldest first."""
        return [int(number) for at_s, number in self._kept.get(key, []) if at_s > start_s]

    def mean(self, key: str, start_s: float, kept: float = 1.0) -> float:
        """The mean of the numbers after this time, else the latest number; 0 where there is none.

        Until a whole window has passed, the mean is over the part seen so far. `kept` is the weight
        of a number one second later.
        """
        total = 0.0
        weight = 0.0
        latest_s = 0.0
        for at_s, number in reversed(self._kept.get(key, [])):
            if weight == 0.0:
                latest_s = at_s
            elif at_s <= start_s:
                break
            weighs = 1.0 if kept == 1.0 else kept ** (latest_s - at_s)
            total += weighs * number
            weight += weighs
        return total / weight if weight > 0.0 else 0.0
