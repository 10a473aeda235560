"""The Prometheus metrics of a batch; their names are declared here and nowhere else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from windtunnel.core.errors import InputError, os_reason
from windtunnel.live.batch.run import Runner
from windtunnel.live.batch.tally import look
from windtunnel.live.metrics import counter, gauge, histogram, registry_of

PATIENCE_S = 5.0
"""How long a scrape waits for the event loop."""
GAUGES = (
    ("windtunnel_batch_in_flight", "in_flight", "Calls in flight"),
    ("windtunnel_batch_limit", "limit", "Calls that may be in flight"),
    ("windtunnel_batch_waiting", "waiting", "Queued calls"),
    ("windtunnel_batch_cooldown_seconds", "cooldown_s", "Cooldown that the server asked for"),
)
"""Of each model at each endpoint: name, field of its view, meaning."""


class BatchMetrics:
    """Collects the figures of a run at each scrape."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Any]:
        """Called by prometheus-client on another thread, so the event loop gathers the figures."""
        found: Future[list[Any]] = Future()

        def gather() -> None:
            found.set_result(list(self.families()))

        try:
            self._loop.call_soon_threadsafe(gather)
            yield from found.result(PATIENCE_S)
        except (RuntimeError, TimeoutError):
            return  # the run is over, or the loop is too busy to answer

    def families(self) -> Iterator[Any]:
        """All metrics with their current values."""
        runner = self._runner
        view = look(runner.tally, runner.limiter.admission, runner.limiter.now())
        rows = {"finished": view.finished, "dropped": view.dropped, "gave_up": view.gave_up}
        rows["open"] = view.rows - sum(rows.values())
        yield gauge("windtunnel_batch_rows", "Rows by state", rows.items(), "state")
        cells = [(column.name, column.done_now) for column in view.columns]
        yield counter("windtunnel_batch_cells", "Cells finished in this run", cells, "column")
        by_model = ("endpoint", "model")
        for name, field, says in GAUGES:
            found = [((one.endpoint, one.model), getattr(one, field)) for one in view.models]
            yield gauge(name, says, found, *by_model)
        calls = runner.tally.calls.items()
        outcomes = [
            ((*key, outcome.value), number)
            for key, call in calls
            for outcome, number in call.outcomes.items()
        ]
        says = "Calls by how they ended"
        yield counter("windtunnel_batch_calls", says, outcomes, *by_model, "outcome")
        tokens = [
            ((*key, kind), number)
            for key, call in calls
            for kind, number in (
                ("prompt", call.prompt_tokens),
                ("completion", call.completion_tokens),
            )
        ]
        says = "Tokens that replies report"
        yield counter("windtunnel_batch_tokens", says, tokens, *by_model, "kind")
        seconds = [(key, call.durations) for key, call in calls]
        yield histogram("windtunnel_batch_call_seconds", "How long calls took", seconds, *by_model)


@contextmanager
def serving_metrics(runner: Runner, port: int, ready: Callable[[int], None]) -> Iterator[None]:
    """Serves the metrics of a run on a port of all addresses while the run lasts."""
    from prometheus_client import start_http_server

    registry = registry_of(BatchMetrics(runner).collect)
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as error:
        what = f"cannot listen on {port}: {os_reason(error)}"
        raise InputError(what, where="--metrics-port", hint="0 takes a free port") from error
    try:
        ready(server.server_port)
        yield
    finally:
        # Shut down on another thread: a scrape that waits for this loop must not delay it.
        threading.Thread(target=server.shutdown, daemon=True).start()
        thread.join(PATIENCE_S)
        server.server_close()
