"""CPU time of the Endpoint Picker per request, with the messages that Envoy sends for a stream.

A client in another process plays Envoy: request headers, the body in one message, response headers
and chunks, each acknowledged by the picker. Only the CPU time of the gateway is counted. In the
same run, driven the same way: a grpcio service that reads every message and returns an empty one.
"""

import asyncio
import importlib.util
import json
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.claim import Claim, report
from benchmarks.gateway_speed import (
    EVENT,
    PIECES,
    SERVERS,
    cpu_of,
    free_port,
    ours,
    run_loop,
    started,
)

AT_ONCE = 32
REQUESTS = 3000
WARM_UP = 300
TARGET_US = 500.0
PROMPT = 2000


async def drive(port: int, requests: int, pieces: int) -> None:
    """External-processing streams, `AT_ONCE` at a time."""
    import grpc
    from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
    from envoy.service.ext_proc.v3 import external_processor_pb2 as messages
    from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub

    def head(**headers: str) -> Any:
        listed = [HeaderValue(key=name, raw_value=text.encode()) for name, text in headers.items()]
        return messages.HttpHeaders(headers=HeaderMap(headers=listed))

    asked = head(**{":method": "POST", ":path": "/v1/chat/completions", ":authority": "x",
                    "content-type": "application/json", "accept": "*/*"})  # fmt: skip
    text = ("The quick brown fox jumps over the lazy dog. " * 50)[:PROMPT]
    body = json.dumps({"model": "m", "stream": True, "max_tokens": PIECES,
                       "messages": [{"role": "user", "content": text}]}).encode()  # fmt: skip
    answered = head(**{":status": "200", "content-type": "text/event-stream"})
    first = messages.ProcessingRequest(request_headers=asked)
    whole = messages.ProcessingRequest(
        request_body=messages.HttpBody(body=body, end_of_stream=True)
    )
    begins = messages.ProcessingRequest(response_headers=answered)
    piece = messages.ProcessingRequest(response_body=messages.HttpBody(body=EVENT))
    done = messages.HttpBody(body=b"data: [DONE]\n\n", end_of_stream=True)
    last = messages.ProcessingRequest(response_body=done)
    left = requests

    async def one(stub: Any) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            call = stub.Process()
            await call.write(first)
            await call.write(whole)
            assert (await call.read()).WhichOneof("response") == "request_headers"
            assert (await call.read()).WhichOneof("response") == "request_body"
            await call.write(begins)
            await call.read()
            for _ in range(pieces):
                await call.write(piece)
                await call.read()
            await call.write(last)
            await call.read()
            await call.done_writing()

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ExternalProcessorStub(channel)
        await asyncio.gather(*(one(stub) for _ in range(AT_ONCE)))


async def serve_empty(port: int) -> None:
    """The cost of grpcio alone: messages are neither decoded nor decided on."""
    import grpc
    from envoy.service.ext_proc.v3 import external_processor_pb2 as messages

    def empty(kind: str) -> bytes:
        part = messages.HeadersResponse if kind.endswith("headers") else messages.BodyResponse
        return bytes(messages.ProcessingResponse(**{kind: part()}).SerializeToString())

    picked = [empty("request_headers"), empty("request_body")]
    began, passed = empty("response_headers"), empty("response_body")

    async def process(_: Any, context: Any) -> None:
        for _ in picked:
            await context.read()
        for one in picked:
            await context.write(one)
        answer = began
        while await context.read() is not grpc.aio.EOF:
            await context.write(answer)
            answer = passed

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(process)
    name = "envoy.service.ext_proc.v3.ExternalProcessor"
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, {"Process": handler})]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


def measure(pid: int, port: int) -> dict[int, float]:
    """CPU microseconds per request, by the number of chunks in its answer."""
    driver = [sys.executable, "-m", __spec__.name, "drive", str(port)]
    subprocess.run([*driver, str(WARM_UP), str(PIECES)], check=True)
    found = {}
    for pieces in (1, PIECES):
        before = cpu_of(pid)
        subprocess.run([*driver, str(REQUESTS), str(pieces)], check=True)
        found[pieces] = (cpu_of(pid) - before) / REQUESTS * 1e6
    return found


def measure_empty() -> dict[int, float]:
    port = free_port()
    command = [sys.executable, "-m", __spec__.name, "empty", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            one.stdout.readline()
            return measure(one.pid, port)
        finally:
            one.terminate()


def main() -> None:
    if importlib.util.find_spec("grpc") is None:
        print("grpcio is not installed here: pip install 'windtunnel[picker]'")
        return
    empty_us = measure_empty()
    with tempfile.TemporaryDirectory() as folder:
        serving = [sys.executable, "-m", "benchmarks.gateway_speed", "serve"]
        with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as upstream:
            assert upstream.stdout is not None
            ports = [int(text) for text in upstream.stdout.readline().split()]
            assert len(ports) == SERVERS
            picker = ["--picker-port", str(free_port())]
            try:
                with started(lambda port: [*ours(ports, port), *picker], folder) as (one, _):
                    own_us = measure(one.pid, int(picker[1]))
            finally:
                upstream.terminate()
    for pieces, found_us in own_us.items():
        report(
            Claim(
                f"gateway: CPU of the Endpoint Picker per request, answers in pieces: {pieces}",
                ours=found_us,
                baseline=TARGET_US,
                most=1.0,
                unit="us",
                against="target",
            )
        )
        report(
            Claim(
                f"gateway: the same beside an empty service on grpcio, pieces: {pieces}",
                ours=found_us,
                baseline=empty_us[pieces],
                most=1.0,
                unit="us",
                against="grpcio, empty",
            )
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["drive", port, requests, pieces]:
            run_loop(drive(int(port), int(requests), int(pieces)))
        case ["empty", port]:
            run_loop(serve_empty(int(port)))
        case _:
            main()
