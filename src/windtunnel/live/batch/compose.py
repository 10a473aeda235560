"""Wires up a batch; the one place that knows all of its parts."""

import hashlib
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import NamedTuple

import msgspec

from windtunnel.admission.events import EventReporter
from windtunnel.admission.requests.admission import MakeLimiter, RequestAdmission
from windtunnel.admission.requests.gradient import GradientLimiter
from windtunnel.admission.requests.limiter import AimdSettings, RequestLimiter
from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter
from windtunnel.live.batch.endpoints import (
    EndpointClient,
    Route,
    find_models,
    open_client,
    route_of,
    unlisted,
)
from windtunnel.live.batch.replies import RefusedRows
from windtunnel.live.batch.rows import Rows, open_rows
from windtunnel.live.batch.run import Parts, Runner, row_line
from windtunnel.live.batch.scheduling import build_scheduler, caps_of, complete_rows
from windtunnel.live.batch.settings import BatchSettings, LimiterKind
from windtunnel.live.batch.store import (
    JOURNAL,
    VERSION,
    Header,
    Resumed,
    Store,
    errors_path,
    open_store,
)
from windtunnel.live.batch.tally import BatchTally, BatchView, Ending, Summary, look
from windtunnel.live.system import connections_allowed, stop_signals, unwrapped
from windtunnel.live.wire.keys import Keys, read_keys

RUN = "batch"

Watch = Callable[[Runner], AbstractAsyncContextManager[None]]
"""Something that runs beside a batch: a progress display, a metrics server."""


class Prepared(NamedTuple):
    """Everything that is known before the first connection is opened."""

    keys: Keys
    rows: Rows
    store: Store
    resumed: Resumed


def prepare(plan: BatchSettings, environment: Mapping[str, str]) -> Prepared:
    """Checks the keys, scans the input, and opens the output."""
    keys = read_keys([one.key_env for one in plan.endpoints.values() if one.key_env], environment)
    if plan.output.exists() and not plan.output.is_file():
        hint = "answers are appended to it, and --resume reads them again"
        raise OutputError("is not a regular file", where=str(plan.output), hint=hint)
    if plan.output.exists() and not plan.resume:
        hint = "--resume goes on with it; -o names another file"
        raise OutputError("already exists", where=str(plan.output), hint=hint)
    rows = open_rows(plan)
    header = Header(JOURNAL, VERSION, rows.sha256, work_digest(plan), len(rows))
    store, resumed = open_store(plan.output, header, keys, resume=plan.resume)
    return Prepared(keys, rows, store, resumed)


def work_digest(plan: BatchSettings) -> str:
    """A digest of everything that determines the requests; endpoints may change between runs."""
    columns = [
        (name, c.prompt, c.system or "", c.model or "", c.interface, c.body)
        for name, c in plan.columns.items()
    ]
    asked = (columns, plan.model, plan.api, dict(plan.body))
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()


async def run_batch(
    plan: BatchSettings,
    prepared: Prepared,
    telemetry: Telemetry,
    streams: Streams,
    watches: Sequence[Watch],
    note: Callable[[str], None],
) -> Summary:
    """Runs a batch to its end, however it ends; `note` receives messages for the user meanwhile."""
    keys, rows, store = prepared.keys, prepared.rows, prepared.store

    def report(sentence: str) -> None:
        note(keys.redact_text(sentence))

    is_complete = False
    try:
        if all(prepared.resumed.is_over):
            is_complete = True
            return _nothing_to_do(plan, prepared)
        async with open_client(plan.endpoints, keys, plan.timeout_s) as client:
            models = await find_models(client, plan.wait_s)
            routes = _routes(plan, rows, models, report)
            runner = _runner(plan, prepared, client, routes, telemetry, streams)
            with unwrapped(), _ends_on_signals(runner, report):
                async with AsyncExitStack() as stack:
                    for watch in watches:
                        await stack.enter_async_context(watch(runner))
                    await runner.run()
        is_complete = runner.ending is Ending.COMPLETE
        view = look(runner.tally, runner.limiter.admission, runner.limiter.now())
        sentence = keys.redact_text(runner.sentence)
        return _summary(plan, runner.ending, sentence, runner.tally.unwritten, view)
    except InputError as error:
        # It may quote a server's message, and servers echo what they were sent.
        raise InputError(keys.redact_text(str(error))) from None
    finally:
        store.close(is_complete=is_complete)
        rows.close()


def _nothing_to_do(plan: BatchSettings, prepared: Prepared) -> Summary:
    """The summary of a batch that an earlier run completed: no request is sent."""
    names, resumed = prepared.rows.work.graph.names, prepared.resumed
    tally = BatchTally(names, len(prepared.rows), resumed.finished, resumed.dropped)
    view = look(tally, RequestAdmission(RUN, Streams(0)), 0.0)
    return _summary(plan, Ending.COMPLETE, "", 0, view)


def _summary(
    plan: BatchSettings, ending: Ending, sentence: str, unwritten: int, view: BatchView
) -> Summary:
    errors = errors_path(plan.output)
    return Summary(
        ending=ending,
        sentence=sentence,
        output=str(plan.output),
        errors=str(errors) if errors.exists() else "",
        unwritten=unwritten,
        view=view,
    )


def _routes(
    plan: BatchSettings,
    rows: Rows,
    models: Mapping[str, tuple[str, ...] | None],
    note: Callable[[str], None],
) -> list[list[Route]]:
    """The route of each column, for each kind of row."""
    routes = []
    for column, name in enumerate(rows.work.graph.names):
        of_kinds = []
        for kind in rows.kinds:
            wanted = kind.wanted or rows.work.wanted(column, None)
            where = f"column {name}" if plan.columns else str(plan.input)
            of_kinds.append(route_of(wanted, plan.endpoints, models, where))
        routes.append(of_kinds)
    warnings = [unlisted(route, models) for of_kinds in routes for route in of_kinds]
    for warning in dict.fromkeys(warnings):
        if warning:
            note(warning)
    return routes


def _runner(
    plan: BatchSettings,
    prepared: Prepared,
    client: EndpointClient,
    routes: list[list[Route]],
    telemetry: Telemetry,
    streams: Streams,
) -> Runner:
    _, rows, store, resumed = prepared
    reporter = EventReporter(telemetry, RUN)
    limiter = AsyncLimiter(
        RequestAdmission(
            RUN,
            streams,
            AimdSettings(),
            make_limiter=_make_limiter(plan.limiter, streams),
            reporter=reporter,
        )
    )
    caps = caps_of(routes, plan.endpoints)
    _allow_connections(sum(caps.values()))
    for (name, model), cap in caps.items():
        limiter.register(
            name,
            model,
            RUN,
            cap,
            requests_per_minute=plan.endpoints[name].requests_per_minute or 0,
            tokens_per_minute=plan.endpoints[name].tokens_per_minute or 0,
        )
    for row in complete_rows(rows, resumed):
        store.finish_row(row_line(row, has_columns=bool(plan.columns)))
        resumed.finished += 1
    scheduler = build_scheduler(
        plan, rows, routes, resumed, limiter.admission, reporter, streams["batch.retries"]
    )
    parts = Parts(
        rows=rows,
        store=store,
        client=client,
        limiter=limiter,
        scheduler=scheduler,
        routes=routes,
        endpoints=plan.endpoints,
        weights=plan.tenant_weights,
        tally=BatchTally(rows.work.graph.names, len(rows), resumed.finished, resumed.dropped),
        redact=prepared.keys.redact_text,
        refused=RefusedRows(skip_bad=plan.skip_bad, has_answered=resumed.finished > 0),
        has_columns=bool(plan.columns),
    )
    return Runner(parts)


def _allow_connections(wanted: int) -> None:
    allowed = connections_allowed(wanted)
    if allowed < wanted:
        what = f"{wanted:,} calls in flight need as many connections; the system allows {allowed:,}"
        raise InputError(what, where="--concurrency", hint="`ulimit -n` allows more")


def _make_limiter(kind: LimiterKind, streams: Streams) -> MakeLimiter | None:
    if kind is LimiterKind.AIMD:
        return None

    def make(key: str, maximum: int, _now: float) -> RequestLimiter:
        stream = streams[f"admission.{key}"]
        if kind is LimiterKind.GRADIENT:
            return GradientLimiter(maximum, per_token=True, stream=stream)
        return RequestLimiter(maximum, stream)

    return make


def _ends_on_signals(runner: Runner, note: Callable[[str], None]) -> AbstractContextManager[object]:
    """Lets Ctrl-C or SIGTERM end the run in good order; a second signal ends it at once."""

    def on_signal(number: signal.Signals) -> None:
        if runner.is_stopping:
            runner.abandon()
            return
        runner.stop(Ending.INTERRUPTED if number == signal.SIGINT else Ending.TERMINATED)
        waiting = len(runner.limiter.admission.ledger.active)
        if waiting:
            calls, them = ("1 call", "it") if waiting == 1 else (f"{waiting:,} calls", "them")
            note(f"waiting for {calls} in flight; a second signal abandons {them}")

    return stop_signals(on_signal)
