"""Several places for the rows of ended requests, each with a file of its own."""

from collections.abc import Sequence

from windtunnel.twin.accounts import Names
from windtunnel.twin.recorder import RowSink
from windtunnel.workload.request import Request


class RowSinks:
    """Hands every batch of rows to each of some sinks, in their order."""

    def __init__(self, sinks: Sequence[RowSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, requests: list[Request], outcomes: list[str], names: Names) -> None:
        for sink in self._sinks:
            sink.write(requests, outcomes, names)
