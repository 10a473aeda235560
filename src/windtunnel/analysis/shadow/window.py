"""Recent traffic as a gateway's files show it: what has ended, and what is still being answered."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from windtunnel.workload.traces.record import TraceRequest

FIGURES: Final = ("ttft_p50", "ttft_p95", "tpot_p50", "tpot_p95", "waiting", "rate")
"""What is forecast of a stretch of time, and later measured: of the requests that arrive in it,
time to first token and time per output token; requests without a first token, on average; arrivals
per second."""
UNITS: Final = dict.fromkeys(FIGURES[:4], "s") | {"waiting": "requests", "rate": "requests/s"}
LONGEST_GAP_S: Final = 3600.0
MOST_IN_FLIGHT: Final = 1_000_000


class ServedRequest(NamedTuple):
    """Times of a request that was answered, for figures of a stretch."""

    arrived_s: float
    ttft_s: float
    e2e_s: float
    output_tokens: int


def figures_of(requests: Any, from_s: float, to_s: float) -> dict[str, float | None]:
    """The figures of those that arrived in a stretch; None where there is nothing to say.

    `requests` are ServedRequests, or an array with a row for each.
    """
    import numpy as np

    table = np.asarray(requests, dtype=np.float64).reshape(-1, len(ServedRequest._fields))
    arrived, ttft, e2e, tokens = table.T
    inside = (arrived >= from_s) & (arrived < to_s)
    several = inside & (tokens > 1)
    tpot = (e2e[several] - ttft[several]) / (tokens[several] - 1)
    waited = np.minimum(to_s, arrived + ttft) - np.maximum(from_s, arrived)

    def quantile(values: Any, share: float) -> float | None:
        return float(np.quantile(values, share)) if len(values) else None

    return {
        "ttft_p50": quantile(ttft[inside], 0.50),
        "ttft_p95": quantile(ttft[inside], 0.95),
        "tpot_p50": quantile(tpot, 0.50),
        "tpot_p95": quantile(tpot, 0.95),
        "waiting": float(waited[waited > 0.0].sum()) / (to_s - from_s),
        "rate": float(inside.sum()) / (to_s - from_s),
    }


class Present(NamedTuple):
    """What is known at a moment: recent requests that have ended, and those that have not."""

    now_s: float
    ended: list[TraceRequest]
    """By arrival, with the times that were observed."""
    in_flight: list[TraceRequest]
    """Their outputs are as long as the client allows, or 0: unknown."""
    servers: int | None
    """Healthy ones; None: the files do not say."""


class TrafficWindow:
    """The last `keep_s` of traffic. Records may come late and out of order."""

    def __init__(self, keep_s: float) -> None:
        self.now_s = 0.0
        self.restarts = 0
        self.late = 0
        """Records of requests that ended longer ago than the window."""
        self.servers: int | None = None
        self._keep_s: Final = keep_s
        self._ended: list[TraceRequest] = []
        self._in_flight: Final[dict[str, TraceRequest]] = {}
        self._doubted_s: float | None = None

    def arrive(self, request: TraceRequest) -> None:
        assert request.id is not None
        self.see(request.arrived_s)
        if len(self._in_flight) < MOST_IN_FLIGHT:
            self._in_flight[request.id] = request

    def leave(self, id: str, now_s: float) -> None:  # noqa: A002 - it is the request's id
        """A request is over, however; its row of the trace may come later."""
        self.see(now_s)
        self._in_flight.pop(id, None)

    def end(self, request: TraceRequest) -> None:
        """A row of the trace."""
        ended_s = request.arrived_s + (request.e2e_s or 0.0)
        self.see(ended_s)
        if request.id is not None:
            self._in_flight.pop(request.id, None)
        if ended_s < self.now_s - self._keep_s:
            self.late += 1
        elif request.output_tokens > 0 and request.prompt_tokens > 0:
            self._ended.append(request)

    def believes(self, time_s: float) -> bool:
        """Whether a record may be of this time.

        One that is an hour ahead of all others is damaged, or the first after a long pause: it is
        believed when the next record says about the same.
        """
        near = self._doubted_s is not None and abs(time_s - self._doubted_s) <= LONGEST_GAP_S
        ahead = self.now_s > 0.0 and time_s > self.now_s + LONGEST_GAP_S
        self._doubted_s = time_s if ahead and not near else None
        return not ahead or near

    def see(self, now_s: float) -> None:
        """Time has come so far; it never goes back, whatever a record says."""
        self.now_s = max(self.now_s, now_s)

    def restart(self) -> None:
        """The gateway was started again: its clock begins anew, and nothing is in flight."""
        self.restarts += 1
        self.now_s = 0.0
        self._ended.clear()
        self._in_flight.clear()
        self.servers = None

    def present(self) -> Present:
        """What is known now; what is older than the window is forgotten."""
        from_s = self.now_s - self._keep_s
        self._ended = [one for one in self._ended if one.arrived_s >= from_s]
        self._ended.sort(key=_order)
        flying = sorted(self._in_flight.values(), key=_order)
        return Present(self.now_s, list(self._ended), flying, self.servers)

    def measured(self, from_s: float, to_s: float) -> dict[str, float | None] | None:
        """The figures of a stretch, once all that arrived in it has ended; None: too early."""
        if self.now_s < to_s or any(
            from_s <= one.arrived_s < to_s for one in self._in_flight.values()
        ):
            return None
        return figures_of(list(served(self._ended)), from_s, to_s)


def served(requests: list[TraceRequest]) -> Iterator[ServedRequest]:
    """Those whose times were observed."""
    for one in requests:
        if one.ttft_s is not None and one.e2e_s is not None:
            yield ServedRequest(one.arrived_s, one.ttft_s, one.e2e_s, one.output_tokens)


def _order(request: TraceRequest) -> tuple[float, str]:
    return request.arrived_s, request.id or ""
