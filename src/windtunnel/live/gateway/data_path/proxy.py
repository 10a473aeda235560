"""The proxy: connects clients, decisions and servers, and enforces every deadline."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.admission.gateway.gateway import Allowance
from windtunnel.core.clock import lap_s
from windtunnel.core.random import fresh_seed
from windtunnel.live.gateway.access_log import AccessLog
from windtunnel.live.gateway.data_path.bodies import (
    asks_for_usage,
    check_names,
    output_tokens_of,
    prompt_of,
    read_body,
    read_values,
    with_usage,
    without_fields,
)
from windtunnel.live.gateway.data_path.client_side import ClientConnection
from windtunnel.live.gateway.data_path.errors import ClientError, NoServerYet, method_error
from windtunnel.live.gateway.data_path.exchange import (
    COMPLETED,
    RESPONSES,
    DryRunExchange,
    EarlyRequest,
    Exchange,
)
from windtunnel.live.gateway.data_path.http import RequestHead
from windtunnel.live.gateway.data_path.prompts import PromptReader
from windtunnel.live.gateway.data_path.records import access_line, trace_row
from windtunnel.live.gateway.data_path.responses import ASKED, METHODS, ResponseOwners, Retrieval
from windtunnel.live.gateway.data_path.structs import NO_OPTIONS, BodyFields
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import REFUSE, SEND, RequestArrival
from windtunnel.live.gateway.kv.tokens import MOST_READ, ModelTokenizer
from windtunnel.live.gateway.metrics import GatewayMetrics
from windtunnel.live.gateway.request_trace import RequestTrace
from windtunnel.live.gateway.settings import LiveSettings
from windtunnel.live.wire.connections import AnswerReceiver, ServerPool
from windtunnel.live.wire.timing import Deadlines, ProgressDeadlines

SWEEP_S: Final = 0.1
LINGER_S: Final = 1.0
"""How long a refused client may take to read the error."""
MOST_SESSIONS: Final = 200_000
LONGEST_RETRY_S: Final = 120
"""OpenAI's clients do not retry at all after a longer retry-after."""
AFTER_STOPPING_S: Final = 5
RATE_WINDOW_S: Final = 10.0
LONGEST_ID: Final = 128
ANSWERED_BY_SERVERS: Final = frozenset(
    (
        b"/v1/chat/completions",
        b"/v1/completions",
        b"/v1/responses",
        b"/v1/embeddings",
        b"/tokenize",
        b"/detokenize",
    )
)
STREAMING: Final = frozenset((b"/v1/chat/completions", b"/v1/completions"))
"""Paths whose streams can be asked for a usage chunk."""

_log = logging.getLogger("windtunnel.gateway")


class KeyHolder(NamedTuple):
    """The tenant and classes of a client's key."""

    tenant: int
    classes: tuple[int, ...]


ANYONE: Final = KeyHolder(0, ())


class Proxy:
    """Everything between the client and server sides, on one event loop."""

    def __init__(self, core: GatewayCore, live: LiveSettings, prompts: PromptReader) -> None:
        limits = live.limits
        self.core: Final = core
        self.limits: Final = limits
        self.head_bytes: Final = int(limits.head_bytes)
        self.body_bytes: Final = int(limits.body_bytes)
        self.internal_errors: Final = live.retries.internal_errors
        """Whether another server is tried after a 500."""
        self._most_connections: Final = limits.connections
        self._start_s: Final = lap_s()
        self.explains: Final = live.explain
        self.metrics: Final = GatewayMetrics()
        self.pools: Final[list[ServerPool]] = []
        self.trace: RequestTrace | None = None
        self.stopping = False
        self.redact: Callable[[str], str] = lambda text: text
        """Removes server keys from a text, since servers echo what they were sent."""
        self.tokenizers: dict[str, ModelTokenizer] = {}
        self.access_log: AccessLog | None = None
        self.responses: Final = ResponseOwners()
        self.heads: Final = Deadlines[ClientConnection](limits.request_s)
        self.idle: Final = Deadlines[ClientConnection](limits.idle_s)
        self.stalled: Final = Deadlines[ClientConnection](limits.stall_s)
        self.lingering: Final = Deadlines[ClientConnection](LINGER_S)
        self.first_bytes: Final = Deadlines[AnswerReceiver](limits.first_byte_s)
        self.streams: Final = ProgressDeadlines[AnswerReceiver](limits.silence_s)
        self.early: Final = Deadlines[EarlyRequest](core.policies.unplaced_ttl_s)
        self.connections: Final[set[ClientConnection]] = set()
        self.retrievals: Final[dict[Retrieval, None]] = {}  # of stored responses, in flight
        self._asks_usage: Final = live.usage
        self._exchange_type: Final = DryRunExchange if live.dry_run else Exchange
        self.prompts: Final = prompts
        self._exchanges: Final[dict[int, Exchange]] = {}
        self._arrivals: Final[dict[int, RequestArrival]] = {}
        self._keys: dict[bytes, KeyHolder] = {}
        self.class_numbers: Final = {
            one.name.encode(): number for number, one in enumerate(core.policies.classes)
        }
        self._sessions: Final[dict[str, int]] = {}
        self._session_count = 0
        self.arrived = 0
        self.ended_per_s: Final[dict[str, float]] = {}  # by base model, in `RATE_WINDOW_S`
        self._ends: Final[dict[str, int]] = {}
        self.swept_s = 0.0  # a clock that is free to read, but slightly late
        self._ids = 0
        self._id_start: Final = f"wt-{fresh_seed():016x}-".encode()
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = float("inf")

    def now_s(self) -> float:
        """Seconds since the gateway started."""
        return lap_s() - self._start_s

    def use_keys(self, keys: dict[bytes, KeyHolder]) -> None:
        """Sets the client keys, by their SHA-256; if there are none, no key is required."""
        self._keys = keys

    def made_response(self, exchange: Exchange, data: bytes) -> bool:
        """Whether the start of a response has its id; later requests for it go to its server."""
        tenant = self._arrivals[exchange.number].tenant
        return self.responses.made(data, exchange.server, tenant)

    def server_name(self, server: int) -> str:
        return self.core.servers[server].name if server >= 0 else "none"

    def retry_after_s(self, model: str, wait_s: float = 0.0) -> int:
        """Seconds until a refused client may retry: `wait_s`, or the time to work off the queue."""
        if self.stopping:
            return AFTER_STOPPING_S
        per_s = self.ended_per_s.get(self.core.base_of(model), 0.0)
        if wait_s <= 0.0 and per_s > 0.0:
            wait_s = self.core.queued(model) / per_s
        return min(max(1, math.ceil(wait_s)), LONGEST_RETRY_S)

    def limits_of(self, exchange: Exchange) -> list[Allowance]:
        """What the request's tenant may still use."""
        if not self.core.has_allowances:
            return []
        tenant = self._arrivals[exchange.number].tenant
        return self.core.allowances(exchange.model, tenant, self.now_s())

    # Connections.

    def opened(self, connection: ClientConnection) -> bool:
        """Registers a connection; returns whether it is within the limit."""
        if len(self.connections) >= self._most_connections or self.stopping:
            return False
        self.connections.add(connection)
        self.metrics.connections += 1
        self.idle.add(connection, self.now_s())
        return True

    def closed(self, connection: ClientConnection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self.metrics.connections -= 1
        for deadlines in (self.heads, self.idle, self.stalled, self.lingering):
            deadlines.remove(connection)

    def bug(self, error: BaseException) -> None:
        self.metrics.bugs += 1
        _log.error("the gateway failed on a request", exc_info=error)

    # Requests.

    def handle(
        self, client: ClientConnection, head: RequestHead, body: bytes, began_s: float
    ) -> None:
        """Handles a complete request."""
        try:
            path = head.path.partition(b"?")[0]
            if path in ANSWERED_BY_SERVERS:
                self._begin(client, head, path, body, began_s)
            else:
                self._own_answer(client, head, path)
        except NoServerYet:
            early = EarlyRequest(self, client, head, body, began_s)
            client.exchange = early
            self.early.add(early, self.now_s())
        except ClientError as error:
            self._refuse(client, head, error)
        except Exception as error:  # noqa: BLE001 - one request must not take down the others
            self.bug(error)
            client.abort()

    def _refuse(self, client: ClientConnection, head: RequestHead, error: ClientError) -> None:
        given = self._id_of(head)
        self.refused_early(error, given, head.path)
        own = b"x-request-id: %b\r\n%b" % (given, error.headers)
        client.reply(error.status, error.body, own)

    def _look_at_early(self, now_s: float) -> None:
        """Retries requests that arrived before any server was ready; refuses those over the
        limit."""
        if not len(self.early):
            return
        if self.stopping or self.core.models():
            for one in list(self.early.expired(math.inf)):
                self.handle(one.client, one.head_in, one.body, one.last_s)
        for one in self.early.expired(now_s):
            self._refuse(one.client, one.head_in, NoServerYet())

    def refused_early(self, error: ClientError, given: bytes = b"", path: bytes = b"") -> None:
        """Counts and logs a request that was invalid, or found no server ready before admission."""
        self.metrics.refused_early(error.status)
        if self.access_log is not None:
            self.access_log.add(
                {
                    "id": given.decode("latin-1"),
                    "path": path.partition(b"?")[0][:200].decode("latin-1"),
                    "status": error.status,
                    "outcome": "rejected" if error.status == 503 else "invalid",
                    "reason": str(error)[:200],
                }
            )

    def _begin(
        self, client: ClientConnection, head: RequestHead, path: bytes, body: bytes, began_s: float
    ) -> None:
        holder = self.identify(head)
        fields = self.read(head, body)
        exchange = self._exchange_type(self, client, head, fields, self.arrived, began_s)
        self.start(exchange, path, body, holder, ())

    def read(self, head: RequestHead, body: bytes) -> BodyFields:
        """Reads the fields that decisions need, for a known model; raises ClientError otherwise."""
        if head.method != b"POST":
            raise method_error(("POST",))
        kind = head.get(b"content-type")
        if kind is not None and not kind.lower().startswith(b"application/json"):
            raise ClientError(415, "The content type must be application/json.")
        if self.stopping:
            after = b"retry-after: %d\r\n" % AFTER_STOPPING_S
            raise ClientError(503, "The gateway is stopping.", code="stopping", headers=after)
        fields = read_body(body)
        if fields.model is None:
            raise ClientError(400, "The request names no model.", param="model")
        if not self.core.knows(fields.model):
            if not self.core.models():
                raise NoServerYet
            message = f"The model `{fields.model[:200]}` does not exist."
            raise ClientError(404, message, code="model_not_found", param="model")
        return fields

    def start(
        self,
        exchange: Exchange,
        path: bytes,
        body: bytes,
        holder: KeyHolder,
        among: tuple[int, ...],
    ) -> None:
        """Submits a request that was read; `among`: the only servers that may take it."""
        head, fields, number = exchange.head_in, exchange.fields, exchange.number
        slo = self._class_of(head, holder)
        model = fields.model
        assert model is not None
        exchange.id = self._id_of(head)
        exchange.model = model
        prompt = prompt_of(fields)
        exchange.prompt_bytes = len(prompt)
        tokens, keys, ends = self._prompt(model, fields.cache_salt or "", prompt, body)
        asks = (
            self._asks_usage
            and exchange.streams
            and not asks_for_usage(fields)
            and path in STREAMING
        )
        dropped: tuple[str, ...] = ()
        if fields.kv_transfer_params is not NO_OPTIONS:
            dropped = ("kv_transfer_params",)
        if asks and fields.stream_options is not None:
            dropped = (*dropped, "stream_options")
        if dropped or self.core.splits:
            check_names(body)
        if dropped:
            body = without_fields(body, dropped)
        if asks:
            body = with_usage(body)
        exchange.prepare(path, body, asks)
        arrival = RequestArrival(
            number,
            model,
            holder.tenant,
            slo,
            tokens,
            output_tokens_of(fields),
            self._session(head, fields.session_id),
            keys,
            ends,
            self._holder(path, fields.previous_response_id, holder.tenant),
            among,
        )
        assert number == self.arrived
        self.arrived += 1
        if exchange.client is not None:
            exchange.client.exchange = exchange
        self._exchanges[number] = exchange
        self._arrivals[number] = arrival
        self.core.arrive(arrival, self.now_s())
        self.pump()

    def ended(self, exchange: Exchange, *, told: bool) -> None:
        """Handles the end of an exchange; `told`: the decisions know of it."""
        number = exchange.number
        base = self.core.base_of(exchange.model)
        self._ends[base] = self._ends.get(base, 0) + 1
        del self._exchanges[number]
        arrival = self._arrivals.pop(number)
        self.first_bytes.remove(exchange)
        self.streams.remove(exchange)
        now_s = self.now_s()
        first_s, ttft_s, tpot_s = exchange.first_byte_s, -1.0, 0.0
        output = exchange.output_tokens
        metrics = self.metrics
        metrics.ended(exchange.model, exchange.outcome, exchange.reason)
        if exchange.outcome == COMPLETED:
            ttft_s = first_s - exchange.arrived_s
            stream = exchange.stream
            if output > 1 and exchange.streams:
                tpot_s = (now_s - first_s) / (output - 1)
            model = metrics.of(exchange.model)
            model.duration.add(now_s - exchange.arrived_s)
            model.queued.add(exchange.sent_s - exchange.arrived_s)
            if exchange.streams:
                model.first_token.add(ttft_s)
                if tpot_s > 0.0:
                    model.per_token.add(tpot_s)
            usage = exchange.usage
            if usage is not None:
                model.prompt_tokens += usage.prompt
                model.output_tokens += output
                self.prompts.learn(exchange.model, exchange.prompt_bytes, usage.prompt)
                if stream is not None:
                    self.prompts.learn_stream(exchange.model, stream.events, output)
        if not told:
            request = self.core.requests.get(number)
            sent_s = request.record.sent_s if request is not None else exchange.arrived_s
            since_sent_s = first_s - sent_s if ttft_s >= 0.0 else -1.0
            self.core.ended(number, exchange.outcome, now_s, since_sent_s, tpot_s)
        if first_s >= 0.0:
            ttft_s = first_s - exchange.arrived_s
        if self.trace is not None:
            self.trace.add(trace_row(exchange, arrival, self.core, self.trace, now_s, ttft_s))
        if self.access_log is not None:
            self.access_log.add(access_line(exchange, arrival, self.core, now_s, ttft_s))
        if not told:
            self.pump()

    def pump(self) -> None:
        """Carries out the decided actions, one after another."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (action := self.core.take()) is not None:
                exchange = self._exchanges.get(action.request)
                if exchange is None:
                    continue
                if action.kind == SEND:
                    exchange.send(action.server, action.reason, action.prefill)
                elif action.kind == REFUSE:
                    exchange.refuse(action.reason, action.seen, action.limit)
                else:
                    exchange.stop(action.reason)
        finally:
            self._pumping = False
        self._plan()

    def _plan(self) -> None:
        """Sets one timer for the next tick that the decisions need."""
        next_s = self.core.next_s
        if next_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = next_s
            delay_s = max(0.0, next_s - self.now_s())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._timer_s = float("inf")
        self.core.tick(self.now_s())
        self.pump()

    def sweep(self) -> None:
        """Checks every deadline, ten times a second; the cost is that of the expired ones."""
        now_s = self.now_s()
        passed_s = now_s - self.swept_s
        if passed_s > 0.0:
            share = min(1.0, passed_s / RATE_WINDOW_S)
            for model, ends in self._ends.items():
                known = self.ended_per_s.get(model, 0.0)
                self.ended_per_s[model] = known + share * (ends / passed_s - known)
                self._ends[model] = 0
            self.swept_s = now_s
        for connection in self.heads.expired(now_s):
            connection.late()
        for connection in self.idle.expired(now_s):
            connection.close_when_idle()
        for connection in (*self.stalled.expired(now_s), *self.lingering.expired(now_s)):
            connection.abort()
        self._look_at_early(now_s)
        for exchange in self.first_bytes.expired(now_s):
            exchange.late()
        for exchange in self.streams.expired(now_s):
            exchange.late()
        if self.core.server_next_s(now_s) <= now_s:
            self.core.tick(now_s)
            self.pump()
        for pool in self.pools:
            pool.sweep(lap_s())
        if self.trace is not None:
            self.trace.flush()
            self.metrics.lost["trace"] = self.trace.lost
        if self.access_log is not None:
            self.access_log.flush()
            self.metrics.lost["access_log"] = self.access_log.lost

    @property
    def under_way(self) -> int:
        return len(self._exchanges) + len(self.retrievals) + len(self.early)

    def give_up(self) -> None:
        """Cuts off all requests in flight when the drain time is over."""
        for exchange in list(self._exchanges.values()):
            exchange.stop("stopping")
        for retrieval in list(self.retrievals):
            retrieval.stop()

    def refuse_queued(self) -> None:
        """Refuses requests not yet sent to a server, because the gateway is stopping."""
        for exchange in list(self._exchanges.values()):
            if exchange.server < 0:
                exchange.stop("stopping")
        self._look_at_early(self.now_s())

    # Parts of a request.

    def _prompt(
        self, model: str, salt: str, prompt: bytes, body: bytes
    ) -> tuple[int, list[int], list[int]]:
        """A prompt's tokens and prefix chain: exact with a tokenizer, else estimated from bytes."""
        prompts = self.prompts
        if self.tokenizers:
            tokenizer = self.tokenizers.get(self.core.base_of(model))
            exact = None
            if tokenizer is not None and len(prompt) <= MOST_READ:
                exact = tokenizer.read(read_values(body), model, salt)
            if exact is not None:
                keys = [prompts.key(state) for state, _ in exact.boundaries]
                return exact.tokens, keys, [end for _, end in exact.boundaries]
        keys, ends = prompts.chain(model, salt, prompt)
        return prompts.tokens(model, len(prompt)), keys, ends

    @property
    def asks_keys(self) -> bool:
        return bool(self._keys)

    def identify(self, head: RequestHead) -> KeyHolder:
        """The tenant of a request; raises ClientError if its key is missing or unknown."""
        if not self._keys:
            return ANYONE
        given = head.get(b"authorization") or b""
        scheme, _, key = given.partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise ClientError(401, "There is no API key.", code="invalid_api_key")
        found = self._keys.get(sha256(key.strip()).digest())
        if found is None:
            raise ClientError(401, "The API key is not known.", code="invalid_api_key")
        return found

    def _holder(self, path: bytes, previous: str | None, tenant: int) -> int:
        """The server that has the conversation that a request continues; -1 if none is known."""
        if path != RESPONSES or not previous:
            return -1
        owner = self.responses.find(previous.encode(), tenant)
        return owner.server if owner is not None else -1

    def _class_of(self, head: RequestHead, holder: KeyHolder) -> int:
        asked = head.get(b"x-slo-class")
        if asked is None:
            return holder.classes[0] if holder.classes else 0
        number = self.class_numbers.get(asked)
        if number is None or (holder.classes and number not in holder.classes):
            allowed = [
                name.decode()
                for name, one in self.class_numbers.items()
                if not holder.classes or one in holder.classes
            ]
            message = f"This class of service does not exist; allowed: {', '.join(allowed)}."
            raise ClientError(400, message, param="x-slo-class")
        return number

    def _session(self, head: RequestHead, in_body: str | None) -> int:
        given = head.get(b"x-session-id")
        name = given.decode("latin-1") if given is not None else in_body
        if not name:
            return -1
        number = self._sessions.pop(name, -1)
        if number < 0:
            number = self._session_count
            self._session_count += 1
            if len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        self._sessions[name] = number
        return number

    def _id_of(self, head: RequestHead) -> bytes:
        given = head.get(b"x-request-id")
        if (
            given is not None
            and 0 < len(given) <= LONGEST_ID
            and all(32 < letter < 127 for letter in given)
        ):
            return given
        self._ids += 1
        return b"%b%d" % (self._id_start, self._ids)

    def trace_line(self, head: RequestHead) -> bytes:
        """The W3C trace context for a server, with a new span; empty if the request has none."""
        given = head.get(b"traceparent")
        if given is None:
            return b""
        parts = given.split(b"-")
        if len(parts) != 4 or [len(part) for part in parts] != [2, 32, 16, 2]:
            return b""
        valid = all(_is_hex(part) for part in parts) and parts[0] != b"ff"
        if not valid or not int(parts[1], 16) or not int(parts[2], 16):
            return b""
        span = b"%016x" % (fresh_seed() or 1)
        return b"traceparent: 00-%b-%b-%b\r\n" % (parts[1], span, parts[3])

    # Requests that the gateway answers itself.

    def _own_answer(self, client: ClientConnection, head: RequestHead, path: bytes) -> None:
        given = self._id_of(head)
        own = b"x-request-id: %b\r\n" % given
        found = ASKED.fullmatch(path)
        if found is not None:
            self._ask_owner(client, head, found.group(1), found.group(2) or b"", given)
            return
        if path == b"/health":
            client.reply(200, b"", own)
            return
        if path == b"/v1/models" or path.startswith(b"/v1/models/"):
            self.identify(head)
            if head.method != b"GET":
                raise method_error(("GET",))
            name = path[len(b"/v1/models/") :].decode("utf-8", "replace")
            client.reply(200, self._models(name), own)
            return
        raise ClientError(404, "There is nothing at this path.")

    def _ask_owner(
        self, client: ClientConnection, head: RequestHead, name: bytes, what: bytes, given: bytes
    ) -> None:
        tenant = self.identify(head).tenant
        server = self.owner_of(head, name, what, tenant)
        retrieval = Retrieval(self, client, head, given, server, tenant)
        retrieval.send()
        client.exchange = retrieval

    def owner_of(self, head: RequestHead, name: bytes, what: bytes, tenant: int) -> int:
        """The server of a stored response; raises ClientError for an unknown id or wrong method."""
        allowed = [method.decode() for method, ends in METHODS.items() if what in ends]
        if head.method.decode("latin-1") not in allowed:
            raise method_error(allowed)
        owner = self.responses.find(name, tenant)
        if owner is None:
            message = f"The response `{name.decode()}` does not exist."
            raise ClientError(404, message, param="response_id")
        return owner.server

    def _models(self, name: str) -> bytes:
        cards: Sequence[dict[str, Any]] = [
            {
                "id": card.name,
                "object": "model",
                "owned_by": "windtunnel",
                "parent": card.parent or None,
            }
            for card in self.core.models()
        ]
        if not name:
            return msgspec.json.encode({"object": "list", "data": cards})
        for card in cards:
            if card["id"] == name:
                return msgspec.json.encode(card)
        message = f"The model `{name[:200]}` does not exist."
        raise ClientError(404, message, code="model_not_found", param="model")


def _is_hex(text: bytes) -> bool:
    return all(letter in b"0123456789abcdef" for letter in text)
