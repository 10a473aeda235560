"""Keys and tenants, classes of service, queues, eviction, and how a gateway stops."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.gateway.bed import (
    DONE,
    STREAM_HEAD,
    Bed,
    FakeServer,
    Received,
    bed,
    chat,
    chunk,
    event,
    friendly,
    run,
)
from windtunnel.core.errors import InputError
from windtunnel.live.gateway.settings import read_settings

KEYS = """\
slo:
  interactive: {priority: 5}
live:
  clients:
    - {key_env: KEY_A, tenant: a, classes: [interactive, batch]}
    - {key_env: KEY_B, tenant: b}
"""
SECRETS = {"KEY_A": "sk-secret-of-a-123", "KEY_B": "sk-secret-of-b-456"}


def auth(name: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRETS[name]}", **more}


class Gate:
    """Servers that answer when they are told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.order: list[str] = []

    async def script(
        self, received: Received, writer: asyncio.StreamWriter, server: FakeServer
    ) -> None:
        self.order.append(received.json["user"])
        await self.open.wait()
        await friendly(received, writer, server)


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    return path


def test_a_key_stands_for_its_tenant_whatever_a_header_says(tmp_path: Path) -> None:
    async def test() -> None:
        file = config(tmp_path, KEYS)
        sets = (f"live.log={tmp_path / 'log'}", f"live.trace={{folder: {tmp_path / 'trace'}}}")
        async with bed(config=file, environment=SECRETS, sets=sets) as it:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
                got = await it.ask(headers=headers)
                assert (got.status, got.json["error"]["code"]) == (401, "invalid_api_key")
            assert not it.servers[0].requests
            assert (await it.ask(headers=auth("KEY_A", **{"x-tenant": "b"}))).status == 200
            assert (await it.ask(headers=auth("KEY_B"))).status == 200
            assert (await it.ask(path="/v1/models", method="GET")).status == 401
            assert all("authorization" not in one.headers for one in it.servers[0].requests)
            text = str(it.program.proxy.metrics.outcomes) + str(it.program.servers())
        written = [*(tmp_path / "trace").iterdir(), tmp_path / "log"]
        rows = [json.loads(line) for line in written[0].read_text().splitlines()]
        assert [(row["tenant"], row["slo"]) for row in rows] == [
            ("a", "interactive"),
            ("b", "standard"),
        ]
        for secret in SECRETS.values():
            assert secret not in text
            assert all(secret not in path.read_text() for path in written)

    run(test())


def test_a_class_must_be_one_that_the_key_allows(tmp_path: Path) -> None:
    async def test() -> None:
        async with bed(config=config(tmp_path, KEYS), environment=SECRETS) as it:
            good = await it.ask(headers=auth("KEY_A", **{"x-slo-class": "batch"}))
            bad = await it.ask(headers=auth("KEY_A", **{"x-slo-class": "critical"}))
            assert (good.status, bad.status) == (200, 400)
            assert "interactive, batch" in bad.json["error"]["message"]

    run(test())


FLOW = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 1}"


async def fill(it: Bed, name: str, **headers: str) -> "asyncio.Task[Any]":
    """Sends a request, and waits until it has arrived."""
    proxy = it.program.proxy
    before = proxy.arrived
    names = {key.replace("_", "-"): value for key, value in headers.items()}
    task = asyncio.ensure_future(it.ask(chat(user=name), headers=names))
    await it.until(lambda: proxy.arrived > before)
    return task


def test_protected_requests_wait_and_go_first_and_sheddable_ones_are_refused() -> None:
    async def test() -> None:
        gate = Gate()
        async with bed(gate.script, sets=(f"serving.admission={FLOW}, max_waiting: 2}}",)) as it:
            tasks = [await fill(it, "first")]
            tasks.append(await fill(it, "batch", x_slo_class="batch"))
            tasks.append(await fill(it, "standard"))
            shed = await fill(it, "more", x_slo_class="batch")
            got = await shed
            assert (got.status, got.json["error"]["code"]) == (429, "queue-full")
            assert int(got.headers["retry-after"]) >= 1
            critical = await fill(it, "critical", x_slo_class="critical")
            outranked = await tasks.pop(1)
            assert (outranked.status, outranked.json["error"]["code"]) == (429, "outranked")
            gate.open.set()
            assert [(await task).status for task in (*tasks, critical)] == [200, 200, 200]
            assert gate.order == ["first", "critical", "standard"]
            it.settled()

    run(test())


def test_a_queued_request_is_refused_when_its_time_is_over_and_not_at_a_scan() -> None:
    async def test() -> None:
        gate = Gate()
        async with bed(gate.script, sets=(f"serving.admission={FLOW}, ttl: 200ms}}",)) as it:
            first = await fill(it, "first")
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            late = await it.ask(chat(user="late"))
            assert (late.status, late.json["error"]["code"]) == (503, "expired")
            assert 0.19 < loop.time() - began_s < 2.0
            gate.open.set()
            assert (await first).status == 200
            it.settled()

    run(test())


def test_a_client_that_leaves_the_queue_gives_its_place_to_others() -> None:
    async def test() -> None:
        gate = Gate()
        async with bed(gate.script, sets=(f"serving.admission={FLOW}}}",)) as it:
            first = await fill(it, "first")
            _, writer = await it.open(chat(user="left"))
            await it.until(lambda: len(it.core.requests) == 2)
            writer.close()
            await it.until(lambda: len(it.core.requests) == 1)
            last = await fill(it, "last")
            gate.open.set()
            assert ((await first).status, (await last).status) == (200, 200)
            assert gate.order == ["first", "last"]
            it.settled()

    run(test())


def test_tenants_share_the_servers_although_one_floods(tmp_path: Path) -> None:
    async def test() -> None:
        gate = Gate()
        file = config(tmp_path, KEYS)
        sets = (f"serving.admission={FLOW}}}",)
        async with bed(gate.script, config=file, environment=SECRETS, sets=sets) as it:
            flood = [
                asyncio.ensure_future(
                    it.ask(chat(user="a"), headers=auth("KEY_A", **{"x-slo-class": "batch"}))
                )
                for _ in range(30)
            ]
            await it.until(lambda: len(it.core.requests) == 30)
            few = [
                asyncio.ensure_future(
                    it.ask(chat(user="b"), headers=auth("KEY_B", **{"x-slo-class": "batch"}))
                )
                for _ in range(5)
            ]
            await it.until(lambda: len(it.core.requests) == 35)
            gate.open.set()
            assert all(one.status == 200 for one in await asyncio.gather(*flood, *few))
            assert gate.order[:11].count("b") >= 4
            it.settled()

    run(test())


def test_a_running_request_that_makes_way_is_cut_with_an_error_and_counted_once() -> None:
    async def streams(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(STREAM_HEAD + chunk(event("one")))
        await writer.drain()
        await asyncio.sleep(100)

    async def test() -> None:
        sets = (f"serving.admission={FLOW}, eviction: true}}",)
        async with bed(streams, sets=sets) as it:
            low = asyncio.ensure_future(it.ask(chat(stream=True), headers={"x-slo-class": "batch"}))
            await it.until(lambda: it.core.servers[0].in_flight == 1)
            await asyncio.sleep(0.1)
            it.servers[0].script = friendly
            high = await it.ask(chat(stream=True), headers={"x-slo-class": "critical"})
            assert (high.status, high.whole) == (200, True)
            got = await low
            assert not got.whole
            assert b"made-way" in got.body
            assert it.servers[0].left == 1
            outcomes = {key[1]: count for key, count in it.program.proxy.metrics.outcomes.items()}
            assert outcomes == {"evicted": 1, "completed": 1}
            it.settled()

    run(test())


def test_rates_and_budgets_are_in_headers_and_a_refusal_says_when_to_come_again(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        bucket = "{policy: token-bucket, capacity: 1000, refill: 100/s, budgets: {a: 0.02}}"
        file = config(tmp_path, KEYS)
        sets = (f"serving.admission={bucket}",)
        async with bed(config=file, environment=SECRETS, sets=sets) as it:
            good = await it.ask(headers=auth("KEY_A"))
            assert good.status == 200
            assert good.headers["x-ratelimit-limit-tokens"] == "1000"
            assert 900 <= int(good.headers["x-ratelimit-remaining-tokens"]) < 1000
            assert 0 < float(good.headers["x-ratelimit-reset-tokens"].rstrip("s")) < 1
            assert good.headers["x-ratelimit-limit-requests"] == "5"  # 0.02 of 256 slots
            assert good.headers["x-ratelimit-remaining-requests"] == "4"
            assert "x-ratelimit-reset-requests" not in good.headers
            large = chat() | {"messages": [{"role": "user", "content": "x" * 3600}]}
            assert (await it.ask(large, headers=auth("KEY_B"))).status == 200
            short = await it.ask(large, headers=auth("KEY_B"))
            assert (short.status, short.json["error"]["code"]) == (429, "bucket-short")
            assert 6 <= int(short.headers["retry-after"]) <= 9  # 900 tokens at 100/s
            assert "x-ratelimit-limit-requests" not in short.headers
            it.settled()

    run(test())


def test_retry_after_grows_with_the_queue() -> None:
    async def test() -> None:
        gate = Gate()
        async with bed(gate.script, sets=(f"serving.admission={FLOW}, max_waiting: 30}}",)) as it:
            tasks = [await fill(it, f"{number}") for number in range(31)]
            # As if two ended every second; how fast another model is does not matter.
            it.program.proxy.ended_per_s.update({"m": 2.0, "other": 1000.0})
            got = await it.ask(chat(user="more"))
            assert (got.status, got.json["error"]["code"]) == (429, "queue-full")
            assert 12 <= int(got.headers["retry-after"]) <= 20
            assert "x-ratelimit-limit-requests" not in got.headers
            gate.open.set()
            await asyncio.gather(*tasks)
            it.settled()

    run(test())


def test_the_access_log_has_a_line_for_every_request_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"

    async def test() -> None:
        file = config(tmp_path, KEYS)
        sets = (f"live.access_log={path}",)
        async with bed(config=file, environment=SECRETS, sets=sets) as it:
            await it.ask(headers=auth("KEY_A", **{"x-request-id": "mine"}))
            await it.ask(chat(stream=True), headers=auth("KEY_B"))
            await it.ask(headers={"Authorization": "Bearer sk-not-a-key"})
            await it.ask(b"{", headers=auth("KEY_A"))
            await it.raw(b"nonsense\r\n\r\n")
            it.servers[0].script = hangs
            _, writer = await it.open(headers=auth("KEY_A"))
            await it.until(lambda: it.core.servers[0].in_flight == 1)
            writer.close()
            await it.until(lambda: not it.core.requests)
            path.rename(tmp_path / "old.jsonl")
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(path.exists)

    run(test())
    text = (tmp_path / "old.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["status"], one["outcome"]) for one in lines] == [
        (200, "completed"),
        (200, "completed"),
        (401, "invalid"),
        (400, "invalid"),
        (400, "invalid"),
        (499, "client_left"),
    ]
    first, second = lines[:2]
    assert (first["id"], first["tenant"], first["slo"]) == ("mine", "a", "interactive")
    assert (second["prompt_tokens"], second["output_tokens"], second["stream"]) == (7, 3, True)
    assert 0 <= second["queued_s"] <= second["first_byte_s"] <= second["duration_s"]
    assert "sk-" not in text
    assert '"hi"' not in text


def test_a_reload_says_which_changes_need_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        file = config(tmp_path, KEYS)
        async with bed(config=file, environment=SECRETS) as it:
            file.write_text(KEYS + "  retries: {attempts: 2}\n")
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(lambda: "reload" in caplog.text)

    run(test())
    assert "a restart is needed for live.retries.attempts" in caplog.text


def test_a_reload_names_settings_as_they_are_written_and_success_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windtunnel.gateway")
    router = "serving: {router: {policy: weighted, scorers: {%s}}}\n"

    async def test() -> None:
        file = config(tmp_path, router % "prefix-cache: 2")
        async with bed(config=file) as it:
            caplog.clear()
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(lambda: "reload" in caplog.text)
            assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
                ("INFO", "the configuration was reloaded")
            ]
            caplog.clear()
            file.write_text(router % "queue-depth: 1")
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(lambda: "reload" in caplog.text)

    run(test())
    named = caplog.text.partition("needed for ")[2].split("\n")[0]
    path = "serving.router.scorers"
    assert named == f"{path}.prefix-cache, {path}.queue-depth"


def test_two_spellings_are_one_server() -> None:
    spelled = ["http://10.0.0.1:8000", "http://10.0.0.1:8000/v1", "http://10.0.0.1:8000/v1/"]
    assert len(read_settings(None, (), spelled).settings.live.servers) == 1


def test_a_reload_names_servers_whose_settings_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        listed = "  servers:\n    - {url: 'http://127.0.0.1:1', slots: %d}\n"
        file = config(tmp_path, "live:\n" + listed % 4)
        async with bed(config=file, ready=False) as it:
            await it.until(lambda: len(it.core.servers) == 2)
            file.write_text("live:\n" + listed % 5)
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(lambda: "reload" in caplog.text)

    run(test())
    assert "a restart is needed for live.servers[0]" in caplog.text


async def hangs(_: Received, __: asyncio.StreamWriter, ___: FakeServer) -> None:
    await asyncio.sleep(100)


def test_equal_requests_between_two_scrapes_are_spread_evenly() -> None:
    async def test() -> None:
        gate = Gate()
        async with bed(*[gate.script] * 4, sets=("live.scrape.interval=1h",)) as it:
            tasks = [asyncio.ensure_future(it.ask(chat(user="x"))) for _ in range(40)]
            await it.until(lambda: len(it.core.requests) == 40)
            assert [one.in_flight for one in it.core.servers] == [10] * 4
            gate.open.set()
            await asyncio.gather(*tasks)
            it.settled()

    run(test())


def test_the_same_text_shares_a_prefix_only_within_model_and_salt() -> None:
    async def test() -> None:
        sets = ("serving.router={policy: weighted, scorers: {prefix-cache: 1}, cache_delay: 0s}",)
        async with bed(*[friendly] * 4, sets=sets) as it:
            text = [{"role": "system", "content": "long " * 1000}]

            async def where(**more: Any) -> str:
                got = await it.ask(
                    chat(**more) | {"messages": text}, headers={"x-windtunnel-explain": "1"}
                )
                return got.headers["x-windtunnel-server"]

            first = await where()
            assert [await where() for _ in range(5)] == [first] * 5
            salted = await where(cache_salt="other")
            assert salted != first
            assert [await where(cache_salt="other") for _ in range(5)] == [salted] * 5

    run(test())


def test_sigterm_refuses_the_queue_and_lets_answers_end(tmp_path: Path) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def slow(_: Received, writer: asyncio.StreamWriter, __: FakeServer) -> None:
            writer.write(STREAM_HEAD + chunk(event("one")))
            await writer.drain()
            await go.wait()
            writer.write(chunk(DONE) + b"0\r\n\r\n")

        server = await FakeServer(slow).start()
        command = [
            *(sys.executable, "-m", "windtunnel", "gateway", "--port", "0"),
            *("--server", server.url, "--set", f"serving.admission={FLOW}}}"),
            *("--set", "live.admin=127.0.0.1:0"),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, cwd=tmp_path, env=dict(os.environ)
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        port = int(line.split(":")[2])
        it = Bed(None, port, [server])  # type: ignore[arg-type]
        for _ in range(200):
            if (await it.ask(path="/v1/models", method="GET")).json["data"]:
                break
            await asyncio.sleep(0.05)
        running = asyncio.ensure_future(it.ask(chat(stream=True)))
        await it.until(lambda: len(server.requests) == 1)
        queued = asyncio.ensure_future(it.ask(chat(stream=True)))
        await asyncio.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        got = await queued
        assert (got.status, got.json["error"]["code"]) == (503, "stopping")
        with pytest.raises(ConnectionError):
            await it.ask()
        go.set()
        assert (await running).whole
        assert await asyncio.wait_for(process.wait(), 20) == 0
        rows = [
            json.loads(line)
            for path in (tmp_path / "windtunnel-trace").iterdir()
            for line in path.read_text().splitlines()
        ]
        assert sorted(row["outcome"] for row in rows) == ["completed", "evicted"]
        await server.stop()

    run(test())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("live: {servers: [{url: 'ftp://x'}]}", "is not an http:// or https:// address"),
        ("live: {servers: [{url: 'http://169.254.169.254'}]}", "link-local"),
        ("live: {servers: [{url: 'http://u:p@x'}]}", "no password"),
        ("live: {servers: [{url: 'http://x/other'}]}", "is not passed on"),
        ("live: {servers: [{url: 'http://x'}, {url: 'http://x'}]}", "listed twice"),
        ("live: {servers: [{url: 'http://x/v1'}, {url: 'http://X:80/v1/'}]}", "listed twice"),
        ("live: {servers: [{url: 'http://['}, {url: 'http://['}]}", "not an http:// or https://"),
        ("live: {listen: nowhere}", "'nowhere' is not an address; allowed: HOST:PORT, such as"),
        ("live: {listen: 8080}", "8080 is not an address; allowed: HOST:PORT, such as"),
        ("live: {certificate: a.pem}", "go together"),
        ("live: {clients: [{key_env: K, classes: [vip]}]}", "there is no class 'vip'"),
        ("slo: {vip: {}}", "no priority"),
        ("serving: {router: {policy: wieghted}}", "weighted"),
        ("live: {limits: {body: -1MiB}}", "body"),
        ("lives: {}", "live"),
        ("live: {}", "there is no server"),
    ],
)
def test_a_bad_configuration_is_a_sentence_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    file = config(tmp_path, text + "\n")
    with pytest.raises(InputError) as error:
        read_settings(file, (), ())
    assert said in str(error.value)
    assert str(file) in str(error.value)
