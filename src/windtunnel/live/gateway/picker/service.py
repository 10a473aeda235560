"""The Endpoint Picker: Envoy's external processing, with bodies streamed both ways.

Envoy sends the head and the body of a request, and holds it; the answer names the server to send it
to, and gives the body back. The server's answer passes through as well: so the same things are
known of a request as in a proxy, and the same decisions are made, by the same objects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct

from windtunnel.live.gateway.data_path.errors import KEPT_BODY, ClientError, redacted
from windtunnel.live.gateway.data_path.http import RequestHead
from windtunnel.live.gateway.data_path.picked import PICKED, STOPPED, UNDECIDED, PickedRequest
from windtunnel.live.gateway.data_path.proxy import ANSWERED_BY_SERVERS, KeyHolder
from windtunnel.live.gateway.data_path.responses import ASKED

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH: Final = "grpc.health.v1.Health"
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
"""The tenant of every fairness id after the first `MOST_TENANTS`."""
PIECE: Final = 48 << 10
"""Bytes of a body in one message; Envoy's own pieces are as large."""
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
SET: Final = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

Response = messages.ProcessingResponse
_log = logging.getLogger("windtunnel.gateway")


class PickerService:
    """Answers Envoy; one per gateway."""

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy: Final = proxy
        self._endpoints: Final[dict[str, int]] = {}
        self._seen_servers = 0
        self._tenants: Final[dict[str, int]] = {}

    def handlers(self) -> list[Any]:
        """What a gRPC server is given."""
        process = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=messages.ProcessingRequest.FromString,
            response_serializer=Response.SerializeToString,
        )
        check = grpc.unary_unary_rpc_method_handler(self._check)
        return [
            grpc.method_handlers_generic_handler(SERVICE, {"Process": process}),
            grpc.method_handlers_generic_handler(HEALTH, {"Check": check}),
        ]

    async def _check(self, request: bytes, _: Any) -> bytes:
        """Health: always alive; ready once a server is, and until the gateway stops."""
        if request[2:] == b"liveness":
            return SERVING
        ready = bool(self.proxy.core.models()) and not self.proxy.stopping
        return SERVING if ready else NOT_SERVING

    async def _process(self, _: Any, context: Any) -> None:
        await PickerStream(self, context.read, context.write).run()

    def endpoint(self, server: int) -> str:
        return self.proxy.pools[server].address.host_header.decode()

    def servers_at(self, endpoints: list[str]) -> list[int]:
        """Numbers of the servers at these addresses."""
        pools = self.proxy.pools
        while self._seen_servers < len(pools):
            self._endpoints[self.endpoint(self._seen_servers)] = self._seen_servers
            self._seen_servers += 1
        return sorted(self._endpoints[one] for one in endpoints if one in self._endpoints)

    def holder_of(self, head: RequestHead) -> KeyHolder:
        """Tenant and class: by the client's key, or by the headers that the mesh has set."""
        proxy = self.proxy
        if proxy.asks_keys:
            return proxy.identify(head)
        named = _first(head, FAIRNESS)
        tenant = self._tenant(named[:64].decode("ascii", "replace")) if named else 0
        objective = _first(head, OBJECTIVES)
        number = proxy.class_numbers.get(objective) if objective else None
        return KeyHolder(tenant, () if number is None else (number,))

    def _tenant(self, name: str) -> int:
        """The number of a tenant; ids beyond the limit share one, and are counted."""
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
    """One request in Envoy: its messages in, ours out, in the order that the protocol has."""

    def __init__(
        self,
        service: PickerService,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[Any], Awaitable[None]],
    ) -> None:
        self._service: Final = service
        self._proxy: Final = service.proxy
        self._read: Final = read
        self._write: Final = write
        self._task = asyncio.current_task()
        self._woken: asyncio.Future[None] | None = None
        self._head: RequestHead | None = None
        self._subset: list[str] | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._began_s = self._proxy.now_s()
        self._request: PickedRequest | None = None
        self._complete = False  # the whole request has come
        self._error: bytearray | None = None  # the server's, until it is whole

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            request = self._request
            if request is None or request.state != STOPPED or self._task is None:
                raise
            self._task.uncancel()
            await self._write(_refusal(request))
        except Exception as error:  # noqa: BLE001 - one request must not take down the others
            self._proxy.bug(error)
        finally:
            if self._request is not None:
                self._request.left()

    async def _run(self) -> None:
        until_s = asyncio.get_running_loop().time() + self._proxy.limits.request_s
        while True:
            try:
                async with asyncio.timeout_at(None if self._complete else until_s):
                    message = await self._read()
            except TimeoutError:
                await self._refuse(ClientError(408, "The request did not come in time."))
                return
            if message is grpc.aio.EOF:
                return
            kind = message.WhichOneof("request")
            if kind == "response_body":
                body = message.response_body
                await self._response_body(body.body, last=body.end_of_stream)
            elif kind == "response_headers":
                await self._response_headers(message.response_headers)
            elif kind == "response_trailers":
                if self._request is not None:
                    self._request.answer_ended()
                if self._error:
                    await self._write(Response(response_body=_body(self._shown(), last=False)))
                await self._write(Response(response_trailers=messages.TrailersResponse()))
            elif not await self._of_request(kind, message):
                return

    async def _of_request(self, kind: str | None, message: Any) -> bool:
        """A part of the request; whether the stream goes on."""
        if kind == "request_headers":
            self._take_head(message)
            return not message.request_headers.end_of_stream or await self._pick_any()
        if kind == "request_body":
            body = message.request_body
            return await self._request_body(body.body, last=body.end_of_stream)
        if kind == "request_trailers":
            if not await self._decide(trailers=True):
                return False
            await self._write(Response(request_trailers=messages.TrailersResponse()))
        return True

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

    async def _request_body(self, data: bytes, *, last: bool) -> bool:
        self._body_bytes += len(data)
        most = self._proxy.limits.body_bytes
        if self._body_bytes > most:
            await self._refuse(ClientError(413, f"The body is larger than {most} bytes."))
            return False
        self._body.append(data)
        return not last or await self._decide(trailers=False)

    async def _decide(self, *, trailers: bool) -> bool:
        """The request is here: waits until it is decided, and says so; whether it goes on."""
        self._complete = True
        head, body = self._head, b"".join(self._body)
        self._body = []
        assert head is not None
        path = head.path.partition(b"?")[0]
        if path not in ANSWERED_BY_SERVERS:
            return await self._pick_any(body)
        try:
            self._start(head, path, body)
        except ClientError as error:
            await self._refuse(error)
            return False
        request = self._request
        assert request is not None
        if request.state == UNDECIDED:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
            self._woken = None
        if request.state != PICKED:
            await self._write(_refusal(request))
            return False
        prefill = self._service.endpoint(request.prefill) if request.prefill >= 0 else ""
        extra = {"x-request-id": request.id.decode("latin-1")}
        await self._send(request.server, request.body, prefill, extra, trailers=trailers)
        return True

    def _start(self, head: RequestHead, path: bytes, body: bytes) -> None:
        proxy = self._proxy
        among: tuple[int, ...] = ()
        holder = self._service.holder_of(head)
        fields = proxy.read(head, path, body)
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
        """There is a decision about the request."""
        request = self._request
        assert request is not None
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        elif request.state == STOPPED and self._task is not None:
            self._task.cancel()

    async def _pick_any(self, body: bytes | None = None) -> bool:
        """What is not inference: decided without admission, and at once."""
        self._complete = True
        assert self._head is not None
        try:
            server = self._server_for(self._head)
        except ClientError as error:
            await self._refuse(error)
            return False
        await self._send(server, body, "", {}, trailers=False)
        return True

    def _server_for(self, head: RequestHead) -> int:
        """A stored answer is where it was made; models are asked of the least busy server."""
        proxy = self._proxy
        path = head.path.partition(b"?")[0]
        tenant = self._service.holder_of(head).tenant
        stored = ASKED.fullmatch(path)
        if stored is not None:
            return proxy.owner_of(head, stored.group(1), stored.group(2) or b"", tenant)
        is_models = path == b"/v1/models" or path.startswith(b"/v1/models/")
        if head.method != b"GET" or not (is_models or path == b"/health"):
            raise ClientError(404, "There is nothing at this path.")
        among = None
        if self._subset is not None:
            among = self._service.servers_at(self._subset)
        server = proxy.core.least_busy(among, proxy.now_s())
        if server is None:
            raise ClientError(503, "No server is ready.", code="no-server")
        return server

    async def _send(
        self,
        server: int,
        body: bytes | None,
        prefill: str,
        extra: dict[str, str],
        *,
        trailers: bool,
    ) -> None:
        endpoint = self._service.endpoint(server)
        extra[DESTINATION] = endpoint
        removed = list(NOT_FROM_CLIENTS)
        key = self._proxy.pools[server].address.key
        if key:
            extra["authorization"] = f"Bearer {key}"
        elif self._proxy.asks_keys:
            removed.append("authorization")  # it was for the gateway alone
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
        await self._write(
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
            await self._write(Response(request_body=_body(piece, last=last and not trailers)))
            if last:
                return

    # The answer.

    async def _response_headers(self, message: Any) -> None:
        status, kind = 0, b""
        for one in message.headers.headers:
            if one.key == ":status":
                status = int(one.raw_value or one.value)
            elif one.key == "content-type":
                kind = one.raw_value or one.value.encode()
        own: list[HeaderValueOption] = []
        self._error = bytearray() if status >= 400 else None
        request = self._request
        if request is not None:
            own = _headers(request.own_headers(request.reason))
            request.answer_began(status, is_stream=kind.startswith(b"text/event-stream"))
            if message.end_of_stream:
                request.answer_ended()
        changed = messages.HeaderMutation(set_headers=own, remove_headers=["content-length"])
        common = messages.CommonResponse(header_mutation=changed)
        await self._write(Response(response_headers=messages.HeadersResponse(response=common)))

    async def _response_body(self, data: bytes, *, last: bool) -> None:
        request = self._request
        if request is not None and not request.over:
            data = request.answer_data(data, last=last)
        if self._error is not None:
            self._error += data[: KEPT_BODY - len(self._error)]
            data = self._shown() if last else b""
        if data or last:
            await self._write(Response(response_body=_body(data, last=last)))

    def _shown(self) -> bytes:
        """The server's error without its key, which it may repeat."""
        assert self._error is not None
        return redacted(bytes(self._error), self._proxy.redact)

    async def _refuse(self, error: ClientError) -> None:
        head = self._head
        self._proxy.refused_early(error, b"", head.path if head is not None else b"")
        await self._write(_immediate(error.status, error.body, b""))


def _first(head: RequestHead, names: tuple[bytes, ...]) -> bytes:
    for name in names:
        value = head.get(name)
        if value is not None:
            return value
    return b""


def _header(name: str, value: bytes) -> HeaderValueOption:
    return HeaderValueOption(header=HeaderValue(key=name, raw_value=value), append_action=SET)


def _headers(lines: bytes) -> list[HeaderValueOption]:
    """Header lines as the data path writes them."""
    found = []
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if colon:
            found.append(_header(name.decode("latin-1"), value))
    return found


def _body(data: bytes, *, last: bool) -> Any:
    piece = messages.StreamedBodyResponse(body=data, end_of_stream=last)
    mutation = messages.BodyMutation(streamed_response=piece)
    return messages.BodyResponse(response=messages.CommonResponse(body_mutation=mutation))


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
