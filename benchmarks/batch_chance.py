"""`windtunnel batch` with 3 % of calls refused at random, beside a semaphore with back-off.

A small server on loopback answers after 100 ms and refuses some calls with 429, with or without
Retry-After. Both clients have 32 slots and the same rows. The plain one holds a slot while a call
backs off: for its Retry-After, or else half a second, doubled each time, with up to half of it
random. Wall time, from the first call to the last answer, as the server sees it; the least of
three.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp

from benchmarks.claim import Claim, report
from windtunnel.core.random import Stream

ROWS = 2000
SLOTS = 32
REPEATS = 3
SHARE = 0.03
SERVICE_S = 0.1
LEAST = 0.90

SERVER = """
import asyncio, random, sys, time
share, service_s, wait_s = (float(word) for word in sys.argv[1:])
chance = random.Random(1)
BODY = b'{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":9}}'
seen = [0.0, 0.0]

def reply(status, body, more=b""):
    head = b"HTTP/1.1 %s\\r\\ncontent-type: application/json\\r\\n%scontent-length: %d\\r\\n\\r\\n"
    return head % (status, more, len(body)) + body

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            _, _, length = head.lower().partition(b"content-length:")
            await reader.readexactly(int(length.split(b"\\r\\n")[0])) if length else None
            if head.startswith(b"GET /v1/models"):
                said = reply(b"200 OK", b'{"data":[{"id":"m"}]}')
            elif head.startswith(b"GET /seen"):
                said = reply(b"200 OK", b"[%f, %f]" % tuple(seen))
                seen[:] = [0.0, 0.0]
            elif chance.random() < share:
                seen[0] = seen[0] or time.monotonic()
                more = b"retry-after: %g\\r\\n" % wait_s if wait_s else b""
                said = reply(b"429 Too Many Requests", b'{"error":{"message":"no"}}', more)
            else:
                seen[0] = seen[0] or time.monotonic()
                await asyncio.sleep(service_s)
                seen[1] = time.monotonic()
                said = reply(b"200 OK", BODY)
            writer.write(said)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


async def plain(url: str) -> None:
    """A semaphore with back-off."""
    chance, slots = Stream(2, "back-off"), asyncio.Semaphore(SLOTS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": f"say {number}"}]}
            async with slots:
                for tries in range(100):
                    async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                        await reply.read()
                        if reply.status == 200:
                            return
                        wait_s = float(reply.headers.get("retry-after", 0))
                    back_off_s = 0.5 * 2.0**tries * chance.between(0.5, 1.0)
                    await asyncio.sleep(wait_s or back_off_s)

        await asyncio.gather(*(call(number) for number in range(ROWS)))


async def took_s(url: str) -> float:
    """Seconds from the first call to the last answer, since the previous call of this function."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/seen") as reply:
        first, last = json.loads(await reply.read())
    return float(last - first)


def ours(url: str, folder: Path) -> None:
    source = folder / "in.jsonl"
    rows = (json.dumps({"id": f"r{n}", "prompt": f"say {n}"}) + "\n" for n in range(ROWS))
    source.write_text("".join(rows))
    for old in folder.glob("out*"):
        old.unlink()
    command = [sys.executable, "-m", "windtunnel", "batch", str(source), "--endpoint", url]
    command += ["-o", str(folder / "out.jsonl"), "--concurrency", str(SLOTS)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert (folder / "out.jsonl").read_bytes().count(b"\n") == ROWS


def main() -> None:
    for wait_s in (0.0, 1.0):
        serve = [sys.executable, "-c", SERVER, str(SHARE), str(SERVICE_S), str(wait_s)]
        with (
            tempfile.TemporaryDirectory() as place,
            subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server,
        ):
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            try:
                theirs_s = ours_s = float("inf")
                for _ in range(REPEATS):
                    asyncio.run(plain(url))
                    theirs_s = min(theirs_s, asyncio.run(took_s(url)))
                    ours(url, Path(place))
                    ours_s = min(ours_s, asyncio.run(took_s(url)))
            finally:
                server.terminate()
        said = f"Retry-After {wait_s:g} s" if wait_s else "no Retry-After"
        report(
            Claim(
                f"batch, 3 % refused by chance, {said}: time of a row",
                ours=1e3 * ours_s / ROWS,
                baseline=1e3 * theirs_s / ROWS,
                most=1.0 / LEAST,
                unit="ms",
                against="a semaphore with back-off",
            )
        )


if __name__ == "__main__":
    main()
