"""The fleet's processes on a client that answers as told: garbled books, slow calls, terms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fleet.kubernetes.world import fleet_file
from windtunnel.fleet.kubernetes.objects import PATCH, FleetCall
from windtunnel.gangs.objects import NODE, POD
from windtunnel.gangs.view import View
from windtunnel.live.kubernetes.errors import ApiStatus, NotFound
from windtunnel.live.operate.fleet import program as fleet
from windtunnel.live.operate.fleet.program import FleetPlace, FleetProgram, ShardProcess

SHARDS = [{"name": "east", "zones": ["z1"], "namespaces": ["chat"]}]


class AlwaysLeads:
    """An elector whose first term never ends."""

    epoch = 1

    def __init__(self, *_: object) -> None:
        self.led = asyncio.Event()
        self.led.set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def lead(self, work: Callable[[], Any], log: object) -> None:
        await work()


class Stored:
    """An API server of ConfigMaps."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data
        self.events: list[Any] = []

    def fenced(self, _: object) -> Stored:
        return self

    async def get(self, *_: object) -> Any:
        if self.data is None:
            raise NotFound("GET", 404, ApiStatus(), 0.0)
        return type("Found", (), {"data": self.data})()

    async def create(self, _: object, body: Any, *__: object) -> None:
        self.events.append(body)

    async def apply(self, *_: object, **__: object) -> None:
        return None


class Cache:
    def subscribe(self, _: object) -> None:
        """Nothing changes."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Nodes:
    cache = Cache()


class NoObjects:
    """A mirror of a cluster that has nothing."""

    def __init__(self) -> None:
        self.view = View()
        self.pod_watchers: list[Any] = []
        self.objects = {NODE: Nodes, POD: Nodes}


@asynccontextmanager
async def running(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> AsyncIterator[FleetProgram]:
    monkeypatch.setattr(fleet, "LeaderElector", AlwaysLeads)
    monkeypatch.setattr(fleet, "AGAIN_S", 0.01)
    file = fleet_file(places=0, metal=1, **more)
    place = FleetPlace("ns", "me")
    program = FleetProgram(file, stored, NoObjects(), place, lambda: 1.0)  # type: ignore[arg-type]
    task = asyncio.create_task(program.run())
    try:
        yield program
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("shards", [None, SHARDS])
def test_garbled_books_stop_their_shard_alone_until_they_are_mended(
    shards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_garbled_books(shards, monkeypatch))


async def _garbled_books(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored({"books": "{", "orders": "{}", "rows": "[1"})
    async with running(stored, monkeypatch, shards=shards) as program:
        (shard,) = program.shards
        every = [shard, *([program.coordinator] if program.coordinator else [])]
        await until(lambda: all(one.fault for one in every) and len(stored.events) >= len(every))
        assert shard.controller is None, "nothing is decided"
        assert "cannot be read" in shard.fault
        assert stored.events[0]["reason"] == "FleetStateUnreadable"
        stored.data = None
        if shards is None:
            await until(lambda: shard.controller is not None and not shard.fault)


def test_a_slow_call_keeps_no_other_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_a_slow_call(monkeypatch))


async def _a_slow_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [FleetCall(PATCH, NODE, name, f"node/{name}") for name in ("slow", "fast")]
    answered: list[str] = []
    steps = 0

    class Controller:
        decisions = ()
        demand = type("Demand", (), {"close": lambda self: None})()

        def step(self, _: float) -> list[FleetCall]:
            nonlocal steps
            steps += 1
            return calls if steps == 1 else []

        def next_s(self) -> float:
            return float("inf")

        def answered(self, call: FleetCall, *_: object) -> None:
            answered.append(call.name)

    class Slow(Stored):
        async def patch(self, *words: Any, **_: object) -> Any:
            if words[2] == "slow":
                await asyncio.Event().wait()

    async def build(self: ShardProcess) -> Any:
        return Controller()

    monkeypatch.setattr(ShardProcess, "_build", build)
    monkeypatch.setattr(ShardProcess, "_cache", lambda *_: type("C", (), {"written": print})())
    async with running(Slow(None), monkeypatch):
        await until(lambda: answered == ["fast"] and steps > 1)


def test_a_missing_kind_is_told_at_once_and_then_rarely(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOOK_S", 0.01)
    missing = NotFound("GET", 404, ApiStatus(), 0.0)
    cache: Any = type("Cache", (), {"synced": asyncio.Event(), "last_error": missing})()

    async def wait() -> None:
        waiting = asyncio.create_task(FleetProgram._filled(None, "NodeClaim", cache))  # type: ignore[arg-type]
        await asyncio.sleep(0.2)
        cache.synced.set()
        await waiting

    asyncio.run(wait())
    assert [one.getMessage().endswith("(is Karpenter installed?)") for one in caplog.records] == [
        True
    ]
