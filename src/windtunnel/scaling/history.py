"""Numbers of the last seconds by key: what parts of policies remember, and their means."""

from typing import Any, Final


class History:
    """Numbers with the time of each, as far back as the window reaches.

    They are kept in a dict of plain data that its owner remembers, in the order of their times.
    """

    def __init__(self, window_s: float, kept: dict[str, Any]) -> None:
        self._window_s: Final = window_s
        self._kept: Final[dict[str, list[list[float]]]] = kept

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def add(self, key: str, now_s: float, number: float) -> None:
        """Also drops what is older than the window, whose start does not belong to it."""
        oldest_s = now_s - self._window_s
        kept = self._kept.setdefault(key, [])
        gone = 0
        while gone < len(kept) and kept[gone][0] <= oldest_s:
            gone += 1
        del kept[:gone]
        kept.append([now_s, number])

    def since(self, key: str, start_s: float) -> list[int]:
        """The numbers after this time, the oldest first."""
        return [int(number) for at_s, number in self._kept.get(key, []) if at_s > start_s]

    def mean(self, key: str, start_s: float, kept: float = 1.0) -> float:
        """Of the numbers after this time, or else the latest; 0 where there is none.

        While less than a window has been seen, the mean is over that part. `kept` is what a number
        weighs a second later.
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
