"""The account of conversations: how long each lasted, and how fast first and later turns were."""

from typing import Final

from windtunnel.core.distribution import EXACT_VALUES, Distribution
from windtunnel.workload.request import UNSET, Request


class SessionAccounts:
    """Sessions by number. The first million are timed; beyond that, turns alone are counted."""

    def __init__(self) -> None:
        self.cold_ttft: Final = Distribution()  # of first turns, and of later ones
        self.warm_ttft: Final = Distribution()
        self.turns = 0
        self.count = 0
        self._start_s: Final[list[float]] = []  # when the first turn came; UNSET: never
        self._end_s: Final[list[float]] = []  # when the last one ended; UNSET: it did not

    def arrive(self, request: Request) -> None:
        self.turns += 1
        number: int = request.session
        if number >= EXACT_VALUES:
            self.count += 1 if request.turn == 0 else 0
            return
        while len(self._start_s) <= number:
            self._start_s.append(UNSET)
            self._end_s.append(UNSET)
        if self._start_s[number] == UNSET:
            self._start_s[number] = request.arrived_s
            self.count += 1

    def complete(self, request: Request, ttft_s: float) -> None:
        if request.turn == 0:
            self.cold_ttft.add(ttft_s)
        else:
            self.warm_ttft.add(ttft_s)

    def end(self, request: Request) -> None:
        """A turn ended, whichever way; with its end unset, it did not."""
        number: int = request.session
        if number < EXACT_VALUES:
            self._end_s[number] = request.finished_s

    def durations(self) -> Distribution:
        """First arrival to last end, of those sessions whose last turn has ended."""
        found = Distribution()
        for start_s, end_s in zip(self._start_s, self._end_s, strict=True):
            if start_s >= 0.0 and end_s >= 0.0:
                found.add(end_s - start_s)
        return found
