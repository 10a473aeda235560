"""The gateway behind real clients: OpenAI's, over plain connections and TLS, and its own replay."""

import asyncio
import datetime
import ipaddress
import json
import ssl
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.live.gateway.bed import (
    STREAM_HEAD,
    Bed,
    FakeServer,
    Received,
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
from windtunnel.core.clock import unix_s
from windtunnel.live.gateway.audit import audit
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load


def client_of(it: Bed, **more: Any) -> openai.AsyncOpenAI:
    url = f"http://127.0.0.1:{it.port}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, **more)


def test_openais_client_gets_answers_streams_models_and_errors() -> None:
    async def test() -> None:
        async with bed(friendly, friendly) as it, client_of(it) as client:
            messages: Any = [{"role": "user", "content": "hi"}]
            got = await client.chat.completions.create(model="m", messages=messages)
            assert got.choices[0].message.content == "hello"
            assert got.usage is not None
            stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
            words = [one.choices[0].delta.content async for one in stream]
            assert words == ["one", "two", "three"]
            counted = await client.chat.completions.create(
                model="m", messages=messages, stream=True, stream_options={"include_usage": True}
            )
            last = [one async for one in counted][-1]
            assert last.usage is not None
            assert last.usage.completion_tokens == 3
            assert [one.id async for one in client.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError) as error:
                await client.chat.completions.create(model="x", messages=messages)
            assert error.value.code == "model_not_found"
            it.settled()

    run(test())


def test_a_stream_that_is_cut_raises_in_openais_client() -> None:
    async def half(_: Any, writer: asyncio.StreamWriter, __: FakeServer) -> None:
        writer.write(STREAM_HEAD + chunk(event("one")))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def test() -> None:
        async with bed(half) as it, client_of(it) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(openai.APIError):
                [one async for one in stream]

    run(test())


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.fromtimestamp(unix_s(), datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_tls_to_clients_and_to_servers(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    cert, key = certificate(tmp_path)

    async def test() -> None:
        server = FakeServer()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        listening = await asyncio.start_server(server._serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        config = tmp_path / "gateway.yaml"
        config.write_text(
            f"live:\n  certificate: {cert}\n  certificate_key: {key}\n"
            f"  servers: [{{url: '{url}', ca: {cert}}}]\n"
        )
        async with bed(friendly, config=config, ready=False) as it:
            await it.until(
                lambda: len(it.core.servers) == 2 and it.core.servers[0].availability.healthy
            )
            await it.servers[0].stop()
            trusting = ssl.create_default_context(cafile=str(cert))
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port, ssl=trusting)
            for _ in range(3):
                writer.write(request(headers={"x-windtunnel-explain": "1"}))
                got = await read_answer(reader)
                assert (got.status, got.headers["x-windtunnel-server"]) == (200, url)
            writer.close()
        listening.close()

    run(test())


def test_the_trace_is_replayed_by_a_simulation_and_the_log_by_an_audit(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "trace"

    async def test() -> None:
        sets = (f"live.log={log}", f"live.trace={{folder: {folder}}}")
        async with bed(friendly, friendly, sets=sets) as it:
            text = [{"role": "user", "content": "the same start " * 100}]
            for number in range(20):
                session = {"x-session-id": f"user-{number % 4}"}
                body = chat(stream=True) | {"messages": text}
                assert (await it.ask(body, headers=session)).status == 200
            assert (await it.ask(chat() | {"model": "none"})).status == 404
            it.settled()

    run(test())
    (trace,) = folder.iterdir()
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(rows) == 20
    assert {row["outcome"] for row in rows} == {"completed"}
    assert {(row["prompt_tokens"], row["output_tokens"]) for row in rows} == {(7, 3)}
    assert len({row["session"] for row in rows}) == 4
    text = trace.read_text() + log.read_text()
    assert "the same" not in text
    assert "user-1" not in text
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"name: replay\nworkload:\n  - trace: {{path: {trace}}}\n"
        "serving:\n  pools:\n    - name: main\n      replicas: 2\n"
        "      engine: {kv_blocks: 2000}\n      step_time: {model: linear, fixed: 5ms}\n"
    )
    result = simulate(load(scenario))
    assert result["requests"]["completed"] == 20
    report = audit(log)
    assert (report.difference, report.decisions) == ("", 40)


def test_requests_without_an_answer_are_in_the_trace_without_tokens_and_not_replayed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "trace"

    async def picky(received: Received, writer: asyncio.StreamWriter, server: FakeServer) -> None:
        asked = json.loads(received.body)["max_tokens"]
        if asked > 1000:
            writer.write(whole(b'{"error": {"message": "too long"}}', "400 Bad Request"))
        elif asked == 9:  # it does not say how many tokens came
            writer.write(whole(b'{"choices": []}'))
        else:
            await friendly(received, writer, server)

    async def test() -> None:
        async with bed(picky, sets=(f"live.trace={{folder: {folder}}}",)) as it:
            for tokens, status in ((300_000, 400), (9, 200), (5, 200)):
                assert (await it.ask(chat(max_tokens=tokens))).status == status
            it.settled()

    run(test())
    (trace,) = folder.iterdir()
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    found = [(row["outcome"], row["output_tokens"]) for row in rows]
    assert found == [("failed", 0), ("completed", 9), ("completed", 3)]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"name: replay\nworkload:\n  - trace: {{path: {trace}}}\n"
        "serving:\n  pools:\n    - name: main\n"
        "      engine: {kv_blocks: 2000}\n      step_time: {model: linear, fixed: 5ms}\n"
    )
    result = simulate(load(scenario))
    assert result["requests"]["arrived"] == 2
    (finding,) = [one for one in result["trust"]["findings"] if one["code"] == "left-out"]
    assert "1 without a prompt or an output were not replayed" in finding["says"]
