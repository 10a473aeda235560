"""The Endpoint Picker: Envoy's external processing, with bodies streamed both ways.

Envoy sends the headers and body of a request and holds it; our response names the server to send it
to and returns the body. The server's response passes through here as well, so as much is known of a
request as in the proxy, and the same objects make the same decisions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from windtunnel.live.gateway.data_path.errors import KEPT_BODY, ClientError, method_error, redacted
from windtunnel.live.gateway.data_path.http import RequestHead
from windtunnel.live.gateway.data_path.picked import PICKED, STOPPED, UNDECIDED, PickedRequest
from windtunnel.live.gateway.data_path.proxy import ANSWERED_BY_SERVERS, KeyHolder
from windtunnel.live.gateway.data_path.responses import ASKED
from windtunnel.live.gateway.picker.grpc_server import OK, CallHandler, GrpcCall, GrpcService
from windtunnel.live.gateway.picker.pieces import (
    REQUEST_BODY,
    RESPONSE_BODY,
    answer_piece,
    piece_response,
)
from windtunnel.live.wire.timing import Deadlines

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
PROCESS: Final = f"/{SERVICE}/Process".encode()
CHECK: Final = b"/grpc.health.v1.Health/Check"
INTERNAL: Final = 13
"""The gRPC status for an invalid message."""
NAMESPACE: Final = "envoy.lb"
HINT_NAMESPACE: Final = "envoy.lb.subset_hint"
DESTINATION: Final = "x-gateway-destination-endpoint"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
PREFILLER: Final = "x-prefiller-host-port"
NOT_FROM_CLIENTS: Final = (
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
)
OBJECTIVES: Final = (b"x-gateway-inference-objective", b"x-llm-d-inference-objective")
FAIRNESS: Final = (b"x-gateway-inference-fairness-id", b"x-llm-d-inference-fairness-id")
MOST_TENANTS: Final = 1000
OVERFLOW: Final = "(others)"
"""The tenant of every fairness id beyond the first `MOST_TENANTS`."""
PIECE: Final = 48 << 10
"""Bytes of a body in one message, the same as Envoy's own chunks."""
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
SET: Final = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

Response = messages.ProcessingResponse

# What a stream waits for.
REQUEST: Final = 0
DECISION: Final = 1
ANSWER: Final = 2


class PickerService:
    """Serves Envoy; one per gateway."""

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy: Final = proxy
        self._endpoints: Final[dict[str, int]] = {}
        self._seen_servers = 0
        self._tenants: Final[dict[str, int]] = {}
        limits = proxy.limits
        self.heads: Final = Deadlines[PickerStream](limits.request_s)
        self.grpc: Final = GrpcService(
            self.handler_of, limits.connections, limits.request_s, proxy.now_s
        )

    def handler_of(self, path: bytes, call: GrpcCall) -> CallHandler | None:
        """The handler of a call, for the gRPC server."""
        if path == CHECK:

            def check(request: bytes) -> None:
                call.write(self._health(request))
                call.finish(OK)

            return check, _ignore
        if path != PROCESS:
            return None

        stream = PickerStream(self, call.write, call.finish)

        def message(data: bytes) -> None:
            piece = answer_piece(data)
            if piece is not None:
                stream.answer_piece(*piece)
                return
            try:
                found = messages.ProcessingRequest.FromString(data)
            except DecodeError:
                call.finish(INTERNAL)
                return
            stream.message(found)

        return message, stream.closed

    def _health(self, request: bytes) -> bytes:
        """The health status: always alive; ready once a server is, and until the gateway stops."""
        if request[2:] == b"liveness":
            return SERVING
        ready = bool(self.proxy.core.models()) and not self.proxy.stopping
        return SERVING if ready else NOT_SERVING

    def sweep(self) -> None:
        """Refuses requests that did not arrive in time, and closes connections without a call."""
        now_s = self.proxy.now_s()
        for stream in self.heads.expired(now_s):
            stream.late()
        self.grpc.sweep(now_s)

    def endpoint(self, server: int) -> str:
        return self.proxy.pools[server].address.host_header.decode()

    def servers_at(self, endpoints: list[str]) -> list[int]:
        """The numbers of the servers at these addresses."""
        pools = self.proxy.pools
        while self._seen_servers < len(pools):
            self._endpoints[self.endpoint(self._seen_servers)] = self._seen_servers
            self._seen_servers += 1
        return sorted(self._endpoints[one] for one in endpoints if one in self._endpoints)

    def holder_of(self, head: RequestHead) -> KeyHolder:
        """The tenant and class: from the client's key, or from headers set by the mesh."""
        proxy = self.proxy
        if proxy.asks_keys:
            return proxy.identify(head)
        named = _first(head, FAIRNESS)
        tenant = self._tenant(named[:64].decode("ascii", "replace")) if named else 0
        objective = _first(head, OBJECTIVES)
        number = proxy.class_numbers.get(objective) if objective else None
        return KeyHolder(tenant, () if number is None else (number,))

    def _tenant(self, name: str) -> int:
        """The number of a tenant; ids beyond the limit share one tenant, and are counted."""
        core, known = self.proxy.core, self._tenants
        tenants = core.policies.tenants
        if name not in known:
            for number in range(len(known), len(tenants)):  # configured, or added by a reload
                known[tenants[number]] = number
        if name not in known and len(known) >= MOST_TENANTS:
            self.proxy.metrics.overflowed_tenants += 1
            name = OVERFLOW
        if name not in known:
            known[name] = len(tenants)
            core.add_tenant(name, self.proxy.now_s())
        return known[name]


class PickerStream:
    """One request in Envoy: its messages in, ours out, in the protocol's order."""

    def __init__(
        self, service: PickerService, write: Callable[[bytes], None], finish: Callable[[], None]
    ) -> None:
        self._service: Final = service
        self._proxy: Final = service.proxy
        self._write_bytes: Final = write
        self._finish: Final = finish
        self._state = REQUEST
        self._trailers = False  # the request ends with trailers
        self._head: RequestHead | None = None
        self._subset: list[str] | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._began_s = self._proxy.now_s()
        self._request: PickedRequest | None = None
        self._error: bytearray | None = None  # the server's, until it is complete
        service.heads.add(self, self._began_s)

    def message(self, message: Any) -> None:
        try:
            self._take(message)
        except Exception as error:  # noqa: BLE001 - one request must not take down the others
            self._proxy.bug(error)
            self._finish()

    def answer_piece(self, data: bytes, last: bool) -> None:  # noqa: FBT001
        try:
            self._response_body(data, last=last)
        except Exception as error:  # noqa: BLE001 - as above
            self._proxy.bug(error)
            self._finish()

    def _write(self, message: Any) -> None:
        self._write_bytes(message.SerializeToString())

    def closed(self) -> None:
        """Handles the end of the stream: Envoy has closed it, or is gone."""
        self._service.heads.remove(self)
        if self._request is not None:
            self._request.left()

    def late(self) -> None:
        self._refuse(ClientError(408, "The request did not come in time."))

    def _take(self, message: Any) -> None:
        kind = message.WhichOneof("request")
        if kind == "response_body":
            body = message.response_body
            self._response_body(body.body, last=body.end_of_stream)
        elif kind == "response_headers":
            self._response_headers(message.response_headers)
        elif kind == "response_trailers":
            if self._state == ANSWER and self._request is not None:
                self._request.answer_ended()
            if self._error:
                self._write_bytes(piece_response(RESPONSE_BODY, self._shown(), last=False))
            self._write(Response(response_trailers=messages.TrailersResponse()))
        elif kind is not None and self._state == REQUEST:
            self._of_request(kind, message)

    def _of_request(self, kind: str, message: Any) -> None:
        if kind == "request_headers":
            self._take_head(message)
            if message.request_headers.end_of_stream:
                self._pick_any(None)
        elif kind == "request_body":
            body = message.request_body
            self._request_body(body.body, last=body.end_of_stream)
        elif kind == "request_trailers":
            self._trailers = True
            self._decide()

    # The request.

    def _take_head(self, message: Any) -> None:
        method, path = b"", b""
        headers = []
        for one in message.request_headers.headers.headers:
            name, value = one.key.encode("latin-1"), one.raw_value or one.value.encode()
            if name == b":method":
                method = value
            elif name == b":path":
                path = value
            elif not name.startswith(b":"):
                headers.append((name, value))
        self._head = RequestHead(method, path, headers, http_10=False)
        hints = message.metadata_context.filter_metadata
        if HINT_NAMESPACE in hints and SUBSET in hints[HINT_NAMESPACE].fields:
            value = hints[HINT_NAMESPACE].fields[SUBSET]
            listed = [one.string_value for one in value.list_value.values]
            self._subset = listed or [one for one in value.string_value.split(",") if one]

    def _request_body(self, data: bytes, *, last: bool) -> None:
        self._body_bytes += len(data)
        most = self._proxy.body_bytes
        if self._body_bytes > most:
            self._refuse(ClientError(413, f"The body is larger than {most} bytes."))
            return
        self._body.append(data)
        if last:
            self._decide()

    def _decide(self) -> None:
        """Handles a complete request; Envoy gets its response now, or once there is a decision."""
        head, body = self._head, b"".join(self._body)
        self._body = []
        if head is None:
            self._finish()  # Envoy does not send this
            return
        path = head.path.partition(b"?")[0]
        if path not in ANSWERED_BY_SERVERS:
            self._pick_any(body)
            return
        self._service.heads.remove(self)
        try:
            self._start(head, path, body)
        except ClientError as error:
            self._refuse(error)
            return
        self._state = DECISION
        self._answer_envoy()

    def _answer_envoy(self) -> None:
        """Names the server and returns the body, or refuses; waits if nothing is decided yet."""
        request = self._request
        assert request is not None
        if request.state == UNDECIDED:
            return
        if request.state != PICKED:
            self._stop(_refusal(request))
            return
        self._state = ANSWER
        prefill = self._service.endpoint(request.prefill) if request.prefill >= 0 else ""
        extra = {"x-request-id": request.id.decode("latin-1")}
        self._send(request.server, request.body, prefill, extra)

    def _start(self, head: RequestHead, path: bytes, body: bytes) -> None:
        proxy = self._proxy
        among: tuple[int, ...] = ()
        holder = self._service.holder_of(head)
        fields = proxy.read(head, body)
        if self._subset is not None:
            among = tuple(self._service.servers_at(self._subset))
            if not among:
                raise ClientError(503, "No server of the subset is known.", code="no-server")
        picked = PickedRequest(proxy, head, fields, proxy.arrived, self._began_s, self._wake)
        self._request = picked
        try:
            proxy.start(picked, path, body, holder, among)
        except ClientError:
            self._request = None
            raise

    def _wake(self) -> None:
        """Called when there is a decision about the request."""
        request = self._request
        if request is None or self._state == REQUEST:
            return  # decided on arrival; the caller answers
        if self._state == DECISION:
            self._answer_envoy()
        elif request.state == STOPPED:
            self._stop(_refusal(request))

    def _pick_any(self, body: bytes | None) -> None:
        """Picks a server for requests other than inference, at once and without admission."""
        self._service.heads.remove(self)
        assert self._head is not None
        try:
            server = self._server_for(self._head)
        except ClientError as error:
            self._refuse(error)
            return
        self._state = ANSWER
        self._send(server, body, "", {})

    def _server_for(self, head: RequestHead) -> int:
        """The server for such a request: the owner of a stored response, else the least busy."""
        proxy = self._proxy
        path = head.path.partition(b"?")[0]
        tenant = self._service.holder_of(head).tenant
        stored = ASKED.fullmatch(path)
        if stored is not None:
            return proxy.owner_of(head, stored.group(1), stored.group(2) or b"", tenant)
        is_models = path == b"/v1/models" or path.startswith(b"/v1/models/")
        if not (is_models or path == b"/health"):
            raise ClientError(404, "There is nothing at this path.")
        if head.method != b"GET":
            raise method_error(("GET",))
        among = None
        if self._subset is not None:
            among = self._service.servers_at(self._subset)
        server = proxy.core.least_busy(among, proxy.now_s())
        if server is None:
            raise ClientError(503, "No server is ready.", code="no-server")
        return server

    def _send(self, server: int, body: bytes | None, prefill: str, extra: dict[str, str]) -> None:
        endpoint = self._service.endpoint(server)
        extra[DESTINATION] = endpoint
        removed = list(NOT_FROM_CLIENTS)
        key = self._proxy.pools[server].address.key
        if key:
            extra["authorization"] = f"Bearer {key}"
        elif self._proxy.asks_keys:
            removed.append("authorization")  # meant for the gateway only
        if prefill:
            extra[PREFILLER] = prefill
        else:
            removed.append(PREFILLER)
        mutation = messages.HeaderMutation(
            set_headers=[_header(name, value.encode()) for name, value in extra.items()],
            remove_headers=removed,
        )
        common = messages.CommonResponse(header_mutation=mutation, clear_route_cache=True)
        metadata = Struct()
        metadata.get_or_create_struct(NAMESPACE)[DESTINATION] = endpoint
        self._write(
            Response(
                request_headers=messages.HeadersResponse(response=common), dynamic_metadata=metadata
            )
        )
        if body is None:
            return
        start = 0
        while True:
            piece = body[start : start + PIECE]
            start += PIECE
            last = start >= len(body)
            ends = last and not self._trailers
            self._write_bytes(piece_response(REQUEST_BODY, piece, last=ends))
            if last:
                break
        if self._trailers:
            self._write(Response(request_trailers=messages.TrailersResponse()))

    # The response.

    def _response_headers(self, message: Any) -> None:
        status, kind = 0, b""
        for one in message.headers.headers:
            if one.key == ":status":
                status = int(one.raw_value or one.value)
            elif one.key == "content-type":
                kind = one.raw_value or one.value.encode()
        own: list[HeaderValueOption] = []
        self._error = bytearray() if status >= 400 else None
        request = self._request
        if request is not None and self._state == ANSWER and not request.over:
            own = _headers(request.own_headers(request.reason))
            request.answer_began(status, is_stream=kind.startswith(b"text/event-stream"))
            if message.end_of_stream:
                request.answer_ended()
        changed = messages.HeaderMutation(set_headers=own, remove_headers=["content-length"])
        common = messages.CommonResponse(header_mutation=changed)
        self._write(Response(response_headers=messages.HeadersResponse(response=common)))

    def _response_body(self, data: bytes, *, last: bool) -> None:
        request = self._request
        if request is not None and self._state == ANSWER and not request.over:
            data = request.answer_data(data, last=last)
        if self._error is not None:
            self._error += data[: KEPT_BODY - len(self._error)]
            data = self._shown() if last else b""
        if data or last:
            self._write_bytes(piece_response(RESPONSE_BODY, data, last=last))

    def _shown(self) -> bytes:
        """The server's error without the server's key, which it may contain."""
        assert self._error is not None
        return redacted(bytes(self._error), self._proxy.redact)

    def _refuse(self, error: ClientError) -> None:
        head = self._head
        self._proxy.refused_early(error, b"", head.path if head is not None else b"")
        self._stop(_immediate(error.status, error.body, error.headers))

    def _stop(self, message: Any) -> None:
        """Has Envoy answer the client with this message, and ends the stream."""
        self._write(message)
        self._finish()


def _ignore() -> None:
    """Does nothing: the call has no state."""


def _first(head: RequestHead, names: tuple[bytes, ...]) -> bytes:
    for name in names:
        value = head.get(name)
        if value is not None:
            return value
    return b""


def _header(name: str, value: bytes) -> HeaderValueOption:
    return HeaderValueOption(header=HeaderValue(key=name, raw_value=value), append_action=SET)


def _headers(lines: bytes) -> list[HeaderValueOption]:
    """Converts the data path's header lines."""
    found = []
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if colon:
            found.append(_header(name.decode("latin-1"), value))
    return found


def _immediate(status: int, body: bytes, lines: bytes) -> Any:
    headers = _headers(lines + b"content-type: application/json\r\n")
    return Response(
        immediate_response=messages.ImmediateResponse(
            status=HttpStatus(code=status),
            headers=messages.HeaderMutation(set_headers=headers),
            body=body,
        )
    )


def _refusal(request: PickedRequest) -> Any:
    return _immediate(request.refusal_status, request.refusal, request.refusal_headers)
