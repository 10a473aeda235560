"""CPU time of the gateway per proxied streaming request, beside its peers in the same run.

Eight fake servers stream an answer of `PIECES` events from another process; a third process sends
requests over keep-alive connections. Only the CPU time of the proxy between them is counted. The
routers of vLLM and SGLang (PyPI `vllm-router`, `sglang-router`), LiteLLM's proxy (`litellm[proxy]`)
and nginx are measured if their commands are installed, or named by `VLLM_ROUTER`, `SGLANG_ROUTER`,
`LITELLM` and `NGINX`. A tunnel on the same event loop, which forwards bytes without parsing them,
shows the cost of reading and writing alone.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

from benchmarks.claim import Claim, report
from windtunnel.live.system import new_loop

SERVERS = 8
PIECES = 16
AT_ONCE = 32
WARM_UP = 1000
REQUESTS = 6000
TARGET_US = 150.0
PROMPT = 2000
LARGE_PROMPT = 220_000
LARGE_TARGET_US = 400.0
IDLE_STREAMS = 2000
IDLE_TARGET_KB = 30.0
PROBE_S = 10.0
STARTS = 3

EVENT = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'  # noqa: E501
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"  # noqa: E501
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """Answers every POST with a stream, one chunk per loop iteration; GETs like vLLM."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            size = 0
            for line in head.split(b"\r\n")[1:]:
                if line.startswith(b"content-length:"):
                    size = int(line[15:])
            if len(self._data) < end + 4 + size:
                return
            self._data = self._data[end + 4 + size :]
            if head.startswith(b"get"):
                self._get(head)
            else:
                self._transport.write(HEAD)  # type: ignore[attr-defined]
                self._piece(0)

    def _get(self, head: bytes) -> None:
        body = b""
        if b"/v1/models" in head:
            body = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
        elif b"/metrics" in head:
            body = b"vllm:num_requests_waiting 0\nvllm:num_requests_running 1\n"
        kind = b"text/plain" if b"/metrics" in head else b"application/json"
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
        self._transport.write(answer % (kind, len(body), body))  # type: ignore[attr-defined]

    def _piece(self, number: int) -> None:
        if self._transport.is_closing():
            return
        if number == PIECES:
            self._transport.write(LAST)  # type: ignore[attr-defined]
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_later(0.001, self._piece, number + 1)


class Silent(Upstream):
    """Begins every answer, and never continues it."""

    def _piece(self, number: int) -> None:  # noqa: ARG002
        self._transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))  # type: ignore[attr-defined]


class TunnelEnd(asyncio.Protocol):
    """One end of a tunnel, which forwards data to the other end."""

    other: "TunnelEnd | None" = None
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None:
            self.other.transport.close()


class TunnelStart(TunnelEnd):
    """The clients' end. Data received before the server connection is open is held back."""

    ports: tuple[int, ...] = ()
    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._early = b""
        port = self.ports[TunnelStart.made % len(self.ports)]
        TunnelStart.made += 1
        self._connecting = asyncio.ensure_future(self._connect(port))

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            self.other.transport.write(data)

    async def _connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        _, end = await loop.create_connection(TunnelEnd, "127.0.0.1", port)
        end.other = self
        self.other = end
        end.transport.write(self._early)


async def tunnel(port: int, ports: tuple[int, ...]) -> None:
    TunnelStart.ports = ports
    await asyncio.get_running_loop().create_server(TunnelStart, "127.0.0.1", port)
    await asyncio.Event().wait()


async def serve(kind: type[Upstream]) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(kind, "127.0.0.1", 0) for _ in range(SERVERS)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()


def request(port: int, text: str) -> bytes:
    body = json.dumps(
        {
            "model": "m",
            "stream": True,
            "max_tokens": PIECES,
            "messages": [{"role": "user", "content": text}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        "user-agent: benchmark\r\naccept: */*\r\nauthorization: Bearer none\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def hold(port: int, pid: int) -> None:
    """Opens streams that stay open; prints the KiB of memory that each costs the gateway."""
    asked = request(port, "x" * 2000)
    writers = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        await reader.readuntil(b"\n\n")
        writers.append(writer)

    def resident_kb() -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    for _ in range(100):
        await one()
    before = resident_kb()
    for _ in range(IDLE_STREAMS // 100):
        await asyncio.gather(*(one() for _ in range(100)))
    print((resident_kb() - before) / IDLE_STREAMS)
    for writer in writers:
        writer.transport.abort()


async def drive(port: int, requests: int, prompt: int) -> None:
    """Sends requests one after another on each of `AT_ONCE` connections."""
    text = ("The quick brown fox jumps over the lazy dog. " * (prompt // 45 + 1))[:prompt]
    asked = request(port, text)
    left = requests

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            writer.write(asked)
            answer = await reader.readuntil(b"0\r\n\r\n")
            assert b" 200 " in answer[:20], answer[:300]
            assert answer.count(b"data: {") >= PIECES
        writer.close()

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and its threads."""
    return sum(cpu_parts_of(pid))


def cpu_parts_of(pid: int) -> tuple[float, float]:
    """CPU seconds in user mode, and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    per_s = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / per_s, int(fields[12]) / per_s


def run_loop(coroutine: object) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(coroutine)  # type: ignore[arg-type]


def wait_for(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Waits until a request is answered; False if the server ended before."""
    probe = [sys.executable, "-m", __spec__.name, "drive", str(port), "1", "20"]
    for _ in range(200):
        if server.poll() is not None:
            return False
        with suppress(subprocess.SubprocessError):
            subprocess.run(probe, capture_output=True, check=True, timeout=PROBE_S)
            return True
        Event().wait(0.2)
    sys.exit(f"nothing answers at port {port}")


@contextmanager
def started(
    command: Callable[[int], list[str]], folder: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Starts a proxy; yields its process and its port once it answers.

    A free port may be taken by a connection before the proxy listens on it; then another port is
    tried.
    """
    log = Path(folder, "proxy.log")
    for _ in range(STARTS):
        port = free_port()
        with (
            log.open("w") as out,
            subprocess.Popen(command(port), stdout=out, stderr=out, cwd=folder) as one,
        ):
            try:
                if wait_for(port, one):
                    yield one, port
                    return
            finally:
                one.terminate()
    sys.exit(f"{command(0)[0]} ended {STARTS} times at its start:\n{log.read_text()[-2000:]}")


class RequestCpu(NamedTuple):
    """CPU microseconds per request."""

    own_us: float
    kernel_us: float

    @property
    def us(self) -> float:
        return self.own_us + self.kernel_us


def measure(
    command: Callable[[int], list[str]], prompt: int, folder: str, requests: int
) -> RequestCpu:
    """The cost of a proxy; `command` starts it on a port."""
    with started(command, folder) as (one, port):
        driver = [sys.executable, "-m", __spec__.name, "drive", str(port)]
        subprocess.run([*driver, str(min(WARM_UP, requests)), str(prompt)], check=True)
        before = cpu_parts_of(one.pid)
        subprocess.run([*driver, str(requests), str(prompt)], check=True)
        after = cpu_parts_of(one.pid)
        own, kernel = ((b - a) / requests * 1e6 for a, b in zip(before, after, strict=True))
        return RequestCpu(own, kernel)


def measure_idle(folder: str) -> float:
    """KiB of memory per idle stream."""
    serve_silent = [sys.executable, "-m", __spec__.name, "serve", "silent"]
    with subprocess.Popen(serve_silent, stdout=subprocess.PIPE, text=True) as upstream:
        assert upstream.stdout is not None
        ports = [int(text) for text in upstream.stdout.readline().split()]
        port = free_port()
        command = [*ours(ports, port), "--set=serving.admission={policy: always}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder) as one:
            try:
                for _ in range(100):
                    Event().wait(0.1)
                    with socket.socket() as probe:
                        if probe.connect_ex(("127.0.0.1", port)) == 0:
                            break
                Event().wait(3.0)  # its servers are checked, and share requests evenly
                holder = [sys.executable, "-m", __spec__.name, "hold", str(port), str(one.pid)]
                return float(subprocess.run(holder, check=True, capture_output=True).stdout)
            finally:
                one.kill()
                upstream.terminate()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ours(ports: list[int], port: int) -> list[str]:
    admission = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 100}}"
    return [
        sys.executable,
        "-m",
        "windtunnel",
        "gateway",
        "--port",
        str(port),
        *(f"--server=http://127.0.0.1:{one}" for one in ports),
        f"--set=serving.admission={admission}",
        "--set=live.admin=127.0.0.1:0",
    ]


def bare(ports: list[int], port: int) -> list[str]:
    return [sys.executable, "-m", __spec__.name, "tunnel", str(port), *map(str, ports)]


NGINX = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  client_body_buffer_size 1m;
  upstream servers {{ {servers} keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
"""Chunks are forwarded unbuffered; servers take turns."""
LITELLM_MODEL = """\
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
"""


class Peer(NamedTuple):
    """Another proxy: the variable for its command, its routing, and the number of requests."""

    variable: str
    routes: str
    requests: int = REQUESTS


PEERS = {
    "vllm-router": Peer("VLLM_ROUTER", "cache_aware"),
    "sglang-router": Peer("SGLANG_ROUTER", "cache_aware"),
    "nginx": Peer("NGINX", "round robin"),
    "litellm": Peer("LITELLM", "simple-shuffle", REQUESTS // 10),
}


def theirs(peer: str, ports: list[int], folder: str) -> Callable[[int], list[str]] | None:
    """The command of a peer by the port it listens on; None if it is not installed."""
    variable = PEERS[peer].variable
    command = os.environ.get(variable) or shutil.which(peer)
    if command is None:
        print(f"{peer} is not installed here: {variable} names its command")
        return None
    return partial(_their_command, peer, command, ports, folder)


def _their_command(peer: str, command: str, ports: list[int], folder: str, port: int) -> list[str]:
    if peer == "nginx":
        servers = " ".join(f"server 127.0.0.1:{one};" for one in ports)
        Path(folder, "nginx.conf").write_text(NGINX.format(servers=servers, port=port))
        return [command, "-p", folder, "-c", "nginx.conf"]
    if peer == "litellm":
        models = "".join(LITELLM_MODEL.format(port=one) for one in ports)
        Path(folder, "litellm.yaml").write_text(f"model_list:\n{models}")
        return [command, "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    launch = ["launch"] if peer == "sglang-router" else []
    urls = [f"http://127.0.0.1:{one}" for one in ports]
    return [
        *(command, *launch, "--host", "127.0.0.1", "--port", str(port), "--policy", "cache_aware"),
        *("--prometheus-port", str(free_port()), "--worker-urls", *urls),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __spec__.name, "serve"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as upstream:
            try:
                assert upstream.stdout is not None
                ports = [int(text) for text in upstream.stdout.readline().split()]
                gateway = partial(ours, ports)
                own = measure(gateway, PROMPT, folder, REQUESTS)
                floor = measure(partial(bare, ports), PROMPT, folder, REQUESTS)
                large_us = measure(gateway, LARGE_PROMPT, folder, REQUESTS // 6).us
                peers = {
                    peer: measure(proxy, PROMPT, folder, PEERS[peer].requests)
                    for peer in PEERS
                    if (proxy := theirs(peer, ports, folder)) is not None
                }
            finally:
                upstream.terminate()
        idle_kb = measure_idle(folder)
    for name, found in {"gateway": own, "a tunnel on its event loop": floor, **peers}.items():
        print(f"{name}: {found.us:.0f} us a request, {found.kernel_us:.0f} us of it the kernel's")
    report(
        Claim(
            "gateway: memory of a stream that stands still",
            ours=idle_kb,
            baseline=IDLE_TARGET_KB,
            most=1.0,
            unit="KiB",
            against="target",
        )
    )
    report(
        Claim(
            "gateway: CPU per streaming request",
            ours=own.us,
            baseline=TARGET_US,
            most=1.0,
            unit="us",
            against="target",
        )
    )
    report(
        Claim(
            "gateway: CPU per streaming request with a prompt of 220 KB",
            ours=large_us,
            baseline=LARGE_TARGET_US,
            most=1.0,
            unit="us",
            against="target",
        )
    )
    for peer, found in peers.items():
        report(
            Claim(
                f"gateway: CPU per streaming request beside {peer}",
                ours=own.us,
                baseline=found.us,
                most=1.0,
                unit="us",
                against=f"{peer}, {PEERS[peer].routes}",
            )
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            run_loop(serve(Upstream))
        case ["serve", "silent"]:
            run_loop(serve(Silent))
        case ["tunnel", port, *ports]:
            run_loop(tunnel(int(port), tuple(map(int, ports))))
        case ["hold", port, pid]:
            run_loop(hold(int(port), int(pid)))
        case ["drive", port, requests, prompt]:
            run_loop(drive(int(port), int(requests), int(prompt)))
        case _:
            main()
