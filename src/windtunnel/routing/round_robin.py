"""Routers that look at nothing: each server in turn, or any."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.routing.router import Router
from windtunnel.workload.request import Request


class RoundRobin(Router):
    """Every server in turn, whatever it is doing."""

    def __init__(self, candidates: list[int]) -> None:
        super().__init__(candidates)
        self._next = 0

    def choose(self, request: Request, now_s: float) -> int:  # noqa: ARG002
        if self._next >= len(self.candidates):
            self._next = 0
        chosen = self.candidates[self._next]
        self._next += 1
        return chosen


class AtRandom(Router):
    """Any server, each as likely as the others."""

    def __init__(self, candidates: list[int], stream: Stream) -> None:
        super().__init__(candidates)
        self._stream: Final = stream

    def choose(self, request: Request, now_s: float) -> int:  # noqa: ARG002
        return self.candidates[self._stream.integer(0, len(self.candidates) - 1)]
