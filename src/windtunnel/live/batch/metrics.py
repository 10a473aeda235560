"""The Prometheus metrics of a batch; their names are declared here and nowhere else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from windtunnel.core.errors import InputError, os_reason
from windtunnel.live.batch.run import Runner
from windtunnel.live.batch.tally import LATENCY_BOUNDS_S, look

PATIENCE_S = 5.0
"""How long a scrape waits for the event loop."""


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
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        runner = self._runner
        view = look(runner.tally, runner.limiter.admission, runner.limiter.now())
        rows = GaugeMetricFamily("windtunnel_batch_rows", "Rows by state", labels=["state"])
        states = {"finished": view.finished, "dropped": view.dropped, "gave_up": view.gave_up}
        states["open"] = view.rows - sum(states.values())
        for state, number in states.items():
            rows.add_metric([state], number)
        yield rows
        cells = CounterMetricFamily(
            "windtunnel_batch_cells", "Cells finished in this run", labels=["column"]
        )
        for column in view.columns:
            cells.add_metric([column.name], column.done_now)
        yield cells
        labels = ["endpoint", "model"]
        gauges = (
            ("in_flight", "Calls in flight"),
            ("limit", "Calls that may be in flight"),
            ("waiting", "Queued calls"),
            ("cooldown_s", "Cooldown that the server asked for"),
        )
        for field, what in gauges:
            name = f"windtunnel_batch_{field.removesuffix('_s')}"
            gauge = GaugeMetricFamily(
                f"{name}_seconds" if field.endswith("_s") else name, what, labels=labels
            )
            for model in view.models:
                gauge.add_metric([model.endpoint, model.model], getattr(model, field))
            yield gauge
        calls = CounterMetricFamily(
            "windtunnel_batch_calls", "Calls by how they ended", labels=[*labels, "outcome"]
        )
        tokens = CounterMetricFamily(
            "windtunnel_batch_tokens", "Tokens that replies report", labels=[*labels, "kind"]
        )
        seconds = HistogramMetricFamily(
            "windtunnel_batch_call_seconds", "How long calls took", labels=labels
        )
        for (endpoint, model_name), call in runner.tally.calls.items():
            for outcome, number in call.outcomes.items():
                calls.add_metric([endpoint, model_name, outcome.value], number)
            tokens.add_metric([endpoint, model_name, "prompt"], call.prompt_tokens)
            tokens.add_metric([endpoint, model_name, "completion"], call.completion_tokens)
            buckets, total = [], 0
            for bound, number in zip((*LATENCY_BOUNDS_S, "+Inf"), call.latencies, strict=True):
                total += number
                buckets.append((str(bound), total))
            seconds.add_metric([endpoint, model_name], buckets, call.seconds)
        yield from (calls, tokens, seconds)


@contextmanager
def serving_metrics(runner: Runner, port: int, ready: Callable[[int], None]) -> Iterator[None]:
    """Serves the metrics of a run on a port of all addresses while the run lasts."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(BatchMetrics(runner))
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
