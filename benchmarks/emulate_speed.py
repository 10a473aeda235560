"""Cost of a streaming request of 100 tokens to `windtunnel emulate`: CPU time of its process.

The server is a process of its own, over real sockets; its clients are not counted. With `--speedup
inf` all tokens are ready at once and sent in one chunk; in real time each is a chunk. Beside that,
a server on the same event loop that parses nothing writes as many chunks, for all connections at
once every few milliseconds: what remains without anything of ours.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.claim import Claim, report

TOKENS = 100
CONNECTIONS = 32
WARM_UP = 200
AT_ONCE_US = 400.0
STEP_S = 0.006
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"


def used_s(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(port: int, requests: int) -> int:
    """Sends requests over keep-alive connections, and returns the number of chunks received."""
    body = {
        "model": "llama-3.1-8b",
        "stream": True,
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": "Say something of about a hundred tokens."}],
    }
    text = json.dumps(body)
    message = f"{HEAD}content-length: {len(text)}\r\n\r\n{text}".encode()
    pieces = 0
    left = requests

    async def client() -> None:
        nonlocal pieces, left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            writer.write(message)
            answer = await reader.readuntil(b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            pieces += answer.count(b"data: {")
        writer.close()

    await asyncio.gather(*[client() for _ in range(CONNECTIONS)])
    return pieces


def emulate(speedup: str) -> list[str]:
    """The command of an emulated server."""
    serve = ["-m", "windtunnel", "emulate", "--model", "llama-3.1-8b"]
    return [*serve, "--port", "0", "--speedup", speedup]


async def write_bare(pieces: int) -> None:
    """Answers whatever arrives with chunks of the size of one token, and looks at nothing."""
    chunk = b"f3\r\ndata: {%b}\n\n\r\n" % (b" " * (0xF3 - 10))
    left: dict[Any, int] = {}
    loop = asyncio.get_running_loop()

    class Writer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            if data.endswith(b"}]}"):
                left[self._transport] = pieces

    def step() -> None:
        for transport, count in list(left.items()):
            first = b"HTTP/1.1 200 OK\r\n\r\n" if count == pieces else b""
            last = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" if count == 1 else b""
            transport.write(first + chunk + last)
            left[transport] -= 1
            if last:
                del left[transport]
        loop.call_later(STEP_S, step)

    server = await loop.create_server(Writer, "127.0.0.1", 0)
    print(f"serving at http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    step()
    await server.serve_forever()


def measure(serve: list[str], requests: int) -> tuple[float, float]:
    """Microseconds per request, and the number of chunks of its answer."""
    with subprocess.Popen([sys.executable, *serve], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().split()[2].rstrip("/").rpartition(":")[2])
            asyncio.run(ask(port, WARM_UP))
            before_s = used_s(server.pid)
            pieces = asyncio.run(ask(port, requests))
            return (used_s(server.pid) - before_s) / requests * 1e6, pieces / requests
        finally:
            server.terminate()


def main() -> None:
    load = os.getloadavg()[0]
    each_us, pieces = min(measure(emulate("inf"), 3_000) for _ in range(3))
    report(
        Claim(
            f"emulate, a streaming request of {TOKENS} tokens at once, {pieces:.0f} pieces,"
            f" at a load of {load:.0f}",
            ours=each_us,
            baseline=AT_ONCE_US,
            most=1.0,
            unit="CPU us",
            against="the target",
        )
    )
    each_us, pieces = measure(emulate("1"), 640)
    bare_us, _ = measure(["-m", "benchmarks.emulate_speed", str(round(pieces))], 640)
    print(f"  {pieces:.0f} bare writes: {bare_us:.0f} CPU us")
    report(
        Claim(
            f"the same in real time, {pieces:.0f} pieces",
            ours=each_us,
            baseline=AT_ONCE_US,
            most=1.0,
            unit="CPU us",
            against="the target",
        )
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvloop

        uvloop.run(write_bare(int(sys.argv[1])))
    else:
        main()
