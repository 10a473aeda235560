"""Keeps the account of a run: every request that arrived ends here, once, in one outcome."""

from typing import Final, Protocol

from windtunnel.core.distribution import Distribution
from windtunnel.workload.request import Request

COMPLETED: Final = "completed"
REJECTED: Final = "rejected"
TIMED_OUT: Final = "timed_out"
DROPPED: Final = "dropped"
UNFINISHED: Final = "unfinished"
OUTCOMES: Final = (COMPLETED, REJECTED, TIMED_OUT, DROPPED, UNFINISHED)

ROWS_PER_BATCH: Final = 65_536


class RowSink(Protocol):
    """Somewhere the rows of ended requests go, many at a time."""

    def write(self, requests: list[Request], outcomes: list[str]) -> None: ...


class Targets:
    """What a class of service promises; infinity where it promises nothing."""

    def __init__(self, slo: str, ttft_s: float, tpot_s: float, e2e_s: float) -> None:
        self.slo: Final = slo
        self.ttft_s: Final = ttft_s
        self.tpot_s: Final = tpot_s
        self.e2e_s: Final = e2e_s
        self.requests = 0
        self.attained = 0


class Overheads:
    """Time around the engine that a client sees, by pool."""

    def __init__(self, queueing_s: float, per_token_s: float, completion_s: float) -> None:
        self.queueing_s: Final = queueing_s
        self.per_token_s: Final = per_token_s
        self.completion_s: Final = completion_s


class Recorder:
    """Counts arrivals and endings, and keeps the figures that a result shows."""

    def __init__(
        self, targets: list[Targets], overheads: list[Overheads], sink: RowSink | None
    ) -> None:
        self._targets: Final = targets  # by source
        self._overheads: Final = overheads  # by server
        self._sink: Final = sink
        self._rows: list[Request] = []
        self._row_outcomes: list[str] = []
        self.arrived = 0
        self.outcomes: Final = dict.fromkeys(OUTCOMES, 0)
        self.attained = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.prefix_hit_tokens = 0
        self.ttft: Final = Distribution()
        self.tpot: Final = Distribution()
        self.e2e: Final = Distribution()
        self.queue: Final = Distribution()

    @property
    def ended(self) -> int:
        return sum(self.outcomes.values())

    def targets_by_class(self) -> dict[str, Targets]:
        return {targets.slo: targets for targets in self._targets}

    def arrive(self, request: Request) -> None:
        self.arrived += 1
        self._targets[request.source].requests += 1

    def end(self, request: Request, outcome: str) -> None:
        """The one way out of a run."""
        self.outcomes[outcome] += 1
        if outcome == COMPLETED:
            self._measure(request)
        if self._sink is not None:
            self._rows.append(request)
            self._row_outcomes.append(outcome)
            if len(self._rows) == ROWS_PER_BATCH:
                self.flush()

    def _measure(self, request: Request) -> None:
        around = self._overheads[request.server]
        arrived_s = request.arrived_s
        output: int = request.output_tokens
        request.first_token_s += around.per_token_s
        request.finished_s += around.per_token_s * output + around.completion_s
        ttft_s = request.first_token_s - arrived_s
        e2e_s = request.finished_s - arrived_s
        targets = self._targets[request.source]
        good = ttft_s <= targets.ttft_s and e2e_s <= targets.e2e_s
        self.ttft.add(ttft_s)
        self.e2e.add(e2e_s)
        self.queue.add(request.scheduled_s - arrived_s)
        if output > 1:
            tpot_s = (request.finished_s - around.completion_s - request.first_token_s) / (
                output - 1
            )
            self.tpot.add(tpot_s)
            good = good and tpot_s <= targets.tpot_s
        if good:
            self.attained += 1
            targets.attained += 1
        self.prompt_tokens += request.prompt_tokens
        self.output_tokens += output
        self.prefix_hit_tokens += request.prefix_hit_tokens

    def flush(self) -> None:
        """Hands the rows that have come together to the sink."""
        if self._sink is not None and self._rows:
            self._sink.write(self._rows, self._row_outcomes)
        self._rows.clear()
        self._row_outcomes.clear()
