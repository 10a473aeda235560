"""The side services of every live program: probes, metrics, and a log of JSON lines."""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from windtunnel.core.errors import printable


def metrics_page(registry: Any) -> bytes:
    """Returns all metrics in Prometheus' text format. Label values from outside, such as model
    names, may contain terminal control characters; these are escaped."""
    from prometheus_client import generate_latest

    return printable(generate_latest(registry).decode(), "\\\\").encode()


def json_page(value: object) -> bytes:
    """Returns data as JSON, with the control characters in it escaped likewise."""
    return printable(msgspec.json.encode(value).decode()).encode()


def admin_app(registry: Any, why_not_ready: Callable[[], str], more: Sequence[Any] = ()) -> Any:
    """An app with `/metrics`, `/healthz`, `/readyz` (503 with the reason while unready), and
    `more`."""
    from starlette.applications import Starlette
    from starlette.requests import Request as WebRequest
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    async def metrics(_: WebRequest) -> Response:
        return Response(metrics_page(registry), media_type="text/plain; version=0.0.4")

    async def healthz(_: WebRequest) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: WebRequest) -> Response:
        why = why_not_ready()
        return PlainTextResponse(f"{why}\n", 503) if why else PlainTextResponse("ok\n")

    plain = [("/metrics", metrics), ("/healthz", healthz), ("/readyz", readyz)]
    return Starlette(routes=[*(Route(path, answer) for path, answer in plain), *more])


@contextlib.asynccontextmanager
async def serve_admin(app: Any, bound: socket.socket) -> AsyncIterator[None]:
    """Serves an application on a bound socket until the block ends."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", ws="none", server_header=False
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    task = asyncio.get_running_loop().create_task(server.serve([bound]))
    while not server.started and not task.done():
        await asyncio.sleep(0.001)
    try:
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


class JsonLines(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_page(line).decode()


def log_to_stderr(log: logging.Logger) -> None:
    """Sends a logger's records to standard error, one JSON line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.INFO)
