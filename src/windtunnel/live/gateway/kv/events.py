"""Follows the KV-cache events of a server over ZeroMQ (extra `kv-events`)."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from windtunnel.live.gateway.kv.blocks import BadEvents, CacheChange, ServerBlocks, read_batch

if TYPE_CHECKING:
    from windtunnel.live.gateway.settings import KvEventSettings

MOST_MESSAGE_BYTES: Final = 64 << 20
MOST_QUEUED: Final = 100_000
MOST_REPLAYED_BYTES: Final = 256 << 20
"""Limit of one replay; what does not fit counts as a gap."""
REPLAY_S: Final = 5.0
AGAIN_S: Final = 1.0
REPLAY_ENDS: Final = b"\xff" * 8

_log = logging.getLogger("windtunnel.gateway")


class KvEventReader:
    """Reads the events of a server's rank in order, or detects that some are missing."""

    def __init__(
        self,
        host: str,
        settings: "KvEventSettings",
        rank: int,
        blocks: ServerBlocks,
        changed: Callable[[CacheChange], None],
    ) -> None:
        shown = f"[{host}]" if ":" in host else host
        self._events_at: Final = f"tcp://{shown}:{settings.port + rank}"
        replay = settings.replay_port
        self._replay_at: Final = f"tcp://{shown}:{replay + rank}" if replay is not None else None
        self._topic: Final = settings.topic.encode()
        self._blocks: Final = blocks
        self._changed: Final = changed
        self._expected = 0
        self.forgotten = 0  # times the index was cleared

    async def watch(self) -> None:
        """Reads events until cancelled. After any failure the index is cleared, and reading
        continues with the next message; an unreadable message is not requested again."""
        while True:
            try:
                await self._follow()
            except Exception as error:  # noqa: BLE001 - a frozen index would mislead routing
                what = str(error) if isinstance(error, BadEvents) else repr(error)
                _log.warning("%s: KV-cache events are read anew: %s", self._events_at, what)
                self._forget()
            await asyncio.sleep(AGAIN_S)

    async def _follow(self) -> None:
        from zmq.asyncio import Context
        from zmq.constants import IPV6, MAXMSGSIZE, RCVHWM, SUB, SUBSCRIBE

        context = Context.instance()
        socket = context.socket(SUB)
        try:
            socket.setsockopt(RCVHWM, MOST_QUEUED)
            socket.setsockopt(MAXMSGSIZE, MOST_MESSAGE_BYTES)
            socket.setsockopt(IPV6, 1)
            socket.setsockopt(SUBSCRIBE, self._topic)
            socket.connect(self._events_at)
            while True:
                await self._take(context, await socket.recv_multipart())
        finally:
            socket.close(0)

    async def _take(self, context: Any, frames: list[bytes]) -> None:
        if len(frames) < 2 or len(frames[-2]) != 8:
            raise BadEvents("a message of KV-cache events has three parts")
        number = int.from_bytes(frames[-2], "big")
        if number < self._expected:  # the server counts from 0 again
            self._forget()
            self._expected = 0
        if number > self._expected:
            await self._fill(context, number)
        if number >= self._expected:
            self._apply(number, frames[-1])

    async def _fill(self, context: Any, until: int) -> None:
        """Requests missed events; if the server no longer has them, the index is cleared."""
        for number, payload in await self._replayed(context, self._expected):
            if self._expected <= number < until:
                if number > self._expected and self._expected > 0:
                    self._forget()
                self._apply(number, payload)
        if self._expected < until:
            if self._expected > 0:
                self._forget()
            self._expected = until

    async def _replayed(self, context: Any, first: int) -> list[tuple[int, bytes]]:
        from zmq.constants import DEALER, IPV6, MAXMSGSIZE

        found: list[tuple[int, bytes]] = []
        if self._replay_at is None:
            return found
        socket = context.socket(DEALER)
        socket.setsockopt(MAXMSGSIZE, MOST_MESSAGE_BYTES)
        socket.setsockopt(IPV6, 1)
        try:
            socket.connect(self._replay_at)
            async with asyncio.timeout(REPLAY_S):
                await socket.send_multipart([b"", first.to_bytes(8, "big")])
                size = 0
                while len(found) < MOST_QUEUED and size < MOST_REPLAYED_BYTES:
                    frames = await socket.recv_multipart()
                    if len(frames) < 2 or frames[-2] == REPLAY_ENDS:
                        break
                    size += len(frames[-1])
                    found.append((int.from_bytes(frames[-2], "big"), frames[-1]))
        except TimeoutError:
            _log.warning("%s did not replay its KV-cache events in time", self._replay_at)
        finally:
            socket.close(0)
        return found

    def _apply(self, number: int, payload: bytes) -> None:
        self._expected = number + 1
        change = self._blocks.apply(read_batch(payload))
        if change.cleared or change.stored or change.removed:
            self._changed(change)

    def _forget(self) -> None:
        self.forgotten += 1
        self._changed(self._blocks.forget())
