"""Servers that fail: retried before the first byte, cut after it, and counted once."""

import asyncio
import json
import logging
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live.gateway.bed import (
    DONE,
    STREAM_HEAD,
    FakeServer,
    Received,
    Script,
    bed,
    chat,
    chunk,
    event,
    friendly,
    request,
    run,
    whole,
)
from windtunnel.live.admin import JsonLines
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.probes import ServerProbe


def status(code: str, more: bytes = b"") -> Script:
    async def script(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(whole(b'{"error": {"message": "as told"}}', code, more))

    return script


async def hang(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
    await asyncio.sleep(100)


async def close(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
    writer.transport.abort()


def only_first(script: Script) -> Script:
    """Once as it is told, then friendly."""

    async def once(received: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        chosen = script if len(server.requests) == 1 else friendly
        await chosen(received, writer, server)

    return once


@pytest.mark.parametrize(
    "broken",
    [
        close,
        status("500 Oops"),
        status("502 Bad Gateway"),
        status("503 Busy"),
        status("504 Late"),
        status("429 Slow"),
    ],
)
def test_a_failure_before_the_first_byte_goes_to_another_server(broken: Script) -> None:
    async def test() -> None:
        sets = ("serving.router.policy=round-robin", "live.retries.internal_errors=true")
        async with bed(broken, friendly, sets=sets) as it:
            for stream in (True, False, True, False):
                got = await it.ask(chat(stream=stream))
                assert (got.status, got.whole) == (200, True)
            assert len(it.servers[0].requests) >= 1
            assert len(it.servers[1].requests) == 4
            assert it.core.retries == len(it.servers[0].requests)
            it.settled()

    run(test())


def test_a_refused_connection_goes_to_another_server() -> None:
    async def test() -> None:
        settings = ("serving.router.policy=round-robin", "live.health.interval=1h")
        async with bed(friendly, friendly, sets=settings) as it:
            await it.servers[0].stop()
            for _ in range(4):
                assert (await it.ask()).status == 200
            assert len(it.servers[1].requests) == 4
            it.settled()

    run(test())


def test_a_pooled_connection_that_was_closed_is_tried_once_more_on_the_same_server() -> None:
    async def drops_second(
        received: Received, writer: asyncio.StreamWriter, server: FakeServer
    ) -> None:
        if len(server.requests) == 2:
            writer.transport.abort()
        else:
            await friendly(received, writer, server)

    async def test() -> None:
        async with bed(drops_second) as it:
            assert (await it.ask()).status == 200
            assert (await it.ask()).status == 200
            assert len(it.servers[0].requests) == 3
            assert it.core.retries == 0
            it.settled()

    run(test())


def test_when_every_server_answers_500_so_does_the_gateway() -> None:
    async def test() -> None:
        sets = ("live.retries.internal_errors=true",)
        async with bed(status("500 Oops"), status("500 Oops"), sets=sets) as it:
            got = await it.ask()
            assert (got.status, got.json["error"]["code"]) == (500, "server-failed")
            assert sum(len(server.requests) for server in it.servers) == 3
            it.settled()

    run(test())


def test_500_is_passed_on_and_not_repeated() -> None:
    async def test() -> None:
        sets = ("serving.router.policy=round-robin",)
        async with bed(status("500 Oops"), friendly, sets=sets) as it:
            seen = [(await it.ask()).status for _ in range(4)]
            assert sorted(seen) == [200, 200, 500, 500]
            assert len(it.servers[0].requests) + len(it.servers[1].requests) == 4

    run(test())


def test_the_key_of_the_gateway_is_not_blamed_on_the_client() -> None:
    async def test() -> None:
        async with bed(status("401 Unauthorized")) as it:
            got = await it.ask()
            assert got.status == 502
            assert "gateway" in got.json["error"]["message"]

    run(test())


def test_the_key_of_a_server_is_in_no_answer(tmp_path: Path) -> None:
    key = "sk-of-the-gateway-789"

    async def echoes(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
        said = received.headers["authorization"]
        writer.write(whole(json.dumps({"error": {"message": said}}).encode(), "400 Bad Request"))

    async def test() -> None:
        server = await FakeServer(echoes).start()
        file = tmp_path / "gateway.yaml"
        file.write_text(f"live: {{servers: [{{url: '{server.url}', key_env: SERVER_KEY}}]}}")
        async with bed(config=file, environment={"SERVER_KEY": key}, ready=False) as it:
            await it.servers[0].stop()
            await it.until(lambda: len(it.core.servers) == 2 and it.core.knows("m"))
            got = await it.ask()
            assert (got.status, got.json["error"]["message"]) == (400, "Bearer [key]")
        await server.stop()

    run(test())


@pytest.mark.parametrize("end", ["cut", "ends early"])
def test_an_answer_that_breaks_off_never_looks_complete(end: str) -> None:
    async def half(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(STREAM_HEAD + chunk(event("one")))
        await writer.drain()
        await asyncio.sleep(0.05)
        if end == "cut":
            writer.transport.abort()
        else:
            writer.write(b"0\r\n\r\n")

    async def test() -> None:
        async with bed(half) as it:
            got = await it.ask(chat(stream=True))
            assert not got.whole
            first, error, rest = got.body.split(b"\n\n")
            assert first == event("one").rstrip()
            assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "server_error"
            assert rest == b""
            assert len(it.servers[0].requests) == 1
            assert [key[1] for key in it.program.proxy.metrics.outcomes] == ["cut_off"]
            it.settled()

    run(test())


def test_a_cut_stream_has_the_time_of_its_first_byte_and_as_many_tokens_as_others_per_event(
    tmp_path: Path,
) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 30, "total_tokens": 37}
    last = json.dumps({"choices": [], "usage": usage}, separators=(",", ":")).encode()

    async def several(_: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        writer.write(STREAM_HEAD)
        for word in ("a b c d e", "f g h i j", "k l m n o"):
            writer.write(chunk(event(word)))
            await writer.drain()
            await asyncio.sleep(0.02)
        if len(server.requests) > 1:
            writer.transport.abort()
            return
        for word in ("p", "q", "r"):
            writer.write(chunk(event(word)))
        writer.write(chunk(b"data: " + last + b"\n\n") + chunk(DONE) + b"0\r\n\r\n")

    async def test() -> None:
        files = (f"live.access_log={tmp_path / 'access'}", f"live.trace={{folder: {tmp_path}}}")
        async with bed(several, sets=files) as it:
            assert (await it.ask(chat(stream=True))).whole
            assert not (await it.ask(chat(stream=True))).whole
            it.settled()

    run(test())
    for name, first in (("access", "first_byte_s"), ("trace-000001.jsonl", "ttft")):
        whole, cut = (json.loads(line) for line in (tmp_path / name).read_text().splitlines())
        assert (whole["outcome"], whole["output_tokens"]) == ("completed", 30)
        assert (cut["outcome"], cut["output_tokens"]) == ("cut_off", 15)
        assert 0.0 < cut[first] < 10.0


def test_a_server_that_misses_a_check_is_not_called_unready_and_its_recovery_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "windtunnel.gateway")

    async def test() -> None:
        async with bed(sets=("live.health.failures=3",)) as it:
            server, url = it.servers[0], it.servers[0].url
            probe = it.program._watched[url].probe
            caplog.clear()
            server.healthy = False
            await it.until(lambda: bool(probe.said))
            server.healthy = True
            await it.until(lambda: not probe.said)
            assert it.core.servers[0].availability.healthy
            assert not caplog.records
            server.healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            server.healthy = True
            await it.until(lambda: it.core.servers[0].availability.healthy)
            assert [one.getMessage() for one in caplog.records] == [
                f"{url} is unhealthy: 3 failed health checks, /health answers 503",
                f"{url} is ready",
            ]

    run(test())


def test_a_whole_answer_that_breaks_off_is_cut_too() -> None:
    async def half(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def test() -> None:
        async with bed(half) as it:
            got = await it.ask()
            assert (got.status, got.whole, got.body) == (200, False, b"{")
            it.settled()

    run(test())


def test_a_silent_server_is_504_before_the_first_byte_and_cut_after_it() -> None:
    async def stalls(received: Received, writer: asyncio.StreamWriter, _: FakeServer) -> None:
        if received.json["stream"]:
            writer.write(STREAM_HEAD + chunk(event("one")))
            await writer.drain()
        await asyncio.sleep(100)

    async def test() -> None:
        limits = ("live.limits.first_byte=300ms", "live.limits.silence=300ms")
        async with bed(stalls, sets=limits) as it:
            got = await it.ask(chat(stream=False))
            assert got.status == 504
            cut = await it.ask(chat(stream=True))
            assert (cut.status, cut.whole) == (200, False)
            assert b'"error"' in cut.body
            it.settled()

    run(test())


def test_when_every_server_fails_there_is_one_503_and_no_storm() -> None:
    async def test() -> None:
        async with bed(*[status("503 Busy")] * 3) as it:
            got = await it.ask()
            assert got.status == 503
            assert int(got.headers["retry-after"]) >= 1
            assert sum(len(one.requests) for one in it.servers) == 3
            for _ in range(60):
                await it.ask()
            tried = sum(len(one.requests) for one in it.servers)
            assert tried <= 61 + 10 + 0.2 * 61 + 1
            it.settled()

    run(test())


def test_a_breaker_opens_tries_one_at_a_time_and_closes() -> None:
    async def test() -> None:
        sets = (
            "serving.router.policy=least-loaded",
            "live.breaker.consecutive=2",
            "live.breaker.open=300ms",
            "live.retries.attempts=1",
        )
        async with bed(status("503 Busy"), friendly, sets=sets) as it:
            breaker = it.core.servers[0].availability.breaker
            while breaker.state == 0:
                await it.ask()
            failed = len(it.servers[0].requests)
            assert failed == 2
            for _ in range(10):
                assert (await it.ask()).status == 200
            assert len(it.servers[0].requests) == failed
            it.servers[0].script = friendly
            await it.until(lambda: breaker.state == 2)
            while breaker.state != 0:
                assert (await it.ask()).status == 200
            assert len(it.servers[0].requests) == failed + 1
            it.settled()

    run(test())


def test_with_every_breaker_open_the_least_bad_server_is_tried() -> None:
    async def test() -> None:
        sets = ("live.breaker.consecutive=1", "live.breaker.open=1h", "live.retries.attempts=1")
        async with bed(only_first(status("503 Busy")), sets=sets) as it:
            assert (await it.ask()).status == 503
            assert it.core.servers[0].availability.breaker.state == 2
            assert (await it.ask()).status == 200
            assert it.core.servers[0].availability.breaker.state == 0

    run(test())


def test_client_errors_never_open_a_breaker() -> None:
    async def test() -> None:
        async with bed(status("404 Not Found"), sets=("live.breaker.consecutive=1",)) as it:
            for _ in range(5):
                assert (await it.ask()).status == 404
            assert it.core.servers[0].availability.breaker.state == 0

    run(test())


def test_a_sleeping_server_is_not_chosen() -> None:
    async def test() -> None:
        async with bed(friendly, friendly) as it:
            asleep = 'vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1.0\n'
            it.servers[0].page = asleep
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            for _ in range(4):
                assert (await it.ask()).status == 200
            assert not it.servers[0].requests
            it.servers[0].page = asleep.replace("weights_offloaded", "awake")
            await it.until(lambda: it.core.servers[0].availability.healthy)

    run(test())


def test_a_server_that_leaves_the_list_is_drained_and_one_that_joins_is_used(
    tmp_path: Path,
) -> None:
    listed = tmp_path / "servers"

    async def test() -> None:
        go = asyncio.Event()

        async def waits(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
            writer.write(STREAM_HEAD + chunk(event("one")))
            await go.wait()
            writer.write(chunk(DONE) + b"0\r\n\r\n")

        old = await FakeServer(waits).start()
        new = await FakeServer().start()
        listed.write_text(f"{old.url}  # the old one\n")
        async with bed(friendly, sets=(f"live.servers_file={listed}",), ready=False) as it:
            await it.until(
                lambda: len(it.core.servers) == 2 and it.core.servers[1].availability.healthy
            )
            await it.servers[0].stop()
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            under_way = asyncio.ensure_future(it.ask(chat(stream=True)))
            await it.until(lambda: it.core.servers[1].in_flight == 1)
            listed.write_text(f"{new.url}\n")
            await it.until(
                lambda: len(it.core.servers) == 3 and it.core.servers[2].availability.healthy
            )
            assert it.core.servers[1].availability.draining
            assert (await it.ask()).status == 200
            assert (len(old.requests), len(new.requests)) == (1, 1)
            go.set()
            assert (await under_way).whole
            # Gone, it is asked no more and not shown, although it answers; back at its address, it
            # is the same server.
            await it.until(lambda: it.core.servers[1].gone)
            await old.stop()
            assert old.url not in [one["server"] for one in it.program.servers()]
            await asyncio.sleep(0.2)
            await old.start(old.port)
            await asyncio.sleep(0.2)
            assert it.core.servers[1].gone
            listed.write_text(f"{new.url}\n{old.url}\n# back\n")
            await it.until(lambda: it.core.servers[1].availability.healthy)
            assert len(it.core.servers) == 3
            assert old.url in [one["server"] for one in it.program.servers()]
            it.settled()
        await old.stop()
        await new.stop()

    run(test())


def test_an_emptied_list_leaves_no_server_at_once_and_a_half_written_one_changes_nothing(
    tmp_path: Path,
) -> None:
    listed = tmp_path / "servers"

    async def test() -> None:
        server = await FakeServer().start()
        listed.write_text(f"{server.url}\n")
        async with bed(sets=(f"live.servers_file={listed}",), ready=False) as it:
            await it.servers[0].stop()
            await it.until(
                lambda: len(it.core.servers) == 2 and it.core.servers[1].availability.healthy
            )
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            state = it.core.servers[1].availability
            listed.write_text("")
            await asyncio.sleep(0)
            listed.write_text(f"{server.url}\n# as it was\n")
            for _ in range(60):
                await asyncio.sleep(0.01)
                assert not state.draining
            listed.write_text("")
            await it.until(lambda: state.draining, seconds=1.0)
            assert (await it.ask(method="GET", path="/v1/models")).json["data"] == []
            async with aiohttp.ClientSession() as session:
                got = await session.get(f"{it.program.admin_url}/readyz")
                assert (got.status, await got.text()) == (503, "no server is ready\n")
            listed.write_text(f"{server.url}\n")
            await it.until(lambda: not state.draining, seconds=1.0)
            assert (await it.ask()).status == 200
            it.settled()
        await server.stop()

    run(test())


def test_names_that_servers_give_do_not_steer_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Control characters are written out in metrics and in both logs; labels stay valid."""
    name = 'm\x1b[31m\x9b\x7f\u202e\\"\n\t'
    access = tmp_path / "access"

    async def test() -> None:
        async with bed(sets=(f"live.access_log={access}",), ready=False) as it:
            it.servers[0].models = [{"id": name}]
            await it.until(lambda: it.core.knows(name))
            assert (await it.ask(chat(model=name))).status == 200
            assert (await it.ask(chat(model=name + "?"))).status == 404
            async with aiohttp.ClientSession() as session:
                got = await session.get(f"{it.program.admin_url}/metrics")
                page = await got.text()
        assert not controls(page)
        families = text_string_to_metric_families(page)
        labels = [one.labels for family in families for one in family.samples]
        shown = 'm\\u001b[31m\\u009b\\u007f\\u202e\\"\n\\t'
        assert shown in {one.get("model") for one in labels}
        lines = access.read_text()
        assert not controls(lines)
        assert json.loads(lines.splitlines()[0])["model"] == name
        logged = [JsonLines().format(record) for record in caplog.records]
        assert not controls("\n".join(logged))

    run(test())


def controls(text: str) -> list[str]:
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_a_name_is_resolved_to_servers_and_a_name_without_addresses_stops_nothing() -> None:
    async def test() -> None:
        named = await FakeServer().start()
        sets = (
            f"live.servers_dns=[{{name: localhost, port: {named.port}, interval: 50ms}}, "
            "{name: nowhere.invalid, port: 80, interval: 50ms}]",
        )
        async with bed(friendly, sets=sets, ready=False) as it:
            await it.until(
                lambda: any(
                    one.name.endswith(f":{named.port}") and one.availability.healthy
                    for one in it.core.servers
                )
            )
            for _ in range(4):
                assert (await it.ask()).status == 200
            assert len(named.requests) >= 1
            it.settled()
        await named.stop()

    run(test())


def test_requests_wait_for_the_first_server_and_then_for_no_longer_than_they_may() -> None:
    async def test() -> None:
        async with bed(sets=("live.no_server_ttl=500ms", "live.health.failures=1")) as it:
            it.servers[0].healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            waiting = asyncio.ensure_future(it.ask())
            await asyncio.sleep(0.1)
            it.servers[0].healthy = True
            assert (await waiting).status == 200
            it.servers[0].healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            got = await it.ask()
            assert got.status == 503
            assert 0.4 < loop.time() - began_s < 3.0
            it.settled()

    run(test())


def test_requests_before_any_server_was_ready_wait_as_long() -> None:
    async def test() -> None:
        sets = ("live.no_server_ttl=500ms",)
        async with bed(sets=sets, ready=False) as it:
            it.servers[0].healthy = False
            await asyncio.sleep(0.1)
            assert not it.core.planes
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            got = await it.ask()
            assert (got.status, got.json["error"]["code"]) == (503, "no-server")
            assert "retry-after" in got.headers
            assert 0.4 < loop.time() - began_s < 3.0
            _, writer = await it.open()
            await it.until(lambda: it.program.proxy.under_way == 1)
            writer.close()
            await it.until(lambda: it.program.proxy.under_way == 0)
            waiting = [asyncio.ensure_future(it.ask(chat(stream=bool(n)))) for n in range(3)]
            unknown = asyncio.ensure_future(it.ask(chat() | {"model": "other"}))
            await it.until(lambda: it.program.proxy.under_way == 4)
            it.servers[0].healthy = True
            assert [(await one).status for one in waiting] == [200] * 3
            assert (await unknown).status == 404
            assert len(it.servers[0].requests) == 3
            it.settled()

    run(test())


def test_a_stop_refuses_requests_that_wait_for_the_first_server() -> None:
    async def test() -> None:
        async with bed(sets=("live.drain=20s",), ready=False) as it:
            it.servers[0].healthy = False
            waiting = asyncio.ensure_future(it.ask())
            await it.until(lambda: it.program.proxy.under_way == 1)
            it.program.proxy.stopping = True
            it.program.proxy.refuse_queued()
            got = await waiting
            assert (got.status, got.json["error"]["code"]) == (503, "stopping")
            assert "retry-after" in got.headers

    run(test())


def test_a_client_that_leaves_while_its_request_waits_is_sent_nowhere() -> None:
    async def test() -> None:
        async with bed(sets=("live.health.failures=1",)) as it:
            it.servers[0].healthy = False
            await it.until(lambda: not it.core.servers[0].availability.healthy)
            _, writer = await it.open()
            await it.until(lambda: len(it.core.requests) == 1)
            writer.close()
            await it.until(lambda: not it.core.requests)
            it.servers[0].healthy = True
            await it.until(lambda: it.core.servers[0].availability.healthy)
            await asyncio.sleep(0.05)
            assert not it.servers[0].requests
            it.settled()

    run(test())


@pytest.mark.parametrize("page", ["", "nonsense \x00 {", "vllm:num_requests_waiting NaN\n", "hang"])
def test_scrapes_that_fail_or_lie_stop_nothing(page: str) -> None:
    async def test() -> None:
        sets = (
            "serving.admission={policy: flow-control}",
            "live.scrape.timeout=100ms",
        )
        async with bed(friendly, friendly, sets=sets) as it:
            for server in it.servers:
                server.page = page
                if page == "hang":
                    server.page = "x" * 30_000_000
            await asyncio.sleep(0.3)
            got = await asyncio.gather(*(it.ask() for _ in range(20)))
            assert [one.status for one in got] == [200] * 20
            assert {len(one.requests) for one in it.servers} == {10}
            it.settled()

    run(test())


def test_servers_that_were_full_when_last_seen_do_not_halt_the_gateway(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        held = asyncio.Event()

        async def hang_first(
            received: Received, writer: asyncio.StreamWriter, server: FakeServer
        ) -> None:
            if not held.is_set():
                held.set()
                await asyncio.sleep(100)
            await friendly(received, writer, server)

        sets = (
            "serving.admission={policy: flow-control, detector: {kind: utilization}}",
            "live.scrape.stale=200ms",
            f"live.log={log}",
        )
        async with bed(hang_first, hang_first, sets=sets) as it:
            for server in it.servers:
                server.page = "vllm:num_requests_waiting 500\nvllm:kv_cache_usage_perc 1\n"
            await asyncio.sleep(0.3)
            _, writer = await it.open()  # an idle fleet gets a request in any case
            await held.wait()
            queued = asyncio.ensure_future(it.ask())
            await it.until(lambda: it.program.proxy.arrived == 2)
            assert sum(len(server.requests) for server in it.servers) == 1
            for server in it.servers:
                server.page = ""
            assert (await queued).status == 200
            got = await asyncio.gather(*(it.ask() for _ in range(20)))
            assert [one.status for one in got] == [200] * 20
            writer.close()
            await it.until(lambda: not it.core.requests)
            it.settled()

    run(test())
    assert audit(log).difference == ""


def test_a_log_of_failures_is_replayed_to_the_same_decisions(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"

    async def flaky(received: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        number = len(server.requests)
        if number % 5 == 0:
            writer.transport.abort()
        elif number % 7 == 0:
            writer.write(whole(b"{}", "503 Busy"))
        else:
            await friendly(received, writer, server)

    async def test() -> None:
        admission = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 2}}"
        sets = (f"live.log={log}", f"serving.admission={admission}", "live.breaker.open=50ms")
        async with bed(flaky, flaky, friendly, sets=sets) as it:
            prompts = ["x" * 600 * (number % 4) for number in range(60)]

            async def one(number: int) -> int:
                messages = [{"role": "user", "content": prompts[number]}]
                body = chat(stream=number % 2 == 0) | {"messages": messages}
                return (await it.ask(body, headers={"x-session-id": f"s{number % 3}"})).status

            seen = await asyncio.gather(*(one(number) for number in range(60)))
            assert set(seen) <= {200, 503}
            assert seen.count(200) > 40
            it.settled()

    run(test())
    report = audit(log)
    assert (report.difference, report.cut) == ("", False)
    assert report.decisions >= 120
    lines = log.read_bytes().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if b"request.routed" in line)
    changed = (
        lines[place].replace(b'"server":0', b'"server":9').replace(b'"server":1', b'"server":9')
    )
    changed = changed.replace(b'"server":2', b'"server":9')
    log.write_bytes(b"".join([*lines[:place], changed, *lines[place + 1 :]]))
    assert f"{log}:{place + 1}: the log has" in audit(log).difference
    log.write_bytes(b"".join(lines)[:-5])
    assert audit(log).cut


def test_a_watch_that_ends_is_a_failure_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(ServerProbe, "watch_load", fails)

    async def test() -> None:
        async with bed() as it:
            await it.until(lambda: it.program.proxy.metrics.bugs == 1)

    run(test())


def raw_answer(data: bytes) -> Script:
    """Sends these bytes, whatever is asked."""

    async def script(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(data)
        await writer.drain()

    return script


@pytest.mark.parametrize("more", [whole(b"POISON"), b"POISON", whole(b"", "100 Continue")])
def test_what_a_server_sends_after_its_answer_is_dropped_with_the_connection(more: bytes) -> None:
    async def test() -> None:
        async with bed(only_first(raw_answer(whole(b"{}") + more))) as it:
            got = await it.ask()
            assert (got.status, got.body, got.whole) == (200, b"{}", True)
            assert it.program.proxy.metrics.unrequested == {0: 1}
            assert b"POISON" not in (await it.ask()).body
            it.settled()

    run(test())


def test_a_connection_whose_answer_is_framed_twice_is_not_used_again() -> None:
    """The parser goes by the last coding, and would take the next answer for the rest of it."""
    framed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n"
    answers = [whole(b"{}"), framed + b"2\r\n{}\r\n0\r\n\r\n"]

    async def script(asked: Received, writer: asyncio.StreamWriter, it: FakeServer) -> None:
        if answers:
            await raw_answer(answers.pop(0))(asked, writer, it)
        else:
            await friendly(asked, writer, it)

    async def test() -> None:
        async with bed(script) as it:
            for _ in range(4):
                await asyncio.wait_for(it.ask(), 5.0)
            assert (await it.ask()).status == 200
            it.settled()

    run(test())


@pytest.mark.parametrize("code", ["000 Zero", "099 Low", "600 High", "999 Odd"])
def test_a_status_that_does_not_exist_is_a_bad_answer(code: str) -> None:
    async def test() -> None:
        async with bed(only_first(raw_answer(whole(b"{}", code)))) as it:
            got = await it.ask()
            assert got.status == 502
            assert "between 100 and 599" in got.json["error"]["code"]
            assert (await it.ask()).status == 200
            it.settled()

    run(test())


def test_a_refusal_with_garbage_after_it_costs_the_other_server_nothing() -> None:
    async def test() -> None:
        bad = raw_answer(whole(b"", "503 Busy") + b"garbage")
        async with bed(bad, friendly, sets=("serving.router.policy=round-robin",)) as it:
            for _ in range(4):
                assert (await it.ask()).status == 200
            assert list(it.program.proxy.metrics.attempts_failed) == [0]
            it.settled()

    run(test())


@pytest.mark.parametrize("code", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_without_a_body_has_no_framing(code: str, *, stream: bool) -> None:
    async def test() -> None:
        data = f"HTTP/1.1 {code}\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nx-end: 2\r\n\r\n"
        async with bed(raw_answer(data.encode())) as it:
            asked = request(chat(stream=stream), headers={"Connection": "close"})
            got = await it.raw(asked)
            assert got.startswith(f"HTTP/1.1 {code[:3]} ".encode())
            assert got.endswith(b"\r\n\r\n")
            assert b"transfer-encoding" not in got
            assert b"content-length" not in got
            assert (b"x-hop" in got, b"x-end: 2" in got) == (False, True)
            it.settled()

    run(test())


def test_a_stream_without_any_event_is_one_502() -> None:
    async def test() -> None:
        async with bed(raw_answer(STREAM_HEAD + b"0\r\n\r\n")) as it:
            got = await it.raw(request(chat(stream=True), headers={"Connection": "close"}))
            assert got.startswith(b"HTTP/1.1 502 ")
            assert got.count(b"HTTP/1.1 ") == 1
            it.settled()

    run(test())
