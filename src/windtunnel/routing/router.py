"""What every router is: given a request and the time, the number of one of its servers."""

from mypy_extensions import mypyc_attr

from windtunnel.workload.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Router:
    """Chooses among `candidates`. It decides from what it was built with and what it is shown.

    While there are none, nobody asks it.
    """

    def __init__(self, candidates: list[int]) -> None:
        self.candidates = candidates
        self.reads_signals = False  # whether somebody must keep the signals fresh for it

    def set_candidates(self, candidates: list[int]) -> None:
        """From now on it chooses among these: servers have come or gone.

        A server that was not there before has a number that none had, and an entry in the signals.
        """
        self.candidates = candidates

    def gone(self, server: int) -> None:
        """This server will never be a candidate again: what was remembered of it can go."""

    def choose(self, request: Request, now_s: float) -> int:
        """The server for a request that will be sent there now."""
        raise NotImplementedError

    def explain(self, request: Request, now_s: float) -> list[tuple[int, float]]:  # noqa: ARG002
        """What it thinks of every candidate, higher is better; nothing when it does not compare."""
        return []
