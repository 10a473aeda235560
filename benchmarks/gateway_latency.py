"""Latency that the gateway adds at a steady rate, and thousands of connections at once.

The same requests go to a server directly and through the gateway, at the same times; the difference
of the percentiles is what the gateway adds. It is only meaningful on an otherwise idle machine.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.claim import Claim, report
from benchmarks.gateway_speed import ours, request, run_loop, started
from windtunnel.core.clock import lap_s
from windtunnel.core.random import Streams
from windtunnel.live.system import connections_allowed

PER_S = 1000.0
SECONDS = 10.0
P50_MS = 0.5
P99_MS = 3.0
CONNECTIONS = 5000


async def steady(port: int) -> None:
    """Prints the median and the 99th percentile of the time to the first byte, in ms.

    Times count from when a request was due, so that a request sent late, because earlier ones were
    slow, does not look faster.
    """
    asked = request(port, "x" * 2000)
    arrivals = Streams(1)["arrivals"]
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    times: list[float] = []

    async def one(due_s: float) -> None:
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        await reader.readuntil(b"\r\n\r\n")
        times.append(lap_s() - due_s)
        await reader.readuntil(b"0\r\n\r\n")
        idle.append((reader, writer))

    tasks = []
    due_s = lap_s()
    until_s = due_s + SECONDS
    while due_s < until_s:
        due_s += arrivals.exponential(1.0 / PER_S)
        if due_s > lap_s():
            await asyncio.sleep(due_s - lap_s())
        tasks.append(asyncio.ensure_future(one(due_s)))
    await asyncio.gather(*tasks)
    times.sort()
    print(times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3)


async def crowd(port: int) -> None:
    """Opens connections with a request each, all at once; prints how many were answered."""
    connections_allowed(CONNECTIONS + 100)
    asked = request(port, "x")
    opened = asyncio.Semaphore(500)  # handshakes under way: the kernel's queue has an end
    ready = 0
    go = asyncio.Event()

    async def one() -> bool:
        nonlocal ready
        async with opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ready += 1
        if ready == CONNECTIONS:
            go.set()
        await go.wait()
        writer.write(asked)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        return b" 200 " in head[:20]

    found = await asyncio.gather(*(one() for _ in range(CONNECTIONS)), return_exceptions=True)
    print(sum(one is True for one in found))


@contextmanager
def running() -> Iterator[tuple[int, int]]:
    """The port of a server, and the port of a gateway in front of eight."""
    with tempfile.TemporaryDirectory() as folder:
        serving = [sys.executable, "-m", "benchmarks.gateway_speed", "serve"]
        with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as upstream:
            assert upstream.stdout is not None
            ports = [int(text) for text in upstream.stdout.readline().split()]
            admission = "--set=serving.admission={policy: always}"
            try:
                with started(lambda port: [*ours(ports, port), admission], folder) as (_, port):
                    yield ports[0], port
            finally:
                upstream.terminate()


def said(*arguments: str) -> list[float]:
    command = [sys.executable, "-m", __spec__.name, *arguments]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(text) for text in out.split()]


def main() -> None:
    with running() as (server, gateway):
        alone = said("steady", str(server))
        through = said("steady", str(gateway))
        answered = said("crowd", str(gateway))[0]
    for name, number, target in (("median", 0, P50_MS), ("99th percentile", 1, P99_MS)):
        report(
            Claim(
                f"gateway: added latency at {PER_S:.0f} requests/s, {name}",
                ours=through[number] - alone[number],
                baseline=target,
                most=1.0,
                unit="ms",
                against="target",
            )
        )
    report(
        Claim(
            f"gateway: requests on {CONNECTIONS} connections at once",
            ours=CONNECTIONS,
            baseline=answered,
            most=1.0,
            unit="requests",
            against="answered",
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["steady", port]:
            run_loop(steady(int(port)))
        case ["crowd", port]:
            run_loop(crowd(int(port)))
        case _:
            main()
