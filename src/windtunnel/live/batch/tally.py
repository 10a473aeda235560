"""The counters of a run, read by the progress display, the metrics and the summary."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import CONFIGURED
from windtunnel.admission.requests.endpoint import ModelEndpoint, QueueTicket
from windtunnel.live.metrics import BucketCounts

LATENCY_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Ending(StrEnum):
    """How a run ended."""

    COMPLETE = "complete"
    """Every row is finished, dropped or given up."""
    STALLED = "stalled"
    """Nothing succeeded for the retry time."""
    REFUSED = "refused"
    """No row will be answered: the key, model, address or request is wrong."""
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    UNWRITABLE = "unwritable"
    """The output cannot be written."""


class CallTally:
    """Calls to one model of one endpoint."""

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: Final[dict[Outcome, int]] = {}
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.waited_s = 0.0
        self.durations: Final = BucketCounts(LATENCY_BOUNDS_S)

    def ended(self, outcome: Outcome, took_s: float, prompt: int, completion: int) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.prompt_tokens += max(0, prompt)
        self.completion_tokens += max(0, completion)
        self.durations.add(took_s)


class BatchTally:
    """The progress of a run; `resumed` rows were finished by an earlier run."""

    def __init__(self, columns: Sequence[str], rows: int, finished: int, dropped: int) -> None:
        self.columns: Final = tuple(columns)
        self.rows: Final = rows
        self.resumed: Final = finished
        self.finished = finished
        self.dropped = dropped
        self.gave_up = 0
        self.unwritten = 0
        self.cells: Final = [0] * len(columns)
        """Cells finished in this run, by column."""
        self.cells_before: Final = [finished] * len(columns)
        self.calls: Final[dict[tuple[str, str], CallTally]] = {}

    def call(self, endpoint: str, model: str) -> CallTally:
        key = (endpoint, model)
        found = self.calls.get(key)
        if found is None:
            found = self.calls[key] = CallTally()
        return found

    @property
    def left(self) -> int:
        return self.rows - self.finished - self.dropped - self.gave_up


class ColumnView(msgspec.Struct, frozen=True):
    """The progress of one column."""

    name: str
    done: int
    done_now: int
    """Done in this run."""
    of: int


class ModelView(msgspec.Struct, frozen=True):
    """The state of one model at one endpoint."""

    endpoint: str
    model: str
    in_flight: int
    limit: int
    waiting: int
    cooldown_s: float
    sent: int
    answered: int
    rate_limited: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    mean_s: float
    """Mean duration of a call, without its queueing time."""
    mean_wait_s: float
    budget_wait_s: float = 0.0
    """How long the next call will wait for a budget, configured or learned; 0 if it need not."""
    budget: str = ""
    """The budget that it waits for."""


class BatchView(msgspec.Struct, frozen=True):
    """A run at one instant."""

    elapsed_s: float
    rows: int
    finished: int
    resumed: int
    dropped: int
    gave_up: int
    columns: tuple[ColumnView, ...]
    models: tuple[ModelView, ...]


class Summary(msgspec.Struct, frozen=True):
    """The result of a run, also written by `--json`."""

    ending: Ending
    sentence: str
    """Why the run ended, unless it completed."""
    output: str
    errors: str
    """The path of the error file; empty if no row was dropped or given up."""
    unwritten: int
    """Answers that arrived but could not be written; they are requested again."""
    view: BatchView

    @property
    def unfinished(self) -> int:
        view = self.view
        return view.rows - view.finished - view.dropped - view.gave_up


def held_by(endpoint: ModelEndpoint, now: float) -> tuple[str, float]:
    """The budget that the next call waits for, and until when; empty if it need not wait."""
    first = next(iter(endpoint.queue.items()), None)
    if first is None:
        return "", now
    assert isinstance(first.payload, QueueTicket)
    requests_s = endpoint.requests.ready_s(1, now)
    tokens_s = endpoint.tokens.ready_s(endpoint.tokens_of(first.payload.ask), now)
    if max(requests_s, tokens_s) <= now:
        return "", now
    name, budget = ("requests", endpoint.requests)
    if tokens_s > requests_s:
        name, budget = ("tokens", endpoint.tokens)
    learned = "" if budget.source == CONFIGURED else ", as its replies say"
    return f"{budget.per_minute:,} {name} a minute{learned}", max(requests_s, tokens_s)


def look(tally: BatchTally, admission: RequestAdmission, now: float) -> BatchView:
    """The current figures."""
    dropped = tally.dropped + tally.gave_up
    columns = tuple(
        ColumnView(name, before + done, done, max(before + done, tally.rows - dropped))
        for name, done, before in zip(tally.columns, tally.cells, tally.cells_before, strict=True)
    )
    models = []
    for endpoint in admission.endpoints():
        call = tally.call(endpoint.provider, endpoint.model)
        states = list(endpoint.domains.values())
        answered = call.outcomes.get(Outcome.SUCCESS, 0)
        limited = call.outcomes.get(Outcome.RATE_LIMITED, 0)
        ended = sum(call.outcomes.values())
        budget, ready_s = held_by(endpoint, now)
        blocked_until_s = max((state.limiter.blocked_until_s for state in states), default=0.0)
        models.append(
            ModelView(
                endpoint=endpoint.provider,
                model=endpoint.model,
                in_flight=endpoint.in_flight,
                limit=sum(state.limiter.limit for state in states),
                waiting=len(endpoint.queue),
                cooldown_s=max(0.0, blocked_until_s - now),
                sent=call.sent,
                answered=answered,
                rate_limited=limited,
                failed=ended - answered - limited,
                prompt_tokens=call.prompt_tokens,
                completion_tokens=call.completion_tokens,
                mean_s=call.durations.total / ended if ended else 0.0,
                mean_wait_s=call.waited_s / call.sent if call.sent else 0.0,
                budget_wait_s=max(0.0, ready_s - now),
                budget=budget,
            )
        )
    return BatchView(
        elapsed_s=now,
        rows=tally.rows,
        finished=tally.finished,
        resumed=tally.resumed,
        dropped=tally.dropped,
        gave_up=tally.gave_up,
        columns=columns,
        models=tuple(models),
    )
