"""The Endpoint Picker: the messages of its protocol, and decisions that are those of the proxy."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.live.gateway.bed import (
    DONE,
    USAGE_EVENT,
    Bed,
    FakeServer,
    Received,
    answer,
    bed,
    chat,
    event,
    friendly,
    run,
)
from tests.live.gateway.test_clients import certificate
from windtunnel.core.errors import InputError
from windtunnel.live.gateway import program
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.discovery import read_list
from windtunnel.live.gateway.settings import read_settings

pytest.importorskip("grpc")
messages = pytest.importorskip("envoy.service.ext_proc.v3.external_processor_pb2")

import grpc  # noqa: E402
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue  # noqa: E402

from windtunnel.live.gateway.picker import grpc_server, service  # noqa: E402
from windtunnel.live.gateway.picker.pieces import (  # noqa: E402
    REQUEST_BODY,
    RESPONSE_BODY,
    answer_piece,
    piece_response,
)
from windtunnel.live.gateway.picker.service import PROCESS  # noqa: E402

PICKER = ("live.picker={listen: '127.0.0.1:0'}",)
DESTINATION = "x-gateway-destination-endpoint"


@given(st.binary(max_size=300) | st.binary(min_size=20_000, max_size=20_100), st.booleans())
def test_pieces_are_read_and_written_as_the_library_does(data: bytes, last: bool) -> None:
    body = messages.HttpBody(body=data, end_of_stream=last)
    sent = messages.ProcessingRequest(response_body=body).SerializeToString()
    assert answer_piece(sent) == (data, last)
    piece = messages.StreamedBodyResponse(body=data, end_of_stream=last)
    mutation = messages.BodyMutation(streamed_response=piece)
    common = messages.CommonResponse(body_mutation=mutation)
    part = messages.BodyResponse(response=common)
    for field, name in ((REQUEST_BODY, "request_body"), (RESPONSE_BODY, "response_body")):
        wanted = messages.ProcessingResponse(**{name: part}).SerializeToString()
        assert piece_response(field, data, last) == wanted


@given(st.binary(max_size=40), st.binary(max_size=4), st.integers(0, 44), st.booleans())
def test_what_is_read_as_a_piece_is_one_for_the_library(
    data: bytes,
    more: bytes,
    place: int,
    last: bool,
) -> None:
    """Any message that is damaged or longer is the same for both, or left to the library."""
    body = messages.HttpBody(body=data, end_of_stream=last)
    sent = messages.ProcessingRequest(response_body=body).SerializeToString()
    damaged = sent[:place] + more + sent[place + len(more) :]
    found = answer_piece(damaged)
    if found is not None:
        wanted = messages.ProcessingRequest.FromString(damaged)
        assert wanted.WhichOneof("request") == "response_body"
        assert found == (wanted.response_body.body, wanted.response_body.end_of_stream)


class FakeEnvoy:
    """One stream of external processing, in the order in which Envoy sends."""

    def __init__(self, it: Bed) -> None:
        self.out: asyncio.Queue[Any] = asyncio.Queue()
        self.over = asyncio.Event()
        service = it.program.picker
        assert service is not None
        handler = service.handler_of(PROCESS, cast("grpc_server.GrpcCall", self))
        assert handler is not None
        self._message, self._closed = handler

    def write(self, data: bytes) -> None:
        self.out.put_nowait(messages.ProcessingResponse.FromString(data))

    def finish(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Either side ends the stream."""
        if not self.over.is_set():
            self.over.set()
            self._closed()

    def send(self, **message: Any) -> None:
        self._message(messages.ProcessingRequest(**message).SerializeToString())

    def head(
        self,
        path: str = "/v1/chat/completions",
        method: str = "POST",
        *,
        end: bool = False,
        subset: list[str] | None = None,
        **headers: str,
    ) -> None:
        given = {":method": method, ":path": path, "content-type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        listed = [HeaderValue(key=name, raw_value=value.encode()) for name, value in given.items()]
        head = messages.HttpHeaders(headers=HeaderMap(headers=listed), end_of_stream=end)
        message = messages.ProcessingRequest(request_headers=head)
        if subset is not None:
            hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint["x-gateway-destination-endpoint-subset"] = subset
        self._message(message.SerializeToString())

    def body(self, data: bytes, *, last: bool = True) -> None:
        self.send(request_body=messages.HttpBody(body=data, end_of_stream=last))

    def ask(self, body: Any = None, **headers: str) -> None:
        self.head(**headers)  # type: ignore[arg-type]
        self.body(json.dumps(chat() if body is None else body).encode())

    async def next(self) -> Any:
        return await asyncio.wait_for(self.out.get(), 10)

    async def picked(self) -> tuple[str, bytes]:
        """The endpoint that was picked, and the body that comes back."""
        first = await self.next()
        assert first.WhichOneof("response") == "request_headers", first
        common = first.request_headers.response
        changes = {one.header.key: one.header for one in common.header_mutation.set_headers}
        named = changes[DESTINATION].raw_value.decode()
        assert common.clear_route_cache
        assert first.dynamic_metadata["envoy.lb"][DESTINATION] == named
        body, last = b"", False
        while not last:
            piece = (await self.next()).request_body.response.body_mutation.streamed_response
            body += piece.body
            last = piece.end_of_stream
        return named, body

    async def refused(self) -> Any:
        found = await self.next()
        assert found.WhichOneof("response") == "immediate_response", found
        return found.immediate_response

    def answer_head(self, status: int = 200, kind: str = "application/json") -> None:
        listed = [
            HeaderValue(key=":status", raw_value=str(status).encode()),
            HeaderValue(key="content-type", raw_value=kind.encode()),
        ]
        self.send(response_headers=messages.HttpHeaders(headers=HeaderMap(headers=listed)))

    async def answer(self, *pieces: bytes, stream: bool = False, status: int = 200) -> bytes:
        """A whole answer of the server; what of it goes to the client."""
        self.answer_head(status, kind="text/event-stream" if stream else "application/json")
        assert (await self.next()).WhichOneof("response") == "response_headers"
        for piece in pieces:
            self.send(response_body=messages.HttpBody(body=piece))
        self.send(response_body=messages.HttpBody(end_of_stream=True))
        body, last = b"", False
        while not last:
            found = (await self.next()).response_body.response.body_mutation.streamed_response
            body += found.body
            last = found.end_of_stream
        return body

    async def end(self) -> None:
        self.leave()


async def known(it: Bed, count: int) -> None:
    await it.until(lambda: len(it.core.requests) == count)


async def gone(it: Bed, number: int) -> None:
    await it.until(lambda: number not in it.core.requests)


def endpoint(server: FakeServer) -> str:
    return f"127.0.0.1:{server.port}"


def test_a_request_in_pieces_is_picked_at_its_end_and_comes_back_whole() -> None:
    async def test() -> None:
        async with bed(friendly, friendly, sets=PICKER) as it:
            large = chat() | {"messages": [{"role": "user", "content": "x" * 200_000}]}
            sent = json.dumps(large).encode()
            envoy = FakeEnvoy(it)
            envoy.head()
            for start in range(0, len(sent), 40_000):
                assert envoy.out.empty()
                envoy.body(sent[start : start + 40_000], last=False)
            envoy.body(b"")
            named, body = await envoy.picked()
            assert named in [endpoint(one) for one in it.servers]
            assert body == sent
            assert sum(one.in_flight for one in it.core.servers) == 1
            assert await envoy.answer(
                b'{"usage": {"prompt_tokens": 50000,', b'"completion_tokens": 2}}'
            )
            await envoy.end()
            model = it.program.proxy.metrics.of("m")
            assert (model.prompt_tokens, model.output_tokens) == (50_000, 2)
            it.settled()

    run(test())


def test_the_usage_of_a_stream_is_asked_for_and_taken_out_again() -> None:
    async def test() -> None:
        async with bed(friendly, sets=PICKER) as it:
            envoy = FakeEnvoy(it)
            envoy.ask(chat(stream=True))
            _, body = await envoy.picked()
            assert json.loads(body)["stream_options"] == {"include_usage": True}
            got = await envoy.answer(
                event("a")[:20], event("a")[20:], USAGE_EVENT + DONE, stream=True
            )
            assert got == event("a") + DONE
            await envoy.end()
            assert it.program.proxy.metrics.of("m").output_tokens == 3
            it.settled()

    run(test())


def test_what_is_not_inference_is_picked_at_its_head_and_trailers_pass() -> None:
    async def test() -> None:
        async with bed(friendly, friendly, sets=PICKER) as it:
            envoy = FakeEnvoy(it)
            envoy.head("/v1/models", "GET", end=True)
            found = await envoy.next()
            changes = found.request_headers.response.header_mutation.set_headers
            assert [one.header.key for one in changes] == [DESTINATION]
            envoy.answer_head()
            assert (await envoy.next()).WhichOneof("response") == "response_headers"
            envoy.send(response_body=messages.HttpBody(body=b"x"))
            assert (await envoy.next()).WhichOneof("response") == "response_body"
            envoy.send(response_trailers=messages.HttpTrailers())
            assert (await envoy.next()).WhichOneof("response") == "response_trailers"
            await envoy.end()

            envoy = FakeEnvoy(it)
            envoy.head()
            envoy.body(json.dumps(chat()).encode(), last=False)
            envoy.send(request_trailers=messages.HttpTrailers())
            kinds = [(await envoy.next()).WhichOneof("response") for _ in range(3)]
            assert kinds == ["request_headers", "request_body", "request_trailers"]
            envoy.answer_head()
            await envoy.next()
            envoy.send(response_trailers=messages.HttpTrailers())
            await envoy.next()
            await envoy.end()
            it.settled()

    run(test())


def test_stored_responses_are_asked_of_their_server_and_other_paths_are_404() -> None:
    async def test() -> None:
        async with bed(friendly, friendly, sets=PICKER) as it:
            envoy = FakeEnvoy(it)
            envoy.head("/v1/responses")
            envoy.body(json.dumps({"model": "m", "input": "x"}).encode())
            made_by, _ = await envoy.picked()
            await envoy.answer(b'{"id": "resp_7", "object": "response"}')
            await envoy.end()
            for _ in range(3):
                envoy = FakeEnvoy(it)
                envoy.head("/v1/responses/resp_7", "GET", end=True)
                found = await envoy.next()
                (change,) = found.request_headers.response.header_mutation.set_headers
                assert change.header.raw_value.decode() == made_by
                await envoy.end()
            for method, path in (
                ("GET", "/v1/responses/resp_8"),
                ("GET", "/metrics"),
                ("POST", "/sleep"),
                ("POST", "/v1/load_lora_adapter"),
            ):
                envoy = FakeEnvoy(it)
                envoy.head(path, method, end=True)
                assert (await envoy.refused()).status.code == 404
                await envoy.end()
            it.settled()

    run(test())


def test_the_server_that_computes_a_prompt_is_named_to_the_sidecar(tmp_path: Path) -> None:
    async def test() -> None:
        prefill = await FakeServer().start()
        file = tmp_path / "gateway.yaml"
        file.write_text(f"live: {{servers: [{{url: '{prefill.url}', role: prefill}}]}}")
        sets = (*PICKER, f"live.log={tmp_path / 'log'}")
        async with bed(friendly, config=file, sets=sets, ready=False) as it:
            await it.until(
                lambda: (
                    len(it.core.servers) == 2
                    and all(one.availability.healthy for one in it.core.servers)
                )
            )
            envoy = FakeEnvoy(it)
            envoy.ask()
            found = (await envoy.next()).request_headers.response.header_mutation
            named = {one.header.key: one.header.raw_value.decode() for one in found.set_headers}
            assert named[DESTINATION] == endpoint(it.servers[0])
            assert named["x-prefiller-host-port"] == endpoint(prefill)
            assert "x-data-parallel-rank" in found.remove_headers
            await envoy.next()
            assert [one.in_flight for one in it.core.servers] == [1, 1]
            await envoy.answer(answer())
            await envoy.end()
            envoy = FakeEnvoy(it)
            envoy.ask()
            await envoy.picked()
            await envoy.answer(b"{}", status=500)
            await envoy.end()
            it.settled()
        await prefill.stop()

    run(test())
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    told = [line["data"]["good"] for line in lines if line["kind"] == "request.prefilled"]
    assert told == [True, False]


def test_keys_of_clients_are_asked_for_and_replaced_by_that_of_the_server(tmp_path: Path) -> None:
    keys = {"CLIENT_KEY": "sk-of-a-client", "SERVER_KEY": "sk-of-the-server"}

    async def test() -> None:
        guarded = await FakeServer().start()
        file = tmp_path / "gateway.yaml"
        file.write_text(
            f"live:\n  servers: [{{url: '{guarded.url}', key_env: SERVER_KEY}}]\n"
            "  clients: [{key_env: CLIENT_KEY, tenant: a}]\n"
        )
        async with bed(config=file, environment=keys, sets=PICKER, ready=False) as it:
            await it.until(
                lambda: (
                    len(it.core.servers) == 2
                    and all(one.availability.healthy for one in it.core.servers)
                )
            )
            for path, method in (("/v1/chat/completions", "POST"), ("/v1/models", "GET")):
                envoy = FakeEnvoy(it)
                envoy.head(path, method, end=method == "GET", authorization="Bearer wrong")
                envoy.body(json.dumps(chat()).encode())
                assert (await envoy.refused()).status.code == 401
                await envoy.end()
            for server, wanted in ((guarded, "Bearer sk-of-the-server"), (it.servers[0], None)):
                envoy = FakeEnvoy(it)
                envoy.head(subset=[endpoint(server)], authorization="Bearer sk-of-a-client")
                envoy.body(json.dumps(chat()).encode())
                found = (await envoy.next()).request_headers.response.header_mutation
                named = {one.header.key: one.header.raw_value.decode() for one in found.set_headers}
                assert named.get("authorization") == wanted
                assert ("authorization" in found.remove_headers) == (wanted is None)
                await envoy.next()
                assert b"sk-of" not in await envoy.answer(b"not sk-of-", b"the-server", status=403)
                await envoy.end()
            it.settled()
        await guarded.stop()

    run(test())


def test_a_port_that_is_taken_is_a_sentence() -> None:
    async def test() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1:{port}"):
            async with bed(
                sets=(f"live.picker={{listen: '127.0.0.1:{port}'}}",), ready=False
            ) as it:
                await it.until(lambda: False, 0.2)
        taken.close()

    run(test())


def test_a_subset_limits_the_choice_and_one_without_servers_is_503() -> None:
    async def test() -> None:
        async with bed(friendly, friendly, friendly, sets=PICKER) as it:
            for server in it.servers:
                for _ in range(2):
                    envoy = FakeEnvoy(it)
                    envoy.head(subset=["10.0.0.1:80", endpoint(server)])
                    envoy.body(json.dumps(chat()).encode())
                    assert (await envoy.picked())[0] == endpoint(server)
                    await envoy.answer(b"{}")
                    await envoy.end()
            for subset in (["10.0.0.1:80"], []):
                envoy = FakeEnvoy(it)
                envoy.head(subset=subset)
                envoy.body(json.dumps(chat()).encode())
                refused = await envoy.refused()
                assert (refused.status.code, json.loads(refused.body)["error"]["code"]) == (
                    503,
                    "no-server",
                )
                await envoy.end()
            it.servers[0].healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            envoy = FakeEnvoy(it)
            envoy.head(subset=[endpoint(it.servers[0])])
            envoy.body(json.dumps(chat()).encode())
            assert (await envoy.refused()).status.code == 503
            await envoy.end()
            it.settled()

    run(test())


FLOW = "serving.admission={policy: flow-control, detector: {kind: concurrency, max_per_server: 1}"


def test_requests_are_held_refused_and_given_up() -> None:
    async def test() -> None:
        async with bed(friendly, sets=(*PICKER, f"{FLOW}, max_waiting: 1}}")) as it:
            first, second, third = FakeEnvoy(it), FakeEnvoy(it), FakeEnvoy(it)
            first.ask()
            await first.picked()
            second.ask()
            await it.until(lambda: len(it.core.requests) == 2)
            third.ask()
            refused = await third.refused()
            assert (refused.status.code, json.loads(refused.body)["error"]["code"]) == (
                429,
                "queue-full",
            )
            headers = {one.header.key for one in refused.headers.set_headers}
            assert headers == {"content-type", "retry-after", "x-request-id"}
            second.leave()
            await it.until(lambda: len(it.core.requests) == 1)
            bad = FakeEnvoy(it)
            bad.ask({"model": "none"})
            assert (await bad.refused()).status.code == 404
            await first.answer(b"{}")
            for envoy in (first, third, bad):
                await envoy.end()
            it.settled()
            outcomes = {key[1:]: n for key, n in it.program.proxy.metrics.outcomes.items()}
            assert outcomes[("client_left", "the client left")] == 1
            assert outcomes[("rejected", "queue-full")] == 1

    run(test())


def test_an_answer_that_makes_way_is_stopped_by_the_picker() -> None:
    async def test() -> None:
        async with bed(friendly, sets=(*PICKER, f"{FLOW}, eviction: true}}")) as it:
            low, high = FakeEnvoy(it), FakeEnvoy(it)
            low.ask(chat(stream=True), x_slo_class="batch")
            await low.picked()
            low.answer_head(kind="text/event-stream")
            await low.next()
            low.send(response_body=messages.HttpBody(body=event("one")))
            await low.next()
            high.ask(x_slo_class="critical")
            assert (await low.refused()).status.code == 429
            await low.over.wait()
            await high.picked()
            await high.answer(b"{}")
            await high.end()
            it.settled()

    run(test())


def test_objectives_and_fairness_ids_are_classes_and_tenants(tmp_path: Path) -> None:
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(
        "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: gold}\n"
        "spec: {priority: 7, poolRef: {name: p}}\n---\napiVersion: v1\nkind: Service\n"
        "metadata: {name: other}\n"
    )
    log = tmp_path / "log"
    sets = (
        f"live.picker={{listen: '127.0.0.1:0', manifests: [{manifest}]}}",
        f"live.log={log}",
        f"{FLOW}}}",
    )

    async def test() -> None:
        async with bed(friendly, sets=sets) as it:
            streams = [FakeEnvoy(it) for _ in range(4)]
            streams[0].ask()
            await streams[0].picked()
            for number, name in ((1, ""), (2, "gold"), (3, "unknown")):
                more = {"x-gateway-inference-objective": name} if name else {}
                streams[number].ask(**more, x_gateway_inference_fairness_id=f"team-{number}")
                await known(it, number + 1)
            await streams[0].answer(b"{}")
            for number in (2, 1, 3):
                await streams[number].picked()
                await streams[number].answer(b"{}")
            for envoy in streams:
                await envoy.end()
            assert it.core.policies.tenants == ["default", "team-1", "team-2", "team-3"]
            it.settled()

    run(test())
    assert audit(log).difference == ""


@pytest.mark.parametrize(
    ("text", "server", "said"),
    [
        ("kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\nmetadata: {name: p}\n"
         "spec: {selector: {}, targetPorts: [{number: 8000}]}\n",
         "http://10.0.0.1:8001", "8000"),
        ("kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\nmetadata: {name: p}\n"
         "spec: {selector: {}, targetPorts: []}\n", "http://10.0.0.1:8001", "targetPorts"),
        ("kind: InferencePol\napiVersion: inference.networking.k8s.io/v1\n",
         "http://10.0.0.1:8001", "InferencePool"),
        ("", "http://server:8000", "not an IP address"),
    ],
)  # fmt: skip
def test_bad_manifests_and_names_are_sentences(
    tmp_path: Path, text: str, server: str, said: str
) -> None:
    listed = "[]"
    if text:
        (tmp_path / "pool.yaml").write_text(text)
        listed = f"[{tmp_path / 'pool.yaml'}]"
    with pytest.raises(InputError, match=said):
        read_settings(None, [f"live.picker={{manifests: {listed}}}"], [server])


def test_files_and_names_of_servers_have_to_fit_the_picker(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(
        "kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\nmetadata: {name: p}\n"
        "spec: {selector: {}, targetPorts: [{number: 8000}]}\n"
    )
    picker = f"live.picker={{manifests: [{tmp_path / 'pool.yaml'}]}}"
    named = "live.servers_dns=[{name: vllm, port: 8001}]"
    with pytest.raises(InputError, match="InferencePool: 8000"):
        read_settings(None, [picker, named], [])
    listed = tmp_path / "servers"
    for text, said in (("http://vllm:8000", "not an IP"), ("http://10.0.0.1:8001", "8000")):
        listed.write_text(f"http://10.0.0.1:8000\n{text}\n")
        found = read_settings(None, [picker, f"live.servers_file={listed}"], [])
        with pytest.raises(InputError, match=said) as error:
            program.GatewayProgram(found, {}, pytest.fail)
        assert str(error.value).startswith(f"{listed}:2")
        read_list(str(listed), found._replace(ports=None).fault_of)


def test_ids_beyond_the_limit_share_a_tenant_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "MOST_TENANTS", 3)

    async def test() -> None:
        async with bed(friendly, sets=PICKER) as it:
            for name in ("a", "b", "c", "a", "d"):
                envoy = FakeEnvoy(it)
                envoy.ask(x_gateway_inference_fairness_id=name)
                await envoy.picked()
                await envoy.answer(answer())
                await envoy.end()
            assert it.core.policies.tenants == ["default", "a", "b", "(others)"]
            assert it.program.proxy.metrics.overflowed_tenants == 2
            it.settled()

    run(test())


# Limits.


def test_a_request_that_does_not_come_is_408() -> None:
    async def test() -> None:
        async with bed(sets=(*PICKER, "live.limits.request=100ms")) as it:
            envoy = FakeEnvoy(it)
            envoy.head()
            envoy.body(b"{", last=False)
            assert (await envoy.refused()).status.code == 408
            await envoy.over.wait()
            it.settled()

    run(test())


@pytest.mark.parametrize("begun", [False, True])
def test_an_answer_that_does_not_come_or_stands_still_is_504(*, begun: bool) -> None:
    limits = ("live.limits.first_byte=200ms", "live.limits.silence=200ms")

    async def test() -> None:
        async with bed(sets=(*PICKER, *limits)) as it:
            envoy = FakeEnvoy(it)
            envoy.ask(chat(stream=True))
            await envoy.picked()
            if begun:
                envoy.answer_head(kind="text/event-stream")
                assert (await envoy.next()).WhichOneof("response") == "response_headers"
            assert (await envoy.refused()).status.code == 504
            await envoy.over.wait()
            ((_, outcome, _),) = it.program.proxy.metrics.outcomes
            assert outcome == ("timed_out" if begun else "failed")
            it.settled()

    run(test())


def test_streams_of_envoy_have_the_limit_of_connections() -> None:
    async def test() -> None:
        sets = (*PICKER, "live.limits.connections=1")
        async with bed(sets=sets) as it:
            address = f"127.0.0.1:{it.program.picker_port}"
            async with grpc.aio.insecure_channel(address) as channel:
                process = channel.stream_stream(
                    f"/{service.SERVICE}/Process",
                    request_serializer=messages.ProcessingRequest.SerializeToString,
                    response_deserializer=messages.ProcessingResponse.FromString,
                )
                first = process()
                await first.write(messages.ProcessingRequest())
                await asyncio.sleep(0.2)
                second = process()
                assert await second.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                first.cancel()

    run(test())


def test_envoy_is_answered_with_tls_as_http_2(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    sets = (*PICKER, f"live.certificate={cert}", f"live.certificate_key={key}")
    trusted = ssl.create_default_context(cafile=str(cert))
    trusted.set_alpn_protocols(["h2"])

    async def test() -> None:
        async with bed(sets=sets, ready=False) as it:
            await it.until(lambda: it.program.picker is not None)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", it.program.picker_port, ssl=trusted
            )
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            writer.write(grpc_server.PREFACE)
            head = await reader.readexactly(9)
            assert head[3] == grpc_server.SETTINGS
            writer.close()

    run(test())


# The same decisions.

Op = tuple[str, int, int, int, bool]


class ThroughProxy:
    """Requests over sockets; each is answered when its turn has come."""

    def __init__(self) -> None:
        self.go: dict[str, asyncio.Event] = {}
        self.it: Bed
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    async def script(
        self, received: Received, writer: asyncio.StreamWriter, server: FakeServer
    ) -> None:
        await self.go[received.json["user"]].wait()
        await friendly(received, writer, server)

    async def start(self, number: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.go[f"{number}"] = asyncio.Event()
        before = self.it.program.proxy.arrived
        self._tasks[number] = asyncio.ensure_future(self.it.ask(body, headers=headers))
        await self.it.until(lambda: self.it.program.proxy.arrived > before)

    async def finish(self, number: int) -> None:
        self.go[f"{number}"].set()
        await self._tasks[number]


class ThroughPicker:
    """The same requests over streams of external processing."""

    def __init__(self) -> None:
        self.it: Bed
        self._streams: dict[int, FakeEnvoy] = {}
        self._stream: dict[int, bool] = {}
        self.script = friendly

    async def start(self, number: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        envoy = self._streams[number] = FakeEnvoy(self.it)
        self._stream[number] = body["stream"]
        before = self.it.program.proxy.arrived
        envoy.ask(body, **headers)
        await self.it.until(lambda: self.it.program.proxy.arrived > before)

    async def finish(self, number: int) -> None:
        envoy = self._streams[number]
        first = await envoy.next()
        if first.WhichOneof("response") == "immediate_response":
            await envoy.end()
            return
        await envoy.next()
        pieces = (
            (event("one") + event("two"), USAGE_EVENT, DONE)
            if self._stream[number]
            else (answer(),)
        )
        await envoy.answer(*pieces, stream=self._stream[number])
        await envoy.end()


def ops() -> st.SearchStrategy[list[Op]]:
    """Starts and ends of requests: prompt, class, session, stream."""
    one = st.tuples(
        st.sampled_from(["start", "start", "finish"]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(0, 2),
        st.booleans(),
    )
    return st.lists(one, min_size=5, max_size=25)


async def decided(way: Any, chosen: list[Op], sets: tuple[str, ...], log: Path) -> list[Any]:
    """The decisions about a sequence of requests that go that way."""
    async with bed(*[way.script] * 3, sets=(*sets, f"live.log={log}")) as it:
        way.it = it
        running: list[int] = []
        number = 0
        for kind, prompt, slo, session, stream in chosen:
            if kind == "start":
                text = f"{prompt} says " * 300
                messages_ = [{"role": "user", "content": text}]
                body = chat(stream=stream, user=f"{number}") | {"messages": messages_}
                classes = ("standard", "critical", "batch")
                headers = {"x-slo-class": classes[slo], "x-session-id": f"s{session}"}
                await way.start(number, body, headers)
                running.append(number)
                number += 1
            elif running:
                sent = [
                    n for n in running if n in it.core.requests and it.core.requests[n].state == 2
                ]
                if sent:
                    running.remove(sent[0])
                    await way.finish(sent[0])
                    await gone(it, sent[0])
        while running:
            ready = [
                n for n in running if n not in it.core.requests or it.core.requests[n].state == 2
            ]
            running.remove(ready[0])
            await way.finish(ready[0])
            await gone(it, ready[0])
        it.settled()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    kinds = ("request.admitted", "request.queued", "request.rejected", "request.evicted")
    return [
        (line["kind"], line["subject"], line.get("reason"), line.get("data"))
        for line in lines
        if line["kind"] in (*kinds, "request.routed", "request.arrived")
        and line["data"].pop("prefix_keys", 1)
    ]


@pytest.mark.parametrize(
    "router", ["{policy: weighted, cache_delay: 0s}", "{policy: session-sticky}"]
)
@settings(max_examples=5, deadline=None)
@given(chosen=ops())
def test_proxy_and_picker_decide_the_same(
    tmp_path_factory: pytest.TempPathFactory, router: str, chosen: list[Op]
) -> None:
    sets = (
        *PICKER,
        f"serving.router={router}",
        "serving.admission={policy: flow-control, max_waiting: 6, "
        "detector: {kind: concurrency, max_per_server: 2}}",
        "live.scrape.interval=1h",
        "live.health.interval=1h",
        "live.breaker.consecutive=1000",
    )
    folder = tmp_path_factory.mktemp("logs")

    async def test() -> None:
        proxied = await decided(ThroughProxy(), chosen, sets, folder / "proxy")
        picked = await decided(ThroughPicker(), chosen, sets, folder / "picker")
        assert picked == proxied

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(program, "fresh_seed", lambda: 7)
        run(test())
