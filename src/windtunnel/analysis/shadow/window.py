"""Recent traffic from a gateway's files: requests that have ended, and those in flight."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from windtunnel.workload.traces.record import TraceRequest

FIGURES: Final = ("ttft_p50", "ttft_p95", "tpot_p50", "tpot_p95", "waiting", "rate")
"""The figures that are forecast for an interval and later measured: time to first token and time
per output token of the requests that arrive in it; mean number of requests without a first token;
arrivals per second."""
UNITS: Final = dict.fromkeys(FIGURES[:4], "s") | {"waiting": "requests", "rate": "requests/s"}
LONGEST_GAP_S: Final = 3600.0
MOST_IN_FLIGHT: Final = 1_000_000
GAP_S: Final = 60.0
GAP_SPACINGS: Final = 20.0
"""After a silence of a minute, records are missing if this many requests should have arrived in
it."""
BEFORE_GAP_S: Final = 300.0


class ServedRequest(NamedTuple):
    """Times of a request, for the figures of an interval; NaN: not observed."""

    arrived_s: float
    ttft_s: float
    e2e_s: float
    output_tokens: int


def figures_of(requests: Any, from_s: float, to_s: float) -> dict[str, float | None]:
    """The figures of the requests that arrived in an interval; None where there is no data.

    `requests` are ServedRequests, or an array with a row for each.
    """
    import numpy as np

    table = np.asarray(requests, dtype=np.float64).reshape(-1, len(ServedRequest._fields))
    arrived, ttft, e2e, tokens = table.T
    inside = (arrived >= from_s) & (arrived < to_s)
    timed = np.isfinite(ttft)
    several = inside & timed & np.isfinite(e2e) & (tokens > 1)
    tpot = (e2e[several] - ttft[several]) / (tokens[several] - 1)
    waited = np.minimum(to_s, arrived + ttft) - np.maximum(from_s, arrived)
    # Answers that are not streamed are assumed to wait as long as others.
    share = inside.sum() / max(1, (inside & timed).sum())

    def quantile(values: Any, share: float) -> float | None:
        return float(np.quantile(values, share)) if len(values) else None

    return {
        "ttft_p50": quantile(ttft[inside & timed], 0.50),
        "ttft_p95": quantile(ttft[inside & timed], 0.95),
        "tpot_p50": quantile(tpot, 0.50),
        "tpot_p95": quantile(tpot, 0.95),
        "waiting": float(share * waited[waited > 0.0].sum()) / (to_s - from_s),
        "rate": float(inside.sum()) / (to_s - from_s),
    }


class ReplicaCount(NamedTuple):
    """Replicas of a pool."""

    wanted: int
    ready: int


class StateCount(NamedTuple):
    """Pods, gangs or machines."""

    total: int
    ready: int


class ClusterState(NamedTuple):
    """What is known about a cluster; None: unknown."""

    replicas: dict[str, ReplicaCount]
    """By workload name; some are names of pools or cliques."""
    pods: StateCount | None
    gangs: StateCount | None
    machines: dict[str, StateCount] | None
    """By machine pool; the name is empty if nodes do not say."""


class TrafficGap(NamedTuple):
    """A period without records, between records that were much more frequent."""

    from_s: float
    to_s: float


class Present(NamedTuple):
    """What is known at a moment: recent requests that have ended, and those in flight."""

    now_s: float
    ended: list[TraceRequest]
    """By arrival, with their observed times."""
    in_flight: list[TraceRequest]
    """Their output length is the client's limit, or 0 if unknown."""
    servers: int | None
    """Healthy servers; None: the files do not say."""
    cluster: ClusterState | None = None
    gaps: tuple[TrafficGap, ...] = ()
    """Gaps within the window."""


class TrafficWindow:
    """The last `keep_s` seconds of traffic. Records may be late and out of order."""

    def __init__(self, keep_s: float) -> None:
        self.now_s = 0.0
        self.restarts = 0
        self.late = 0
        """Records of requests that ended before the window."""
        self.servers: int | None = None
        self.cluster: ClusterState | None = None
        self.gaps = 0
        """Gaps so far."""
        self.lost = 0
        """Requests in flight for so long that their end must be missing."""
        self._gaps: list[TrafficGap] = []
        self._record_s: float | None = None
        """The latest time of any record."""
        self.keep_s: Final = keep_s
        self._ended: list[TraceRequest] = []
        self._in_flight: Final[dict[str, TraceRequest]] = {}
        self._doubted_s: float | None = None

    def arrive(self, request: TraceRequest) -> None:
        assert request.id is not None
        self._record(request.arrived_s)
        if len(self._in_flight) < MOST_IN_FLIGHT:
            self._in_flight[request.id] = request

    def leave(self, id: str, now_s: float) -> None:  # noqa: A002 - it is the request's id
        """Removes a request that is over, however it ended; its trace row may come later."""
        self._record(now_s)
        self._in_flight.pop(id, None)

    def end(self, request: TraceRequest) -> None:
        """Takes a trace row."""
        ended_s = request.arrived_s + (request.e2e_s or 0.0)
        self._record(ended_s)
        if request.id is not None:
            self._in_flight.pop(request.id, None)
        if ended_s < self.now_s - self.keep_s:
            self.late += 1
        elif request.output_tokens > 0 and request.prompt_tokens > 0:
            self._ended.append(request)

    def believes(self, time_s: float) -> bool:
        """Whether a record's time is plausible.

        A time an hour ahead of all others is from a damaged record, or from the first one after a
        long pause: it is believed when the next record has about the same time.
        """
        near = self._doubted_s is not None and abs(time_s - self._doubted_s) <= LONGEST_GAP_S
        ahead = self.now_s > 0.0 and time_s > self.now_s + LONGEST_GAP_S
        self._doubted_s = time_s if ahead and not near else None
        return not ahead or near

    def _record(self, time_s: float) -> None:
        """Notes the time of a record; one that follows a long silence reveals a gap."""
        before_s = self._record_s
        if before_s is not None and time_s > before_s + GAP_S:
            lately = sum(one.arrived_s > before_s - BEFORE_GAP_S for one in self._ended)
            if lately * GAP_S > GAP_SPACINGS * BEFORE_GAP_S:
                self.gaps += 1
                self._gaps.append(TrafficGap(before_s, time_s))
        self._record_s = time_s if before_s is None else max(before_s, time_s)
        self.see(time_s)

    def see(self, now_s: float) -> None:
        """Advances the clock; it never goes back, whatever a record says."""
        self.now_s = max(self.now_s, now_s)

    def restart(self) -> None:
        """Starts anew after a restart of the gateway: its clock restarts, and nothing is in
        flight."""
        self.restarts += 1
        self.now_s = 0.0
        self._ended.clear()
        self._in_flight.clear()
        self._gaps.clear()
        self._record_s = None
        self.servers = None

    def present(self) -> Present:
        """The current state; forgets whatever is older than the window."""
        from_s = self.now_s - self.keep_s
        self._ended = [one for one in self._ended if one.arrived_s >= from_s]
        self._ended.sort(key=_order)
        self._gaps = [one for one in self._gaps if one.to_s >= from_s]
        for id in [key for key, one in self._in_flight.items() if one.arrived_s < from_s - GAP_S]:  # noqa: A001 - as above
            del self._in_flight[id]
            self.lost += 1
        flying = sorted(self._in_flight.values(), key=_order)
        return Present(
            self.now_s, list(self._ended), flying, self.servers, self.cluster, tuple(self._gaps)
        )

    def replace_in_flight(self, requests: Iterable[TraceRequest]) -> None:
        """Sets the requests in flight, where their number is known but not their identity."""
        self._in_flight.clear()
        self._in_flight.update((str(one.id), one) for one in requests)

    def measured(self, from_s: float, to_s: float) -> dict[str, float | None] | None:
        """The figures of an interval once all requests that arrived in it have ended; None: too
        early.

        All figures are None for an interval with a gap.
        """
        if self.now_s < to_s or any(
            from_s <= one.arrived_s < to_s for one in self._in_flight.values()
        ):
            return None
        last_s = self.now_s if self._record_s is None else self._record_s
        if last_s < min(to_s, self.now_s - GAP_S):
            return None  # the next record will show whether it is a gap
        if any(gap.from_s < to_s and gap.to_s > from_s for gap in self._gaps):
            return dict.fromkeys(FIGURES)
        return figures_of(list(served(self._ended)), from_s, to_s)


def served(requests: list[TraceRequest]) -> Iterator[ServedRequest]:
    """The observed times of requests."""
    for one in requests:
        ttft_s, e2e_s = (math.nan if it is None else it for it in (one.ttft_s, one.e2e_s))
        yield ServedRequest(one.arrived_s, ttft_s, e2e_s, one.output_tokens)


def _order(request: TraceRequest) -> tuple[float, str]:
    return request.arrived_s, request.id or ""
