"""Requests that have nothing left to compute, in steps that have not ended.

Only where `last_step_blocks` is false: the server has gone on with a newcomer, and the requests of
the step that it left are handed out when that step ends.
"""

from typing import Final

from windtunnel.core.loop import INFINITY
from windtunnel.workload.request import AWAY, CLOSING, Request


class Closing:
    """Such requests in the order of their ends."""

    def __init__(self) -> None:
        self.requests: Final[list[Request]] = []

    def add(self, ended: list[Request]) -> None:
        for request in ended:
            request.stage = CLOSING
            self.requests.append(request)
        self.requests.sort(key=_end_of)

    @property
    def next_s(self) -> float:
        """When the next of them ends."""
        return self.requests[0].finished_s if self.requests else INFINITY

    def hand_out(self, now: float, finished: list[Request]) -> None:
        """Moves those that have ended by now to `finished`."""
        while self.requests and self.requests[0].finished_s <= now:
            request = self.requests.pop(0)
            request.stage = AWAY
            finished.append(request)


def _end_of(request: Request) -> float:
    return request.finished_s
