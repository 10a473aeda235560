"""An emulated server on a real port: the official client, signals, and ports that are taken."""

import asyncio
import contextlib
import json
import re
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.live.emulated import FALLS_SILENT_S, command, plan
from windtunnel.cli.live.emulate import EmulateOptions, build_intake
from windtunnel.core.errors import InputError
from windtunnel.live.emulate.app import build_app
from windtunnel.live.emulate.faults import ResponseFault
from windtunnel.live.filler import filler
from windtunnel.live.serving import listen, serve, url_of

openai = pytest.importorskip("openai")

QUICK = EmulateOptions(speedup=1000.0)


def with_port(use: Callable[[str], Awaitable[None]], settings: EmulateOptions = QUICK) -> None:
    """Runs `use` with the address of a server on a free port."""

    def build(loop: asyncio.AbstractEventLoop) -> Any:
        return build_app(build_intake(plan(), settings, loop))

    async def main() -> None:
        stop = asyncio.Event()
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with listen("127.0.0.1", 0) as bound:
            async with asyncio.timeout(FALLS_SILENT_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(serve(build, bound, address.set_result, stop))
                try:
                    await use(await address)
                finally:
                    stop.set()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def client_of(url: str, **options: Any) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", **options) as client:
        yield client


def test_the_official_client_works_unchanged() -> None:
    async def use(url: str) -> None:
        async with client_of(url) as client:
            assert [model.id async for model in client.models.list()] == ["steady"]
            asked: Any = {"model": "steady", "messages": [{"role": "user", "content": "hello"}]}
            answer = await client.chat.completions.create(**asked, max_tokens=7)
            assert len(answer.choices[0].message.content.split()) == 7
            assert answer.usage.completion_tokens == 7
            stream = await client.chat.completions.create(
                **asked, max_tokens=7, stream=True, stream_options={"include_usage": True}
            )
            pieces = [piece async for piece in stream]
            said = "".join(p.choices[0].delta.content for p in pieces if p.choices)
            assert len(said.split()) == 7
            assert pieces[-1].usage.total_tokens == 10 + 7
            plain = await client.completions.create(model="steady", prompt="hello", max_tokens=3)
            assert len(plain.choices[0].text.split()) == 3

    with_port(use)


def test_the_official_client_raises_its_own_errors() -> None:
    async def use(url: str) -> None:
        message = [{"role": "user", "content": "hello"}]
        async with client_of(url, max_retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await client.chat.completions.create(model="other", messages=message)
            with pytest.raises(openai.BadRequestError, match="max_tokens is -1"):
                await client.chat.completions.create(
                    model="steady", messages=message, max_tokens=-1
                )
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="steady", messages=message)

    with_port(use, QUICK._replace(faults=(ResponseFault(1.0, status=503),)))


def test_a_client_that_hangs_up_is_noticed_on_the_wire() -> None:
    async def use(url: str) -> None:
        message = [{"role": "user", "content": "hello"}]
        async with client_of(url) as client:
            stream = await client.chat.completions.create(
                model="steady", messages=message, max_tokens=4000, stream=True
            )
            await anext(aiter(stream))
            await stream.close()
            page = ""
            while 'finished_reason="abort",model_name="steady"} 1.0' not in page:
                page = (await client._client.get(f"{url}/metrics")).text

    with_port(use, EmulateOptions())


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: cannot listen there"):
            listen("127.0.0.1", port)
    with pytest.raises(InputError, match="not an address"):
        listen("no such host.invalid", 80)


def test_an_address_reads_as_one_writes_it() -> None:
    with listen("127.0.0.1", 0) as bound:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url_of(bound))
    if not socket.has_ipv6:
        return
    with contextlib.suppress(InputError), listen("::1", 0) as bound:
        assert re.fullmatch(r"http://\[::1\]:\d+", url_of(bound))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_listens_and_stops_when_it_is_asked_to(number: signal.Signals) -> None:
    with command("--model", "llama-3.1-8b", "--speedup", "inf") as (process, said):
        assert re.fullmatch(
            r"listening on http://127\.0\.0\.1:\d+ as llama-3\.1-8b: answers at once\n", said
        )
        url = said.split()[2]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            client.completions.create(model="llama-3.1-8b", prompt="hello", max_tokens=3)
            process.send_signal(number)
            out, err = process.communicate(timeout=FALLS_SILENT_S)
    assert (process.returncode, out, err) == (0, "stopped; 1 requests were answered\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_answers_under_way_end_with_an_error_when_the_command_stops(number: signal.Signals) -> None:
    with command("--model", "llama-3.1-8b", "--speedup", "0.1") as (process, said):
        port = int(said.split()[2].rpartition(":")[2])

        def ask(*, stream: bool) -> socket.socket:
            body = json.dumps(
                {"model": "llama-3.1-8b", "prompt": "a", "max_tokens": 4000, "stream": stream}
            )
            one = socket.create_connection(("127.0.0.1", port), timeout=FALLS_SILENT_S)
            head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
            one.sendall(f"{head}\r\n{body}".encode())
            return one

        with ask(stream=True) as stream, ask(stream=False) as plain:
            got = stream.recv(1 << 16)
            assert got.startswith(b"HTTP/1.1 200 ")
            process.send_signal(number)
            while piece := stream.recv(1 << 16):
                got += piece
            *_, event = (line for line in got.splitlines() if line.startswith(b"data: "))
            assert "stopping" in json.loads(event[6:])["error"]["message"]
            assert got.endswith(b"\r\n0\r\n\r\n")
            assert plain.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        _, err = process.communicate(timeout=FALLS_SILENT_S)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("speedup", [20.0, 1000.0, 1e6])
def test_pieces_of_a_stream_have_every_token_once_and_in_order(speedup: float) -> None:
    """Whether each token is written as it comes, or several where they come faster."""

    async def use(url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        asked = {"model": "steady", "stream": True, "max_tokens": 300, "prompt": "hello"}
        body = json.dumps(asked)
        for number in range(2):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}content-type: application/json\r\n\r\n{body}".encode())
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.close()
            lines = [line for line in answer.split(b"\n") if line.startswith(b"data: {")]
            choices = [json.loads(line[6:])["choices"][0] for line in lines]
            assert "".join(one["text"] for one in choices) == filler(300, number)
            assert [one["finish_reason"] for one in choices] == [None] * (len(lines) - 1) + [
                "length"
            ]

    with_port(use, EmulateOptions(speedup=speedup))


def test_an_address_that_means_all_is_shown_as_one_that_can_be_reached() -> None:
    bound: Any = type("Bound", (), {"getsockname": lambda _: ("0.0.0.0", 80)})()
    assert url_of(bound) == "http://127.0.0.1:80"
