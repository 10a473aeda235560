"""Writes docs/reference/gateway.md from the settings of a gateway.

Run it after a change of a field: `python docs/gateway_reference.py`. A test holds the page to it.
"""

import runpy
from pathlib import Path

from windtunnel.live.gateway.data_path.exchange import MESSAGES, OUTCOMES, STATUSES
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import DECISIONS
from windtunnel.live.gateway.metrics import GatewayMetrics, gateway_families
from windtunnel.live.gateway.settings import GatewayFile, LiveSettings

# ruff: noqa: E501 - lines of Markdown
PAGE = Path(__file__).parent / "reference" / "gateway.md"

INTRODUCTION = """\
# The gateway

`windtunnel gateway --help` lists the options; [how to use it](../how-to/put-a-gateway-in-front-of-servers.md).

In the file, `serving.router`, `serving.admission` and `slo` are as in a [scenario](scenario.md); `live` is below (`*`: required). `--set` overrides any key. Without a file routing is `weighted`, and every request is admitted.

## Paths

- POST `/v1/chat/completions`, `/v1/completions`, `/v1/responses`, `/v1/embeddings`, `/tokenize`, `/detokenize`: sent to a server that has the model.
- GET, DELETE `/v1/responses/ID`, POST `/v1/responses/ID/cancel`, GET `/v1/responses/ID/input_items`: sent to the server that made the response, past admission; 404 if unknown, or another tenant's. `previous_response_id` prefers that server.
- GET `/v1/models`, `/v1/models/NAME`: the models of all healthy servers, each once.
- GET `/health`: 200.
- Anything else: 404.

With `live.picker` or `--picker-port`, gRPC: `envoy.service.ext_proc.v3.ExternalProcessor`, and `grpc.health.v1.Health` with the services `liveness` and `readiness`.

On `live.admin`: `/metrics` for Prometheus, `/healthz`, `/readyz` (503 until a server is ready, and while stopping), and `/servers`: the state of each server, and why it gets no requests.

With `--dry-run` no request is sent to a server: the answer is the decision (`server`, `reason`, `prefill_server`) or the refusal. It is for mirrored traffic (nginx's `mirror`), takes load from the servers' metrics, and does not work with a picker.

## What passes, and what does not

- The body passes unchanged, except that `stream_options.include_usage` is added to streams (and the usage chunk removed for clients that did not ask; not with `live.usage: false`) and `kv_transfer_params` is removed.
- Headers of the connection, of identity (`authorization`, `cookie`) and of routing (`x-gateway-*`, `x-prefiller-host-port`, `x-data-parallel-rank`) do not reach servers. `x-request-id` is kept or made; `traceparent` gets a span of the gateway.
- `Upgrade` is ignored. A transfer encoding other than `chunked` is refused (501). A server's status below 100 or above 599 is a bad answer (502). If a server sends several answers, the client gets the first, and the connection is dropped (`windtunnel_unrequested_answers_total`).

Request headers:

- `authorization: Bearer KEY`: one of `live.clients`, which names the tenant.
- `x-slo-class`: the class of service, among those that the key allows.
- `x-session-id`: the session, for `session-sticky` routing; `session_id` in the body does the same.
- `x-windtunnel-explain`: the answer has `x-windtunnel-server` and `x-windtunnel-reason`.

## Limits in headers

With a token bucket or `budgets`, answers have `x-ratelimit-limit-tokens`, `-remaining-tokens` and `-reset-tokens`, and `x-ratelimit-limit-requests` and `-remaining-requests`. 429 and 503 have `retry-after`: until the bucket holds the prompt or the queue is gone at the present rate, at most 120 s.

## The access log

`live.access_log` has a JSON line per request: `time` (Unix, of its end), `id`, `path`, `status` (499: the client left before it got one), `outcome`, `reason`, `tenant`, `slo`, `model`, `stream`,
`attempts`, `server`, `queued_s`, `first_byte_s`, `duration_s`, `prompt_tokens`, `cached_tokens`, `output_tokens` (estimated if cut off). The outcome of an invalid request is `invalid`, without a ready server (503) `rejected`. It has no prompts, keys or client addresses.

## How a request ends

Before the first byte of an answer, a request whose server cannot be reached, or answers 429, 502, 503 or 504 (500 only with `retries.internal_errors`), goes to another server, within `live.retries`. After it, a broken answer ends with an error event and a closed connection. Every request has one outcome:
"""


def page() -> str:
    """The whole page."""
    script = runpy.run_path(str(Path(__file__).parent / "scenario_reference.py"))
    parts = [INTRODUCTION + ", ".join(f"`{name}`" for name in OUTCOMES) + ".\n"]
    rows = [f"- `{name}` ({STATUSES[name]}): {text}" for name, text in MESSAGES.items()]
    parts.append("\n".join(rows) + "\n")
    parts.append(
        "## The event log\n\n"
        "`live.log` has a JSON line for every fact (a request arrived, a server was observed) "
        f"and decision ({', '.join(f'`{name}`' for name in DECISIONS)}). Each start is appended; a "
        "file that another process writes is refused. [`windtunnel audit`]"
        "(../how-to/put-a-gateway-in-front-of-servers.md#check-what-it-decided) replays it.\n"
    )
    rows = ["## Metrics", ""]
    core = GatewayCore(GatewayFile().policies(Path(), 0, {}))
    for family in gateway_families(GatewayMetrics(), core, 0.0):
        ending = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        by = f" by {labels}" * bool(labels)
        rows.append(f"- `{family.name}{ending}` ({family.type}{by}): {family.documentation}")
    parts.append("\n".join(rows) + "\n")
    parts += script["sections"]("live", "live", LiveSettings)
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
