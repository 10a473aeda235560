"""Drives a batch: makes the calls for the scheduler's cells, and stores the results.

There is one task for each call in flight. Every reply is fully processed before the next call is
chosen, and a finished row is written at once. An error caused neither by a server nor by a row is a
bug of ours: it stops the run, and finished rows are kept.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from windtunnel.admission.dataset.cells import DatasetCell, FailureAction
from windtunnel.admission.dataset.scheduler import DatasetScheduler
from windtunnel.admission.events import Correlation
from windtunnel.admission.reasons import Outcome, RequestDenial
from windtunnel.admission.requests.endpoint import RequestAsk, TokenEstimate
from windtunnel.admission.requests.limiter import RequestLimiter
from windtunnel.core.clock import unix_s
from windtunnel.core.errors import OutputError
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter
from windtunnel.live.admission.leases import HeldLease, Refused
from windtunnel.live.admission.workers import CellWorkers
from windtunnel.live.batch.endpoints import EndpointClient, Route, outcome_of
from windtunnel.live.batch.replies import (
    Failure,
    FailureMeaning,
    RefusedRows,
    RowAnswer,
    judge,
    observed_limits,
)
from windtunnel.live.batch.rows import ANSWER_TOKENS, BYTES_PER_TOKEN, RowData, Rows
from windtunnel.live.batch.settings import EndpointSettings
from windtunnel.live.batch.store import GAVE_UP, CellRecord, Store, line_id
from windtunnel.live.batch.tally import BatchTally, Ending
from windtunnel.live.batch.templates import Unfilled
from windtunnel.live.wire.client import NoReply
from windtunnel.live.wire.refusals import refused_sentence

HEALTH_S: Final = 5.0
"""How often the state of all limits is reported."""
SYNC_S: Final = 1.0
"""How long a finished row may be in the page cache only, before it is synced to disk."""

Line = TypeVar("Line")


class Parts(NamedTuple):
    """The parts of a run, assembled by `compose`."""

    rows: Rows
    store: Store
    client: EndpointClient
    limiter: AsyncLimiter
    scheduler: DatasetScheduler
    routes: Sequence[Sequence[Route]]
    """By column, then by the kind of row."""
    endpoints: Mapping[str, EndpointSettings]
    weights: Mapping[str, int]
    tally: BatchTally
    redact: Callable[[str], str]
    refused: RefusedRows
    has_columns: bool


class Runner:
    """One run, from first call to last."""

    def __init__(self, parts: Parts) -> None:
        self.parts: Final = parts
        self.tally: Final = parts.tally
        self.limiter: Final = parts.limiter
        self.ending = Ending.COMPLETE
        self.sentence = ""
        self._scheduler: Final = parts.scheduler
        self._store: Final = parts.store
        self._work: Final = parts.rows.work
        self._last: Final = len(self._work.graph) - 1
        self._names: Final = self._work.graph.names
        self._encode: Final = msgspec.json.Encoder().encode
        self._crew: Final = CellWorkers(parts.scheduler, parts.limiter, self._call)
        self._answered: Final[set[Route]] = set()
        self._refused: Final = parts.refused
        self._last_failure = ""

    async def run(self) -> None:
        """Runs until all calls have ended, successfully or not."""
        scheduler, now = self._scheduler, self.limiter.now
        scheduler.job_started(self.tally.left, now())
        outcome = "error"
        try:
            with ThreadPoolExecutor(1, "windtunnel-sync") as disk:
                async with asyncio.TaskGroup() as tasks:
                    beside = [tasks.create_task(self._sync(disk))]
                    beside.append(tasks.create_task(self._watch_health()))
                    await self._crew.run(self._stalled)
                    for task in beside:
                        task.cancel()
            outcome = self.ending.value
        finally:
            scheduler.job_completed(outcome, now())
        kept_back = self._refused.rest()
        if self.ending is Ending.COMPLETE:
            self._list(kept_back)
        else:
            # Left to the next run: the rows may not be at fault.
            self.tally.dropped -= len(kept_back)

    def stop(self, ending: Ending, sentence: str = "") -> None:
        """Starts no more calls; calls in flight run to their end."""
        if self._scheduler.is_stopping:
            return
        self.ending, self.sentence = ending, sentence
        self._scheduler.stop()
        self.limiter.shut_down()
        self._crew.wake()

    def abandon(self) -> None:
        """Cancels the calls in flight; their cells count as never called."""
        self._crew.abandon()

    @property
    def is_stopping(self) -> bool:
        return self._scheduler.is_stopping

    def _stalled(self) -> None:
        last = f"; the last failure was {self._last_failure}" if self._last_failure else ""
        self.stop(Ending.STALLED, f"nothing has succeeded within --retry-time{last}")

    async def _watch_health(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_S)
            self._scheduler.report_health(self.limiter.now(), "periodic")

    async def _sync(self, disk: ThreadPoolExecutor) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            for file in self._store.unsynced():
                try:
                    await self.limiter.loop.run_in_executor(disk, file.sync)
                except OutputError as error:
                    self.stop(Ending.UNWRITABLE, str(error))

    # One call.

    async def _call(self, cell: DatasetCell) -> None:
        try:
            judged, limiter = await self._ask(cell)
        except asyncio.CancelledError:
            self._scheduler.put_back(cell, self.limiter.now())
            raise
        except Refused as refused:
            if refused.denied.reason is not RequestDenial.SHUTDOWN:
                raise
            self._scheduler.put_back(cell, self.limiter.now())
        else:
            self._settle(cell, judged, limiter)

    async def _ask(self, cell: DatasetCell) -> tuple[RowAnswer | Failure, RequestLimiter | None]:
        """Makes a call; returns its result and the limiter of its endpoint."""
        row, route = _row_of(cell), self._route_of(cell)
        self._refused.asked(row.row)
        try:
            body = self._work.body(cell.column, row.fields, row.values)
        except Unfilled as fault:
            return Failure(FailureMeaning.DROP, "template", str(fault)), None
        body["model"] = route.model
        data = self._encode(body)
        asks = self._asks(cell, route, len(data) // BYTES_PER_TOKEN, _most_tokens(body))
        async with self.limiter.acquire(*asks) as held:
            lease = held.lease
            assert lease is not None
            self._scheduler.began(cell, self.limiter.now())
            judged = await self._exchange(held, lease.ask.provider, route, data)
        is_failed = isinstance(judged, Failure) and judged.means is FailureMeaning.AGAIN
        row.failed_at = lease.ask.provider if is_failed else ""
        return judged, lease.domain.limiter

    async def _exchange(
        self, held: HeldLease, endpoint: str, route: Route, data: bytes
    ) -> RowAnswer | Failure:
        """Sends a request and reads the reply; reports the outcome to admission."""
        call = self.tally.call(endpoint, route.model)
        call.sent += 1
        call.waited_s += held.waited_s
        began_s = self.limiter.now()
        judged: RowAnswer | Failure
        observed = None
        try:
            reply = await self.parts.client.post(endpoint, route.api, data)
        except NoReply as error:
            judged = Failure(FailureMeaning.AGAIN, error.code, error.what, outcome_of(error))
        else:
            judged = judge(
                reply, route.api, self.parts.redact, has_answered=route in self._answered
            )
            observed = observed_limits(reply.headers, unix_s())
        judged.endpoint = endpoint
        took_s = self.limiter.now() - began_s
        if isinstance(judged, RowAnswer):
            held.ended(Outcome.SUCCESS, tokens_used=judged.tokens, observed=observed)
            call.ended(Outcome.SUCCESS, took_s, judged.prompt_tokens, judged.completion_tokens)
        else:
            held.ended(judged.outcome, observed=observed)
            judged.retry_after_s = observed.retry_after_s if observed is not None else 0.0
            call.ended(judged.outcome, took_s, 0, 0)
            if judged.means is FailureMeaning.STOP:
                server = self.parts.endpoints[endpoint]
                why = refused_sentence(
                    server.url, server.key_env or "", judged.code, judged.message
                )
                self.stop(Ending.REFUSED, str(why))
        return judged

    def _route_of(self, cell: DatasetCell) -> Route:
        return self.parts.routes[cell.column][cell.row.seed.kind]

    def _asks(self, cell: DatasetCell, route: Route, prompt: int, most: int) -> list[RequestAsk]:
        """The ask for each endpoint that may take the call; `most` is 0 for an unbounded answer."""
        seed = cell.row.seed
        tenant, _, priority = self.parts.rows.kinds[seed.kind]
        weight = self.parts.weights.get(tenant, 1)
        correlation = Correlation(tenant, cell.id, f"{cell.id}#{cell.tries}")
        avoided = _row_of(cell).failed_at
        others = [name for name in route.endpoints if name != avoided]
        estimate = TokenEstimate(prompt + (most or ANSWER_TOKENS), prompt, is_bounded=most > 0)
        return [
            RequestAsk(
                name,
                route.model,
                route.api.domain,
                group=tenant,
                weight=weight,
                priority=priority,
                tokens=estimate,
                correlation=correlation,
                is_again=cell.refusals > 0,
            )
            for name in others or route.endpoints
        ]

    # Results.

    def _settle(
        self, cell: DatasetCell, judged: RowAnswer | Failure, limiter: RequestLimiter | None
    ) -> None:
        if isinstance(judged, RowAnswer) and self.parts.has_columns and judged.content is None:
            judged = Failure(
                FailureMeaning.AGAIN, "bad_reply", "the answer has no text", status=200
            )
        if isinstance(judged, RowAnswer):
            self._answered.add(self._route_of(cell))
            self._keep(cell, judged)
            return
        scheduler, now = self._scheduler, self.limiter.now()
        if judged.means is FailureMeaning.STOP:
            scheduler.put_back(cell, now)
        elif judged.means is FailureMeaning.DROP:
            if scheduler.refused(cell, judged.code, now):
                self._drop(cell, judged)
        else:
            self._last_failure = f"{judged.code}: {judged.message}".rstrip(": ")
            if judged.means is FailureMeaning.WAIT:
                assert limiter is not None, "a refusal is an answer to a call"
                wait_s = max(judged.retry_after_s, limiter.blocked_until_s - now, 0.0)
                verdict = scheduler.rate_limited(cell, now, wait_s, limiter.pace.share)
            else:
                verdict = scheduler.failed(cell, judged.code, now)
            if verdict is FailureAction.GAVE_UP:
                self.tally.gave_up += 1
                self._write(self._store.list_error, error_line(cell, judged, self._names, GAVE_UP))

    def _keep(self, cell: DatasetCell, answer: RowAnswer) -> None:
        row, column = _row_of(cell), cell.column
        response = None
        if column == self._last:
            response = {
                "status_code": 200,
                "request_id": answer.request_id,
                "body": answer.body,
            }
            row.response = response
        name = self._names[column]
        content = answer.content
        if content is not None:
            # It may become part of a prompt to another server.
            content = self.parts.redact(content)
        row.values[name] = content
        self.tally.cells[column] += 1
        was_open = not cell.row.is_closed
        if self._scheduler.finished(cell, self.limiter.now()):
            self.finish(row)
        elif was_open:
            record = CellRecord(row.row, name, content, response)
            self._write(self._store.keep_cell, record)
        self._list(self._refused.answered(answer.endpoint))

    def finish(self, row: RowData) -> None:
        """Writes a completed row."""
        if self._write(self._store.finish_row, row_line(row, has_columns=self.parts.has_columns)):
            self.tally.finished += 1

    def _drop(self, cell: DatasetCell, failure: Failure) -> None:
        self.tally.dropped += 1
        line = error_line(cell, failure, self._names, failure.code)
        self._list(self._refused.refused(_row_of(cell).row, failure, line))
        why = self._refused.verdict(failure)
        if why:
            self.stop(Ending.REFUSED, why)

    def _list(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self._write(self._store.list_error, line)

    def _write(self, write: Callable[[Line], None], line: Line) -> bool:
        """Writes a line; on failure the run is stopped, but remaining lines are still attempted."""
        try:
            write(line)
        except OutputError as error:
            self.tally.unwritten += 1
            self.stop(Ending.UNWRITABLE, str(error))
            return False
        return True


def row_line(row: RowData, *, has_columns: bool) -> dict[str, Any]:
    """A finished row, in OpenAI's Batch format."""
    line: dict[str, Any] = {
        "id": line_id(row.row),
        "custom_id": row.custom_id,
        "response": row.response,
        "error": None,
    }
    if has_columns:
        line["columns"] = row.values
    return line


def error_line(
    cell: DatasetCell, failure: Failure, names: Sequence[str], code: str
) -> dict[str, Any]:
    """A row that was dropped or given up, in OpenAI's Batch format."""
    row = _row_of(cell)
    response = None
    if failure.status:
        response = {
            "status_code": failure.status,
            "request_id": failure.request_id,
            "body": failure.body,
        }
    return {
        "id": line_id(row.row),
        "custom_id": row.custom_id,
        "response": response,
        "error": {
            "code": code,
            "reason": failure.code,
            "message": failure.message,
            "line": row.line,
            "column": names[cell.column],
            "tries": cell.tries,
        },
    }


def _row_of(cell: DatasetCell) -> RowData:
    row = cell.row.seed.payload
    assert isinstance(row, RowData)
    return row


def _most_tokens(body: dict[str, Any]) -> int:
    """The token limit that the request sets for its answer; 0 if none."""
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    return most if isinstance(most, int) and most > 0 else 0
