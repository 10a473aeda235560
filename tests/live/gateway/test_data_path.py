"""Bytes in and out: answers pass unchanged, bad requests are refused, nothing leaks."""

import asyncio
import contextlib
import json

import pytest

from tests.live.gateway.bed import (
    DONE,
    STREAM_HEAD,
    USAGE_EVENT,
    FakeServer,
    Received,
    answer,
    bed,
    chat,
    chunk,
    event,
    friendly,
    read_answer,
    request,
    run,
    whole,
)


def test_an_answer_passes_unchanged_with_a_request_id() -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask()
            assert (got.status, got.body) == (200, answer())
            assert got.headers["x-request-id"].startswith("wt-")
            assert it.servers[0].requests[0].headers["x-request-id"] == got.headers["x-request-id"]
            kept = await it.ask(headers={"X-Request-Id": "mine-7"})
            assert kept.headers["x-request-id"] == "mine-7"
            it.settled()

    run(test())


def test_chunks_of_a_stream_pass_one_by_one_and_done_is_last() -> None:
    go = asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(STREAM_HEAD + chunk(event("one")))
        await writer.drain()
        await go.wait()
        writer.write(chunk(event("two")) + chunk(USAGE_EVENT) + chunk(DONE) + b"0\r\n\r\n")

    async def test() -> None:
        async with bed(slow) as it:
            reader, writer = await it.open(chat(stream=True))
            await reader.readuntil(b"\r\n\r\n")
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            assert await reader.readexactly(size + 2) == event("one") + b"\r\n"
            go.set()
            rest = await reader.readuntil(b"0\r\n\r\n")
            assert b"two" in rest
            assert rest.rstrip(b"0\r\n").endswith(b"[DONE]")
            writer.close()
            await it.until(lambda: not it.core.requests)
            it.settled()

    run(test())


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 50, 10_000])
def test_bytes_are_the_same_however_the_server_cuts_them(piece: int) -> None:
    body = event("a") + event("b\\u00e9") + event("c") + DONE

    async def cut(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        data = STREAM_HEAD + chunk(body) + b"0\r\n\r\n"
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()

    async def test() -> None:
        async with bed(cut) as it:
            got = await it.ask(chat(stream=True))
            assert got.whole
            assert got.body == body
            it.settled()

    run(test())


@pytest.mark.parametrize("piece", [3, 10_000])
@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_usage_is_asked_for_and_taken_out_again(
    piece: int, options: dict[str, bool] | None
) -> None:
    async def counting(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
        assert received.json["stream_options"] == {"include_usage": True}
        assert received.json["messages"] == chat()["messages"]
        data = STREAM_HEAD + chunk(event("a") + USAGE_EVENT + DONE) + b"0\r\n\r\n"
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()

    async def test() -> None:
        async with bed(counting) as it:
            more = {} if options is None else {"stream_options": options}
            got = await it.ask(chat(stream=True, **more))
            wanted = USAGE_EVENT if options and options["include_usage"] else b""
            assert got.body == event("a") + wanted + DONE
            model = it.program.proxy.metrics.of("m")
            assert (model.prompt_tokens, model.output_tokens) == (7, 3)

    run(test())


def test_events_of_responses_keep_their_lines_and_get_no_done() -> None:
    body = b'event: response.created\ndata: {"x":1}\n\nevent: response.completed\ndata: {"y":2}\n\n'

    async def responses(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(STREAM_HEAD + chunk(body) + b"0\r\n\r\n")

    async def test() -> None:
        async with bed(responses) as it:
            asked = {"model": "m", "input": "hi", "stream": True}
            got = await it.ask(asked, path="/v1/responses")
            assert (got.body, got.whole) == (body, True)
            assert it.servers[0].requests[0].json == asked

    run(test())


def test_unknown_fields_are_forwarded_as_they_were_written() -> None:
    async def test() -> None:
        async with bed() as it:
            body = b'{ "model": "m", "odd": [1, 2.50, {"x": null}], "messages": [] }'
            assert (await it.ask(body)).status == 200
            assert it.servers[0].requests[0].body == body

    run(test())


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{", 400, None, None),
        (b"[]", 400, None, None),
        (b"\xff\xfe", 400, None, None),
        (b"{}", 400, None, "model"),
        (b'{"model": 3}', 400, None, "model"),
        (b'{"model": "m", "max_tokens": "x"}', 400, None, "max_tokens"),
        (b'{"model": "other"}', 404, "model_not_found", "model"),
    ],
)
def test_bad_bodies_are_refused_without_asking_a_server(
    body: bytes, status: int, code: str | None, param: str | None
) -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask(body)
            error = got.json["error"]
            assert (got.status, error["code"], error["param"]) == (status, code, param)
            assert error["type"] == "invalid_request_error"
            assert not it.servers[0].requests

    run(test())


def test_an_adapter_is_routed_to_its_base_model_under_its_own_name() -> None:
    async def test() -> None:
        async with bed(friendly, ready=False) as it:
            it.servers[0].models = [{"id": "m"}, {"id": "tuned", "parent": "m"}]
            await it.until(lambda: it.core.knows("tuned"))
            assert (await it.ask(chat() | {"model": "tuned"})).status == 200
            assert it.servers[0].requests[0].json["model"] == "tuned"
            assert list(it.core.planes) == ["m"]

    run(test())


def test_an_adapter_goes_to_the_servers_that_list_it() -> None:
    async def test() -> None:
        sets = ("serving.router.policy=round-robin",)
        async with bed(friendly, friendly, friendly, sets=sets, ready=False) as it:
            tuned = [{"id": "m"}, {"id": "tuned", "parent": "m"}]
            it.servers[0].models = it.servers[2].models = tuned
            await it.until(lambda: sum("tuned" in one.listed for one in it.core.servers) == 2)
            await it.until(lambda: len(it.core.planes["m"].candidates) == 3)
            for _ in range(4):
                assert (await it.ask(chat() | {"model": "tuned"})).status == 200
            assert [len(one.requests) for one in it.servers] == [2, 0, 2]
            for _ in range(3):
                assert (await it.ask()).status == 200
            assert len(it.servers[1].requests) == 1
            it.settled()

    run(test())


def test_models_of_servers_that_differ_are_listed_once_each() -> None:
    async def test() -> None:
        async with bed(friendly, friendly, ready=False) as it:
            it.servers[0].models = [{"id": "m"}, {"id": "a", "parent": "m"}]
            it.servers[1].models = [{"id": "n"}, {"id": "m"}]
            await it.until(lambda: it.core.knows("n") and it.core.knows("a"))
            got = await it.ask(path="/v1/models", method="GET")
            assert [card["id"] for card in got.json["data"]] == ["a", "m", "n"]
            one = await it.ask(path="/v1/models/a", method="GET")
            assert one.json["parent"] == "m"
            missing = await it.ask(path="/v1/models/z", method="GET")
            assert (missing.status, missing.json["error"]["code"]) == (404, "model_not_found")
            await it.ask(chat() | {"model": "n"})
            assert len(it.servers[1].requests) == 1

    run(test())


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/sleep",
        "//v1/chat/completions",
        "/v1/..%2fmetrics",
        "/v1/load_lora_adapter",
        "/V1/chat/completions",
        "http://other/sleep",
    ],
)
def test_other_paths_are_never_forwarded(path: str) -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask(path=path)
            assert got.status == 404
            assert not it.servers[0].requests

    run(test())


HOSTILE = {
    "length and chunks": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
    b"Content-Length: 3\r\n\r\n{} ",
    "folded header": b"POST / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "underscore": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nx_y: b\r\n\r\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "bare line feed": b"GET /v1/models HTTP/1.1\nHost: a\n\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_plain_http_is_refused_and_closed(kind: str) -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.raw(HOSTILE[kind])
            assert got.startswith(b"HTTP/1.1 400 ")
            assert b"connection: close" in got
            assert not it.servers[0].requests
            assert (await it.ask()).status == 200
            it.settled()

    run(test())


def test_the_second_of_two_smuggled_requests_is_not_sent() -> None:
    async def test() -> None:
        async with bed() as it:
            hidden = request(path="/sleep")
            got = await it.raw(HOSTILE["length and chunks"] + hidden)
            assert got.count(b"HTTP/1.1 ") == 1
            assert not it.servers[0].requests

    run(test())


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    async def test() -> None:
        async with bed(sets=("live.limits.body=64KiB",)) as it:
            start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
            declared = start + b"Content-Length: 65537\r\n\r\n"
            assert (await it.raw(declared)).startswith(b"HTTP/1.1 413 ")
            chunked = start + b"Transfer-Encoding: chunked\r\n\r\n"
            got = await it.raw(chunked + chunk(b"x" * 40_000) + chunk(b"x" * 40_000))
            assert got.startswith(b"HTTP/1.1 413 ")
            assert not it.servers[0].requests

    run(test())


def test_a_large_head_and_many_headers_are_refused() -> None:
    async def test() -> None:
        async with bed(sets=("live.limits.head=4KiB",)) as it:
            start = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n"
            assert (await it.raw(start + b"X: " + b"y" * 5000)).startswith(b"HTTP/1.1 431 ")
            many = b"".join(b"x-%d: 1\r\n" % number for number in range(200))
            assert (await it.raw(start + many + b"\r\n")).startswith(b"HTTP/1.1 431 ")
            long = b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
            assert (await it.raw(long)).startswith(b"HTTP/1.1 431 ")

    run(test())


@pytest.mark.parametrize(("size", "status"), [(65_000, 200), (66_000, 431), (120_000, 431)])
@pytest.mark.parametrize("headers", [1, 100])
@pytest.mark.parametrize("first", [100, 60_000, 200_000])
def test_a_head_over_its_limit_never_passes_however_it_is_cut(
    size: int, status: int, headers: int, first: int
) -> None:
    async def test() -> None:
        async with bed() as it:
            asked = large_head(size, headers)
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(asked[:first])
            await asyncio.sleep(0.02)
            writer.write(asked[first:])
            assert (await read_answer(reader)).status == status
            writer.close()

    run(test())


@pytest.mark.parametrize("size", [65_000, 66_000])
def test_a_head_that_was_sent_ahead_has_the_same_limit(size: int) -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.raw(request() + large_head(size, 1, b"connection: close\r\n"))
            assert got.count(b"HTTP/1.1 200 ") == (2 if size < 65_536 else 0)
            assert it.program.proxy.metrics.bugs == 0

    run(test())


def large_head(size: int, headers: int, more: bytes = b"") -> bytes:
    line = b"x-%d: " + b"y" * (size // headers - 10) + b"\r\n"
    many = b"".join(line % number for number in range(headers))
    return b"GET /v1/models HTTP/1.1\r\nHost: a\r\n" + many + more + b"\r\n"


def test_a_head_that_was_sent_ahead_is_not_kept_without_end() -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def waits(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
            await go.wait()
            writer.write(whole(answer()))

        async with bed(waits) as it:
            reader, writer = await it.open()
            await it.until(lambda: it.core.servers[0].in_flight == 1)
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nx: ")
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    writer.write(b"y" * 10_000)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                assert await reader.read() == b""
            await it.until(lambda: it.core.servers[0].in_flight == 0)
            assert writer.transport.is_closing()
            it.settled()

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/embeddings", "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/v1/responses/resp_1", "GET, DELETE"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(
    method: str, path: str, allowed: str
) -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask(method=method, path=path)
            assert (got.status, got.headers["allow"]) == (405, allowed)
            assert got.json["error"]["type"] == "invalid_request_error"

    run(test())


def test_a_slow_head_is_closed_in_time_and_others_are_unharmed() -> None:
    async def test() -> None:
        async with bed(sets=("live.limits.request=300ms",)) as it:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)

            async def drip() -> None:
                for letter in b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n":
                    writer.write(bytes((letter,)))
                    await asyncio.sleep(0.02)

            dripping = asyncio.ensure_future(drip())
            assert (await it.ask()).status == 200
            got = await reader.read()
            assert got.startswith(b"HTTP/1.1 408 ")
            dripping.cancel()
            writer.close()

    run(test())


def test_a_client_that_reads_nothing_is_cut_off_in_bounded_memory() -> None:
    async def flood(_: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        writer.write(STREAM_HEAD)
        for _piece in range(4000):
            writer.write(chunk(event("x" * 8000)))
            await writer.drain()
            server.sent = getattr(server, "sent", 0) + 8000  # type: ignore[attr-defined]
        writer.write(chunk(DONE) + b"0\r\n\r\n")

    async def test() -> None:
        async with bed(flood, sets=("live.limits.stall=300ms", "live.usage=false")) as it:
            _, writer = await asyncio.open_connection("127.0.0.1", it.port, limit=4096)
            writer.write(request(chat(stream=True)))
            await it.until(lambda: bool(it.core.requests))
            await it.until(lambda: not it.core.requests)
            await it.until(lambda: it.servers[0].left == 1)
            assert getattr(it.servers[0], "sent", 0) < 30_000_000
            it.settled()
            writer.close()

    run(test())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_a_client_that_leaves_cancels_its_request_at_once(*, stream: bool, started: bool) -> None:
    async def forever(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        if started:
            writer.write(STREAM_HEAD + chunk(event("one")))
        await asyncio.sleep(100)

    async def test() -> None:
        async with bed(forever) as it:
            _, writer = await it.open(chat(stream=stream))
            await it.until(lambda: len(it.servers[0].requests) == 1)
            await asyncio.sleep(0.05)
            assert it.core.servers[0].in_flight == 1
            writer.close()
            await it.until(lambda: it.servers[0].left == 1, 1.0)
            it.settled()
            outcomes = it.program.proxy.metrics.outcomes
            assert [key[1] for key in outcomes] == ["client_left"]

    run(test())


def test_headers_of_the_connection_and_of_routing_are_not_forwarded() -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask(
                headers={
                    "Connection": "keep-alive, x-foo",
                    "x-foo": "1",
                    "x-gateway-destination-endpoint": "10.0.0.1:80",
                    "x-prefiller-host-port": "10.0.0.1:80",
                    "X-data-parallel-rank": "3",
                    "x-gateway-inference-objective": "vip",
                    "x-llm-d-inference-objective": "vip",
                    "x-data-parallel-host-port": "10.0.0.1:80",
                    "Authorization": "Bearer secret",
                    "Cookie": "a=b",
                    "x-custom": "kept",
                }
            )
            assert got.status == 200
            sent = it.servers[0].requests[0].headers
            expected = {"host", "x-request-id", "x-custom", "content-type", "content-length"}
            assert set(sent) == expected

    run(test())


def test_kv_transfer_parameters_of_clients_are_removed() -> None:
    async def test() -> None:
        async with bed() as it:
            await it.ask(chat(kv_transfer_params={"remote_host": "10.0.0.1"}))
            assert it.servers[0].requests[0].json == chat()

    run(test())


def test_a_trace_context_gets_a_span_of_the_gateway() -> None:
    async def test() -> None:
        async with bed() as it:
            trace, span = "ab" * 16, "cd" * 8
            await it.ask(headers={"traceparent": f"00-{trace}-{span}-01"})
            sent = it.servers[0].requests[0].headers["traceparent"].split("-")
            assert (sent[0], sent[1], sent[3]) == ("00", trace, "01")
            assert sent[2] != span
            zeros = "0" * 32
            invalid = (
                f"00-{zeros}-{span}-01",
                f"00-{trace}-{zeros[:16]}-01",
                f"ff-{trace}-{span}-01",
                f"00-{trace}-{span}-zz",
            )
            for given in invalid:
                await it.ask(headers={"traceparent": given})
                assert "traceparent" not in it.servers[0].requests[-1].headers

    run(test())


def test_many_requests_use_one_connection_and_pipelined_ones_are_answered_in_order() -> None:
    async def test() -> None:
        async with bed() as it:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(b"".join(request(headers={"x-request-id": f"r{n}"}) for n in range(10)))
            got = [await read_answer(reader) for _ in range(10)]
            assert [one.headers["x-request-id"] for one in got] == [f"r{n}" for n in range(10)]
            assert all(one.body == answer() for one in got)
            writer.close()
            it.settled()

    run(test())


def test_the_time_of_a_request_that_was_begun_ahead_counts_from_the_answer_before_it() -> None:
    async def test() -> None:
        async with bed(sets=("live.limits.request=300ms", "live.limits.idle=60s")) as it:
            whole_one = request()
            got = await it.raw(whole_one + whole_one[:50])
            assert got.count(b"HTTP/1.1 200 ") == 1
            assert b"HTTP/1.1 408 " in got
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(whole_one + whole_one[:-5])
            assert (await read_answer(reader)).status == 200
            await asyncio.sleep(0.1)
            writer.write(whole_one[-5:])
            assert (await read_answer(reader)).status == 200
            await asyncio.sleep(0.5)
            writer.write(whole_one)
            assert (await read_answer(reader)).status == 200
            writer.close()
            it.settled()

    run(test())


def test_requests_that_are_sent_ahead_have_one_limit_for_all_their_bodies() -> None:
    async def test() -> None:
        async def waits(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
            await asyncio.sleep(100)

        async with bed(waits, sets=("live.limits.body=64KiB",)) as it:
            large = request(chat(user="x" * 40_000))
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(request() + large)
            await it.until(lambda: len(it.core.requests) == 1)
            await asyncio.sleep(0.05)
            assert len(it.core.requests) == 1
            writer.write(large)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            await it.until(lambda: not it.core.requests)
            writer.close()
            it.settled()

    run(test())


def test_http_1_0_gets_a_body_without_chunks_and_a_closed_connection() -> None:
    async def test() -> None:
        async with bed() as it:
            body = json.dumps(chat(stream=True)).encode()
            head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
            got = await it.raw(head + body)
            text = got.partition(b"\r\n\r\n")[2]
            assert text == event("one") + event("two") + event("three") + DONE
            assert b"transfer-encoding" not in got

    run(test())


def test_a_client_that_expects_100_is_told_to_go_on() -> None:
    async def test() -> None:
        async with bed() as it:
            data = request(headers={"Expect": "100-continue"})
            head, _, body = data.partition(b"\r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(head + b"\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert (await read_answer(reader)).status == 200
            writer.close()

    run(test())


def test_an_error_of_a_server_is_passed_on_as_openai_writes_errors() -> None:
    error = {
        "error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}
    }

    async def bad(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
        if received.json.get("plain"):
            writer.write(whole(b'{"error": "no room"}', "400 Bad Request"))
        else:
            writer.write(whole(json.dumps(error).encode(), "400 Bad Request"))

    async def test() -> None:
        async with bed(bad) as it:
            got = await it.ask()
            assert (got.status, got.json) == (400, error)
            text = await it.ask(chat(plain=True))
            assert (text.status, text.json["error"]["message"]) == (400, "no room")
            assert it.core.servers[0].availability.breaker.state == 0
            it.settled()

    run(test())


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/nope", "/v1/chat/completions"])
def test_an_answer_to_head_has_no_body(path: str) -> None:
    async def test() -> None:
        async with bed() as it:
            ask = f"HEAD {path} HTTP/1.1\r\nHost: a\r\n"
            got = await it.raw(f"{ask}\r\n{ask}Connection: close\r\n\r\n".encode())
            assert got.count(b"HTTP/1.1 ") == 2
            assert b"{" not in got
            refused = await it.raw(f"{ask}Host: b\r\n\r\n".encode())
            assert refused.startswith(b"HTTP/1.1 400 ")
            assert refused.endswith(b"\r\n\r\n")

    run(test())


def test_a_pipelined_request_does_not_change_the_framing_of_the_one_before_it() -> None:
    async def test() -> None:
        async with bed() as it:
            old = b"GET /v1/models HTTP/1.0\r\nHost: a\r\n\r\n"
            got = await it.raw(request(chat(stream=True)) + old)
            assert got.count(b"HTTP/1.1 200 ") == 2
            assert b"\r\n0\r\n\r\nHTTP/1.1 200 " in got

    run(test())


UPGRADE = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
UPGRADE_LINES = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_request_to_upgrade_is_answered_once_as_plain_http(piece: int) -> None:
    async def test() -> None:
        async with bed() as it:
            chunks = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n{UPGRADE_LINES}"
            body = json.dumps(chat(user="chunks")).encode()
            data = (
                request(chat(user="length"), headers=UPGRADE)
                + f"{chunks}Transfer-Encoding: chunked\r\n\r\n".encode()
                + chunk(body)
                + b"0\r\n\r\n"
                + request(path="/v1/models", method="GET", headers=UPGRADE)
                + request(chat(user="plain"), headers={"Connection": "close"})
            )
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            for start in range(0, len(data), piece):
                writer.write(data[start : start + piece])
                await asyncio.sleep(0)
            got = await reader.read()
            writer.close()
            assert got.count(b"HTTP/1.1 200 ") == got.count(b"HTTP/1.1 ") == 4
            users = [one.json["user"] for one in it.servers[0].requests]
            assert users == ["length", "chunks", "plain"]
            assert not any("upgrade" in one.headers for one in it.servers[0].requests)
            assert not it.program.proxy.metrics.early
            it.settled()

    run(test())


def test_tunnels_and_unknown_transfer_encodings_are_refused_once() -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.raw(b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\nmore")
            assert got.startswith(b"HTTP/1.1 400 ")
            assert got.count(b"HTTP/1.1 ") == 1
            for more in (b"", UPGRADE_LINES.encode()):
                head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n" + more
                got = await it.raw(head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
                assert got.startswith(b"HTTP/1.1 501 ")
                assert got.count(b"HTTP/1.1 ") == 1
            assert not it.servers[0].requests

    run(test())


def test_a_whole_url_is_taken_for_its_path() -> None:
    async def test() -> None:
        async with bed() as it:
            got = await it.ask(path="HTTP://gateway:80/v1/chat/completions?a=http://b/c")
            assert got.status == 200
            assert it.servers[0].requests[0].line == "POST /v1/chat/completions HTTP/1.1"
            assert (await it.ask(path="http://gateway/v1/models", method="GET")).status == 200
            for path in ("http://gateway", "http://gateway?a", "ftp://gateway/v1/models"):
                assert (await it.ask(path=path, method="GET")).status == 404

    run(test())


@pytest.mark.parametrize("first", [0, 1, 20_000])
@pytest.mark.parametrize("alone", [True, False])
def test_a_large_body_arrives_whole_and_the_request_behind_it_is_answered(
    first: int, *, alone: bool
) -> None:
    """`first`: bytes of the body that come with the head; `alone`: nothing is pipelined."""
    small = json.dumps(chat()).encode()
    large = json.dumps({"model": "m", "prompt": "x" * 100_000 + "\r\n\r\n"}).encode()
    asked = request(large, path="/v1/completions")
    head = len(asked) - len(large)
    behind = b"" if alone else request(small)

    async def test() -> None:
        async with bed() as it:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            for start, end in ((0, head + first), (head + first, 60_000), (60_000, len(asked))):
                writer.write(asked[start:end] + (behind if end == len(asked) else b""))
                await writer.drain()
                await asyncio.sleep(0.01)
            assert (await read_answer(reader)).status == 200
            assert it.servers[0].requests[0].body == large
            if alone:
                writer.write(request(small))
            assert (await read_answer(reader)).status == 200
            assert it.servers[0].requests[1].body == small
            writer.close()
            it.settled()

    run(test())


def test_names_that_are_no_text_are_refused_where_a_body_must_be_written_anew() -> None:
    odd = b'{"model":"m","messages":[],"\\ud800":1,"kv_transfer_params":{"a":1}}'

    async def test() -> None:
        async with bed() as it:
            got = await it.ask(odd)
            assert got.status == 400
            assert not it.servers[0].requests
            it.settled()

    run(test())
