"""What is recorded of a request that has ended: a row of the trace, a line of the access log."""

from typing import Any

from windtunnel.live.gateway.data_path.exchange import COMPLETED, DECIDED, Exchange
from windtunnel.live.gateway.data_path.structs import TraceRow
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import RequestArrival
from windtunnel.live.gateway.request_trace import RequestTrace


def trace_row(
    exchange: Exchange,
    arrival: RequestArrival,
    core: GatewayCore,
    trace: RequestTrace,
    now_s: float,
    ttft_s: float,
) -> TraceRow:
    """The row of the request trace; `ttft_s` is negative if nothing was answered."""
    usage = exchange.usage
    prompt = arrival.prompt_tokens
    if usage is not None:
        prompt = usage.prompt or prompt
    output = exchange.output_tokens
    if not output and usage is None and exchange.outcome in (COMPLETED, DECIDED):
        output = arrival.output_tokens  # its tokens were not counted
    policies = core.policies
    row = TraceRow(
        exchange.arrived_s,
        prompt,
        output,
        str(exchange.number),
        policies.tenants[arrival.tenant],
        policies.classes[arrival.slo].name,
        arrival.model,
        exchange.outcome,
        exchange.reason,
        exchange.attempt,
    )
    if exchange.server >= 0:
        row.server = core.servers[exchange.server].name
    if arrival.session >= 0:
        row.session = trace.name(str(arrival.session))
    keys, ends = arrival.prefix_keys, arrival.prefix_ends
    count = len(ends)
    while count and ends[count - 1] > prompt:
        count -= 1
    if count:
        row.prefix_keys = keys[:count]
        row.prefix_ends = ends[:count]
    stream = exchange.stream
    if exchange.streams and (
        exchange.outcome == COMPLETED or (stream is not None and stream.events > 0)
    ):
        row.ttft = ttft_s
    if exchange.outcome == COMPLETED:
        row.e2e = now_s - exchange.arrived_s
        if usage is not None:
            row.cached_tokens = usage.cached
    return row


def access_line(
    exchange: Exchange, arrival: RequestArrival, core: GatewayCore, now_s: float, ttft_s: float
) -> dict[str, Any]:
    """The line of the access log; `ttft_s` is negative if nothing was answered."""
    usage = exchange.usage
    line: dict[str, Any] = {
        "id": exchange.id.decode("latin-1"),
        "path": exchange.api.decode(),
        "status": exchange.said,
        "outcome": exchange.outcome,
        "reason": exchange.reason,
        "tenant": core.policies.tenants[arrival.tenant],
        "slo": core.policies.classes[arrival.slo].name,
        "model": arrival.model,
        "stream": exchange.streams,
        "attempts": exchange.attempt,
        "duration_s": round(now_s - exchange.arrived_s, 6),
    }
    if exchange.server >= 0:
        line["server"] = core.servers[exchange.server].name
        line["queued_s"] = round(exchange.sent_s - exchange.arrived_s, 6)
    if ttft_s >= 0.0:
        line["first_byte_s"] = round(ttft_s, 6)
    if usage is not None:
        line["prompt_tokens"] = usage.prompt
        line["cached_tokens"] = usage.cached
    line["output_tokens"] = exchange.output_tokens
    return line
