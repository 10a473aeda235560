"""Cost of a streaming request of 100 tokens to `windtunnel emulate`: CPU time of its process.

The server is a process of its own, over real sockets; its clients are not counted. With `--speedup
inf` all tokens are ready at once and sent in one chunk; in real time each is a chunk.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.claim import Claim, report

TOKENS = 100
CONNECTIONS = 32
WARM_UP = 200
AT_ONCE_US = 400.0
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


def measure(speedup: str, requests: int) -> tuple[float, float]:
    """Microseconds per request, and the number of chunks of its answer."""
    serve = [sys.executable, "-m", "windtunnel", "emulate", "--model", "llama-3.1-8b"]
    serve += ["--port", "0", "--speedup", speedup]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
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
    each_us, pieces = min(measure("inf", 3_000) for _ in range(3))
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
    each_us, pieces = measure("1", 640)
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
    main()
