"""A small HTTP server on a real socket whose every reply a test decides, down to the bytes."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

PATIENCE_S = 120.0


class Asked:
    """A request as it came in."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body: dict[str, Any] = json.loads(body) if body else {}

    @property
    def prompt(self) -> str:
        """The last thing that was said to the model."""
        if "messages" in self.body:
            return str(self.body["messages"][-1]["content"])
        return str(self.body.get("prompt", self.body.get("input", "")))


class Said:
    """A reply; `raw` is sent as it is, and `hold` is waited for first."""

    def __init__(
        self,
        status: int = 200,
        body: object = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
        hold: Callable[[], Awaitable[None]] | None = None,
        hang_up: bool = False,
        reset: bool = False,
    ) -> None:
        self.status = status
        self.content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.headers = headers or {"content-type": "application/json"}
        self.raw = raw
        self.hold = hold
        self.hang_up = hang_up
        self.reset = reset

    def bytes(self) -> bytes:
        if self.raw is not None:
            return self.raw
        head = [f"HTTP/1.1 {self.status} Status", f"content-length: {len(self.content)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*head, "", ""]).encode() + self.content


Reply = Callable[[Asked], Said]


def answer(asked: Asked) -> Said:
    """What a well-behaved model says: the prompt in capitals."""
    text = asked.prompt.upper()
    usage = {"prompt_tokens": len(asked.prompt), "completion_tokens": 7, "total_tokens": 7}
    if asked.path.endswith("/embeddings"):
        return Said(200, {"object": "list", "data": [{"embedding": [0.5]}], "usage": usage})
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if asked.path.endswith("/chat/completions"):
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    body = {"id": "x", "model": asked.body.get("model"), "choices": [choice], "usage": usage}
    return Said(200, body, {"content-type": "application/json", "x-request-id": "req-1"})


class Server:
    """Listens on a free port; `reply` decides, `asked` remembers."""

    def __init__(self, reply: Reply = answer, models: tuple[str, ...] | None = ("m",)) -> None:
        self.reply = reply
        self.models = models
        self.asked: list[Asked] = []
        self.probes: list[Asked] = []
        self.port = 0
        self.most_at_once = 0
        self._at_once = 0
        self._news = threading.Condition()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def prompts(self) -> list[str]:
        return [asked.prompt for asked in self.asked]

    @contextlib.contextmanager
    def running(self) -> Iterator["Server"]:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE_S)
            yield self
        finally:
            self.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE_S)
            self._loop.close()

    def close(self) -> None:
        """Breaks every connection and takes no more."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        plain = dict(line.split(": ", 1) for line in head[1:] if line)
        headers["authorization"] = plain.get("Authorization", "")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        said = self._said(Asked(method, path, headers, body))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if said.hold is not None:
                await said.hold()
            if said.reset:
                writer.transport.abort()
                return False
            writer.write(said.bytes())
            await writer.drain()
        finally:
            self._at_once -= 1
        return not said.hang_up

    def _said(self, asked: Asked) -> Said:
        if asked.path.endswith("/models"):
            self.probes.append(asked)
            if self.models is None:
                return Said(404, {"error": {"message": "no such place"}})
            listed = [{"id": name, "object": "model"} for name in self.models]
            return Said(200, {"object": "list", "data": listed})
        with self._news:
            self.asked.append(asked)
            self._news.notify_all()
        return self.reply(asked)

    def wait_for(self, number: int) -> None:
        """Returns when so many requests have come."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.asked) >= number, PATIENCE_S)
