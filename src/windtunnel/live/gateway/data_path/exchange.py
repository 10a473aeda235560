"""One request on its way from client to server, perhaps to several servers, and the response back.

An exchange ends exactly once. Until the first byte of a response has gone to the client, it may be
sent to another server; after that it is completed or cut off, and the client can tell which.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from windtunnel.live.gateway.data_path.bodies import with_fields, without_fields
from windtunnel.live.gateway.data_path.client_side import ClientConnection
from windtunnel.live.gateway.data_path.errors import (
    KEPT_BODY,
    LEFT_STATUS,
    error_body,
    server_error,
)
from windtunnel.live.gateway.data_path.http import (
    RequestHead,
    content_length,
    digits,
    upstream_head,
)
from windtunnel.live.gateway.data_path.streams import EventStream
from windtunnel.live.gateway.data_path.structs import BodyFields
from windtunnel.live.gateway.data_path.usage import TokenUsage, transfer_of, usage_of
from windtunnel.live.wire.connections import AnswerReceiver

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

COMPLETED: Final = "completed"
REJECTED: Final = "rejected"
FAILED: Final = "failed"
CUT_OFF: Final = "cut_off"
LEFT: Final = "client_left"
TIMED_OUT: Final = "timed_out"
EVICTED: Final = "evicted"
DECIDED: Final = "decided"
"""In a dry run: the request would have been sent to a server."""
OUTCOMES: Final = (COMPLETED, REJECTED, FAILED, CUT_OFF, LEFT, TIMED_OUT, EVICTED, DECIDED)

AGAIN: Final = frozenset((429, 502, 503, 504))
"""Statuses after which another server is tried; optionally also after 500."""
FAILED_WITH: Final = {
    429: "The servers are busy.",
    500: "The server failed.",
    504: "No answer in time.",
}
"""Statuses of the last server tried that are passed on to the client."""
PREFILL_FIELDS: Final = {
    "stream": False,
    "kv_transfer_params": {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    },
}
"""The fields that vLLM's NixlConnector requires in a prefill-only request."""
NOT_PREFILLED: Final = ("stream_options", "min_tokens", "max_completion_tokens", "max_tokens")
RESPONSES: Final = b"/v1/responses"
PIECES_WITH_ID: Final = 16
"""The first pieces of a stored response, which may contain its id."""

STATUSES: Final = {
    "queue-full": 429,
    "band-full": 429,
    "outranked": 429,
    "over-budget": 429,
    "bucket-short": 429,
    "bucket-too-small": 413,
    "heavy-load": 429,
    "saturated": 429,
    "made-way": 429,
    "expired": 503,
    "no-servers": 503,
    "no-server": 503,
    "server-failed": 503,
    "stopping": 503,
}
"""Statuses of refusals, by the reason of the decision."""

MESSAGES: Final = {
    "queue-full": "The queue is full.",
    "band-full": "The queue of this priority is full.",
    "outranked": "A request of higher priority displaced this one from a full queue.",
    "over-budget": "The tenant's budget is used up.",
    "bucket-short": "The token budget is used up for now.",
    "bucket-too-small": "The prompt is larger than the token budget can ever be.",
    "heavy-load": "The servers are busy, and requests of this class are shed.",
    "saturated": "The servers are saturated, and requests of this class are shed.",
    "made-way": "The request was stopped for one of higher priority.",
    "expired": "The request was queued for longer than allowed.",
    "no-servers": "No server is ready.",
    "no-server": "No server is ready.",
    "server-failed": "No server could answer.",
    "stopping": "The gateway is stopping.",
}


class EarlyRequest(AnswerReceiver):
    """A request that arrived before any server was ready."""

    __slots__ = ("body", "client", "head_in", "proxy")

    def __init__(
        self,
        proxy: "Proxy",
        client: ClientConnection,
        head: RequestHead,
        body: bytes,
        began_s: float,
    ) -> None:
        super().__init__()
        self.proxy: Final = proxy
        self.client: Final = client
        self.head_in: Final = head
        self.body: Final = body
        self.last_s = began_s

    def client_left(self) -> None:
        self.proxy.early.remove(self)


class Exchange(AnswerReceiver):
    """A request, its client, and the server that answers it."""

    __slots__ = (
        "_body",
        "_bytes_kept",
        "_collects",
        "_head_line",
        "_kept",
        "_moved",
        "_prefill",
        "_proxy",
        "_reset_tried",
        "_responses",
        "_retry_after",
        "_sent",
        "_status",
        "api",
        "arrived_s",
        "client",
        "fields",
        "first_byte_s",
        "head_in",
        "id",
        "model",
        "number",
        "outcome",
        "prompt_bytes",
        "reason",
        "said",
        "sent_s",
        "server",
        "stream",
        "usage",
    )

    def __init__(
        self,
        proxy: "Proxy",
        client: ClientConnection | None,
        head: RequestHead,
        fields: BodyFields,
        number: int,
        arrived_s: float,
    ) -> None:
        super().__init__()
        self._proxy: Final = proxy
        self.fields: Final = fields
        self.client = client
        self.head_in: Final = head
        self.number: Final = number
        self.arrived_s: Final = arrived_s
        self.id = b""
        self.api = b""
        self.model = ""
        self.prompt_bytes = 0
        self.server = -1
        self.reason = ""
        self.outcome = ""
        self.first_byte_s = -1.0
        self.stream: EventStream | None = None
        self.usage: TokenUsage | None = None
        self._body = b""
        self._sent = (b"", b"")
        self._status = 0
        self._head_line = b""
        self._kept: list[bytes] = []
        self._bytes_kept = 0
        self._collects = False  # the response is collected and passed on as a whole
        self._prefill = -1  # the server that computes the prompt, while it does so
        self._moved = False  # the prompt's KV comes from another server
        self._reset_tried = False
        self._retry_after = b""
        self._responses = 0  # pieces left to search for the id of a stored response
        self.sent_s = -1.0  # to the first server
        self.said = 0  # the status sent to the client

    # Decisions.

    def prepare(self, api: bytes, body: bytes, usage_asked: bool) -> None:  # noqa: FBT001
        """`body` goes to servers; `usage_asked`: the gateway requests usage, the client did not."""
        self.api = api
        self._body = body
        if self.fields.stream:
            done = api != RESPONSES
            self.stream = EventStream(strips_usage=usage_asked, ends_with_done=done)
        if api == RESPONSES:
            self._responses = PIECES_WITH_ID

    def send(self, server: int, reason: str, prefill: int) -> None:
        """Sends the request to `server`, for `reason`; first to `prefill`, if there is one."""
        self.server = server
        self.reason = reason
        self._prefill = prefill
        if prefill >= 0:
            limit = "max_output_tokens" if self.api == RESPONSES else "max_tokens"
            body = without_fields(self._body, NOT_PREFILLED)
            body = with_fields(body, {**PREFILL_FIELDS, limit: 1})
            self._collects = True
            self._send(prefill, body)
        else:
            self._send(server, self._body)

    def _send(self, server: int, body: bytes) -> None:
        proxy = self._proxy
        self.attempt += 1
        self._reset_tried = False
        pool = proxy.pools[server]
        address = pool.address
        own = b"%bx-request-id: %b\r\n%b" % (address.auth, self.id, proxy.trace_line(self.head_in))
        head = upstream_head(b"POST", self.api, address.host_header, own, self.head_in, len(body))
        self._sent = (head, body)
        now_s = proxy.now_s()
        if self.sent_s < 0.0:
            self.sent_s = now_s
        proxy.first_bytes.add(self, now_s)
        pool.send(self, head, body)

    def refuse(self, reason: str, seen: float, limit: float) -> None:
        """Answers the client with a refusal; no server gets the request."""
        status, body, own = self._refusal(reason, seen, limit)
        client, self.client = self.client, None
        if client is not None:
            client.reply(status, body, own)

    def _refusal(self, reason: str, seen: float, limit: float) -> tuple[int, bytes, bytes]:
        """Ends a refused request; returns the status, body and headers for its client."""
        status, message = STATUSES[reason], MESSAGES[reason]
        if reason == "server-failed" and self._status in FAILED_WITH:
            status, message = self._status, FAILED_WITH[self._status]
        if reason == "server-failed" and self._status == 401:
            status, message = 502, "The server did not accept the gateway."
        if reason not in ("server-failed", "no-server"):
            message = f"{message} ({reason}: {seen:g}, limit {limit:g})"
        own = self.own_headers(reason)
        wait_s = 0.0
        if reason == "bucket-short":
            wait_s = max((one.wait_s(seen) for one in self._proxy.limits_of(self)), default=0.0)
        self.said = status
        self._finish(REJECTED if status in (429, 413) else FAILED, reason, told=True)
        if status in (429, 503):
            after = self._retry_after or b"%d" % self._proxy.retry_after_s(self.model, wait_s)
            own += b"retry-after: %b\r\n" % after
        return status, error_body(status, message, code=reason), own

    def stop(self, reason: str) -> None:
        """Stops a request that was sent, to make way for another."""
        self._cut(EVICTED, reason, MESSAGES.get(reason, reason), STATUSES.get(reason, 503))

    # Client events.

    def client_left(self) -> None:
        self.client = None
        if not self.over:
            self.drop_connection()
            self.said = self.said or LEFT_STATUS
            self._finish(LEFT, "the client left")

    # Server events.

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Handles the head of the server's response."""
        proxy = self._proxy
        self._status = status
        proxy.first_bytes.remove(self)
        if self._prefill >= 0:
            if status != 200:
                self._decode_alone()
            else:
                proxy.streams.add(self, proxy.now_s())
            return
        if status in AGAIN or (status == 500 and proxy.internal_errors):
            self._retry_after = digits(headers, b"retry-after")
            self._fail(f"status {status}", again=True, faulty=status != 429)
            return
        if status == 401:
            self._fail("the server did not accept the gateway's key", again=False)
            return
        proxy.core.answered(self.number, proxy.now_s(), good=status < 500)
        proxy.pump()
        if self.over:
            return
        proxy.streams.add(self, proxy.now_s())
        if status >= 400 or (self._moved and self.stream is None):
            self._collects = True
            return
        size = content_length(headers)
        if self.stream is not None and not _is_event_stream(headers):
            self.stream = None  # not a stream, although one was requested
        if self.stream is not None:
            size = -1
        client = self.client
        assert client is not None
        self.said = status
        self._head_line = client.begin(status, headers, self.own_headers(self.reason), size)

    def data(self, data: bytes, chunks: bytes) -> None:
        """Handles a piece of the response body."""
        if self.over:
            return
        passed = self._follow(data)
        client = self.client
        if client is not None and not self._collects and (passed or self._head_line):
            client.write(self._head_line, passed, chunks if passed is data else b"")
            self._head_line = b""

    def complete(self, data: bytes, chunks: bytes) -> None:
        """Handles the end of the server's response, with its last piece."""
        self.connection = None
        if self.over:
            return
        if data:
            passed = self._follow(data)
            if passed is not data:
                data, chunks = passed, b""
        if self._prefill >= 0:
            self._decode(transfer_of(b"".join(self._kept)))
            return
        if self._collects:
            self._pass_whole_on()
            return
        client = self.client
        assert client is not None
        stream = self.stream
        if stream is not None:
            held = stream.end()
            if held:
                data, chunks = data + held, b""
            if not stream.done:
                if self.first_byte_s >= 0.0:
                    client.write(self._head_line, data, b"")
                    self._head_line = b""
                what = "the server ended its answer early"
                self._cut(CUT_OFF, what, "The answer was cut off.", 502)
                return
            self.usage = stream.usage
        else:
            self.usage = self._kept_usage()
        self.client = None
        self._finish(COMPLETED, self.reason)
        client.end(self._head_line, data, chunks)

    def _follow(self, data: bytes) -> bytes:
        """Tracks a piece of the response; returns the part that goes to the client."""
        proxy = self._proxy
        self.last_s = proxy.swept_s
        if self.first_byte_s < 0.0:
            self.first_byte_s = proxy.now_s()
        if self._responses:
            self._responses -= 1
            if proxy.made_response(self, data):
                self._responses = 0
        if self.stream is not None and not self._collects:
            return self.stream.feed(data)
        if self._bytes_kept <= KEPT_BODY:
            self._kept.append(data)
            self._bytes_kept += len(data)
        return data

    def broken(self, what: str) -> None:
        """Handles a connection to the server that broke or could not be opened."""
        connection, self.connection = self.connection, None
        if self.over:
            return
        if self._prefill >= 0:
            self._decode_alone()
            return
        started = self.first_byte_s >= 0.0 or not (connection is None or not connection.answering)
        if started:
            self._cut(CUT_OFF, what, "The server's answer was cut off.", 502)
            return
        if connection is not None and connection.uses > 1 and not self._reset_tried:
            # The server closed an idle connection just as it was used.
            self._reset_tried = True
            head, body = self._sent
            self._proxy.pools[self.server].send(self, head, body, fresh=True)
            return
        self._status = 502
        self._fail(what, again=True)

    def late(self) -> None:
        """Handles a response that did not begin in time, or a stream that stalled."""
        self._status = 504
        if self._prefill >= 0:
            self.drop_connection()
            self._decode_alone()
        elif self._head_line or self.first_byte_s >= 0.0:
            self.drop_connection()
            self._cut(
                TIMED_OUT, "the answer stood still", "The answer stood still for too long.", 504
            )
        else:
            self._fail("no answer in time", again=False)

    # From prefill to decode.

    def _decode_alone(self) -> None:
        """Lets the answering server compute the prompt, since the prefill server did not."""
        self.drop_connection()
        self._decode(None)

    def _decode(self, transfer: msgspec.Raw | None) -> None:
        """Sends the client's request to the answering server, with the location of its KV."""
        proxy = self._proxy
        self._prefill = -1
        self._collects = False
        self._kept = []
        self._bytes_kept = 0
        self.first_byte_s = -1.0
        proxy.streams.remove(self)
        proxy.first_bytes.remove(self)
        proxy.core.prefilled(self.number, proxy.now_s(), good=transfer is not None)
        proxy.pump()
        if not self.over:
            body = self._body
            self._moved = transfer is not None
            if transfer is not None:
                body = with_fields(body, {"kv_transfer_params": transfer})
            self._send(self.server, body)

    # How it ends.

    def _fail(self, what: str, *, again: bool, faulty: bool = True) -> None:
        """Reports a failure before the first byte; the core decides about another server."""
        self.drop_connection()
        proxy = self._proxy
        self._strand()
        proxy.first_bytes.remove(self)
        proxy.metrics.attempt_failed(self.server)
        proxy.core.failed(self.number, what, proxy.now_s(), again=again, faulty=faulty)
        proxy.pump()

    def _pass_whole_on(self) -> None:
        """Passes on a collected response: as OpenAI's error, or without the host names in it."""
        body = b"".join(self._kept)
        client, self.client = self.client, None
        own = self.own_headers(self.reason)
        status = self.said = self._status
        if status < 400:
            self.usage = usage_of(body)
            if b'"kv_transfer_params"' in body and self.usage is not None:
                body = without_fields(body, ("kv_transfer_params",))
            self._finish(COMPLETED, self.reason)
        else:
            body = server_error(status, body, self._proxy.redact)
            self._finish(FAILED, f"status {status}")
        if client is not None:
            client.reply(status, body, own)

    def _cut(self, outcome: str, reason: str, message: str, status: int) -> None:
        """Cuts a response: with an error event and a close if it has begun, else with an error."""
        self.drop_connection()
        client, self.client = self.client, None
        begun = not self._head_line and self.first_byte_s >= 0.0 and not self._collects
        own = self.own_headers(reason)
        self.said = self.said if begun else status
        self._finish(outcome, reason)
        if client is None:
            return
        if not begun:
            after = b"retry-after: %d\r\n" % self._proxy.retry_after_s(self.model)
            client.reply(status, error_body(status, message, code=reason), own + after)
        elif self.stream is not None:
            client.cut(b"data: %b\n\n" % error_body(status, message, code=reason))
        else:
            client.cut(b"")

    def _finish(self, outcome: str, reason: str, *, told: bool = False) -> None:
        """The only way an exchange ends; `told`: the core decided the end and knows of it."""
        assert not self.over
        self._strand()
        if self.usage is None and self.stream is not None:
            self.usage = self.stream.usage  # so far, if every event has it
        self.over = True
        self.outcome = outcome
        self.reason = reason
        self._proxy.ended(self, told=told)

    def _kept_usage(self) -> TokenUsage | None:
        """The usage in a response that is not a stream and not too large."""
        return usage_of(b"".join(self._kept)) if self._bytes_kept <= KEPT_BODY else None

    def _strand(self) -> None:
        """Counts KV computed for a server that never began to answer: no server will fetch it."""
        if self._moved and self.first_byte_s < 0.0:
            self._moved = False
            self._proxy.metrics.stranded += 1

    def own_headers(self, reason: str) -> bytes:
        """The header lines that the gateway adds to a response."""
        own = b"x-request-id: %b\r\n" % self.id
        if self._proxy.explains and self.head_in.get(b"x-windtunnel-explain") is not None:
            name = self._proxy.server_name(self.server)
            own += f"x-windtunnel-server: {name}\r\nx-windtunnel-reason: {reason}\r\n".encode()
        for one in self._proxy.limits_of(self):
            own += (
                f"x-ratelimit-limit-{one.kind}: {int(one.limit)}\r\n"
                f"x-ratelimit-remaining-{one.kind}: {int(one.remaining)}\r\n"
            ).encode()
            if one.per_s > 0.0:
                reset_s = one.wait_s(one.limit)
                own += f"x-ratelimit-reset-{one.kind}: {reset_s:.3f}s\r\n".encode()
        return own

    @property
    def streams(self) -> bool:
        return bool(self.fields.stream)

    @property
    def output_tokens(self) -> int:
        """As counted by the server, otherwise estimated from the events of the stream."""
        if self.usage is not None:
            return self.usage.output
        stream = self.stream
        return self._proxy.prompts.streamed(self.model, stream.events) if stream is not None else 0


def _is_event_stream(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )


class DryRunExchange(Exchange):
    """A request of a dry run: the client gets the decision, and no server gets the request."""

    __slots__ = ()

    def send(self, server: int, reason: str, prefill: int) -> None:
        self.server = server
        self.reason = reason
        proxy = self._proxy
        self.sent_s = proxy.now_s()
        decision = {
            "object": "windtunnel.decision",
            "server": proxy.server_name(server),
            "reason": reason,
            "prefill_server": proxy.server_name(prefill) if prefill >= 0 else None,
        }
        self.said = 200
        own = self.own_headers(reason)
        client, self.client = self.client, None
        self._finish(DECIDED, reason)
        if client is not None:
            client.reply(200, msgspec.json.encode(decision), own)
