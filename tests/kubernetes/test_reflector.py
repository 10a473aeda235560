"""Caches in sync with an API server that is cut off, killed, stopped or slow, or loses history."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.kubernetes.chaos import Cut, Delay, Fate, Refuse, Silence, proxied
from tests.kubernetes.cluster import Cluster, labelled
from windtunnel.live.kubernetes import client as client_module
from windtunnel.live.kubernetes import reflector as reflector_module
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import Gone
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import CONFIG_MAPS, Object, Plain, Unstructured
from windtunnel.live.rehearse.control_plane import API_SERVER


@asynccontextmanager
async def reflected(client: Client, namespace: str) -> AsyncIterator[Reflector[Unstructured]]:
    reflector = Reflector(
        client, CONFIG_MAPS, Unstructured, ObjectSelection(namespace, "windtunnel=test")
    )
    running = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(60):
            await reflector.synced.wait()
        yield reflector
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if not running.cancelled():
            running.result()


async def write(cluster: Cluster, name: str, value: str) -> None:
    body = labelled(cluster.namespace, name, data={"v": value})
    await cluster.client.apply(CONFIG_MAPS, body, Plain, manager="tests", force=True)


async def agrees(cluster: Cluster, reflector: Reflector[Unstructured]) -> bool:
    """Whether the cache equals the API server's state."""
    chosen = ObjectSelection(cluster.namespace, "windtunnel=test")
    listed = await cluster.client.list_all(CONFIG_MAPS, chosen)
    there = [msgspec.json.decode(one, type=Unstructured) for one in listed.items]
    reflector.cache.check()
    return {one.metadata.key: one for one in there} == {
        one.metadata.key: one for one in reflector.cache
    }


async def test_changes_arrive_and_own_writes_are_there_before(cluster: Cluster) -> None:
    await write(cluster, "a", "1")
    async with reflected(cluster.client, cluster.namespace) as reflector:
        heard: list[tuple[str | None, str | None]] = []

        def hear(before: Unstructured | None, after: Unstructured | None) -> None:
            versions = [None if one is None else str(one.data["v"]) for one in (before, after)]
            heard.append((versions[0], versions[1]))

        reflector.cache.subscribe(hear)
        body = labelled(cluster.namespace, "b", data={"v": "1"})
        reflector.cache.written(await cluster.client.create(CONFIG_MAPS, body, Unstructured))
        assert reflector.cache.get(cluster.namespace, "b") is not None
        await write(cluster, "b", "2")
        await cluster.client.delete(CONFIG_MAPS, cluster.namespace, "a")
        await cluster.until(lambda: agrees(cluster, reflector))
        assert heard == [(None, "1"), (None, "1"), ("1", "2"), ("1", None)]
        assert reflector.steps.lists == 1


async def read_watch(client: Client, version: str) -> None:
    async with client.watch(CONFIG_MAPS, version, 5) as events:
        async for _ in events:
            pass


async def test_pages_have_one_version(cluster: Cluster) -> None:
    for number in range(7):
        await write(cluster, f"a{number}", "1")
    chosen = ObjectSelection(cluster.namespace, "windtunnel=test")
    before = cluster.client.requests_sent
    listed = await cluster.client.list_all(CONFIG_MAPS, chosen, page=3)
    assert len(listed.items) == 7
    assert cluster.client.requests_sent == before + 3


async def test_an_object_of_another_shape_keeps_its_last_state(cluster: Cluster) -> None:
    class Narrow(Object, frozen=True, kw_only=True):
        data: dict[str, Any]
        immutable: str = ""

    await write(cluster, "a", "1")
    reflector = Reflector(cluster.client, CONFIG_MAPS, Narrow, ObjectSelection(cluster.namespace))
    running = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        key = (cluster.namespace, "a")
        change = {"immutable": True, "data": {"v": "2"}}
        await cluster.client.patch(CONFIG_MAPS, *key, change, Plain)

        async def told() -> bool:
            return key in reflector.unreadable

        await cluster.until(told)
        held = reflector.cache.get(*key)
        assert held is not None
        assert held.data == {"v": "1"}
        await cluster.client.delete(CONFIG_MAPS, *key)

        async def gone() -> bool:
            return key not in reflector.cache and key not in reflector.unreadable

        await cluster.until(gone)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_history_that_etcd_compacted_is_gone_and_deletions_in_the_gap_are_heard(
    cluster: Cluster,
) -> None:
    """The watch is cut, objects come and go, the API server restarts on a compacted etcd."""
    plane = cluster.plane
    await write(cluster, "goes", "1")
    await write(cluster, "stays", "1")
    async with (
        proxied(cluster) as (proxy, client),
        reflected(client, cluster.namespace) as reflector,
    ):
        gone: list[str] = []
        reflector.cache.subscribe(
            lambda before, after: (
                gone.append(before.metadata.name) if before is not None and after is None else None
            )
        )
        old = reflector.cache.version
        proxy.fate = lambda method, path: Cut()
        proxy.cut_all()
        await cluster.client.delete(CONFIG_MAPS, cluster.namespace, "goes")
        await write(cluster, "comes", "1")
        listed = await cluster.client.list_all(CONFIG_MAPS)
        plane.kill(API_SERVER)
        plane.compact(int(listed.version))
        plane.start(API_SERVER)
        with pytest.raises(Gone):
            await read_watch(cluster.client, old)
        assert gone == []
        proxy.fate = lambda method, path: None
        await cluster.until(lambda: agrees(cluster, reflector))
        assert gone == ["goes"]
        assert reflector.steps.lists >= 2


async def test_an_etcd_restored_to_an_older_state_is_listed(cluster: Cluster) -> None:
    """A watch from a version that no longer exists is accepted, and shows nothing."""
    plane = cluster.plane
    await write(cluster, "a", "1")
    plane.kill(API_SERVER)
    plane.save_etcd()
    await plane.restart()
    for number in range(30):
        await write(cluster, f"later{number}", "1")
    async with reflected(cluster.client, cluster.namespace) as reflector:
        assert len(reflector.cache) == 31
        plane.kill(API_SERVER)
        plane.restore_etcd()
        await plane.restart()
        await cluster.until(lambda: agrees(cluster, reflector))
        assert len(reflector.cache) == 1
        await write(cluster, "b", "1")
        await cluster.until(lambda: agrees(cluster, reflector))


async def test_a_continue_token_that_expired_is_listed_from_the_start(cluster: Cluster) -> None:
    """410 inside a paged list."""
    for number in range(6):
        await write(cluster, f"a{number}", "1")
    refused = [Refuse(410)]
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: refused.pop() if "continue=" in path and refused else None
        chosen = ObjectSelection(cluster.namespace, "windtunnel=test")
        listed = await client.list_all(CONFIG_MAPS, chosen, page=4)
        assert len(listed.items) == 6
        assert len(proxy.seen) == 4


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_an_api_server_that_was_away_is_caught_up_with(cluster: Cluster, how: str) -> None:
    plane = cluster.plane
    await write(cluster, "a", "1")
    async with reflected(cluster.client, cluster.namespace) as reflector:
        if how == "killed":
            plane.kill(API_SERVER)
            await plane.restart()
        else:
            with plane.stopped(API_SERVER), pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await cluster.client.get(CONFIG_MAPS, cluster.namespace, "a", Object)
        await write(cluster, "b", "2")
        await cluster.client.delete(CONFIG_MAPS, cluster.namespace, "a")
        await cluster.until(lambda: agrees(cluster, reflector))


async def test_watches_cut_again_and_again_with_errors_in_between_converge(
    cluster: Cluster,
) -> None:
    """Cuts in the middle of an event, 500, 429 with Retry-After, slow answers."""
    fates: Iterator[Fate] = iter(
        [
            Cut(200),
            Refuse(500),
            Cut(1500),
            Refuse(429, "1"),
            Delay(0.3),
            Cut(40),
            Refuse(503),
            Cut(),
        ]
    )
    async with (
        proxied(cluster) as (proxy, client),
        reflected(client, cluster.namespace) as reflector,
    ):
        proxy.fate = lambda method, path: next(fates, None) if "watch=1" in path else None
        proxy.cut_all()
        for number in range(20):
            await write(cluster, f"a{number % 4}", str(number))
            await asyncio.sleep(0.02)
        await cluster.client.delete(CONFIG_MAPS, cluster.namespace, "a1")
        await cluster.until(lambda: agrees(cluster, reflector))
        assert reflector.steps.lists == 1, "a cut watch goes on; it does not list again"


async def test_a_half_open_connection_is_noticed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing arrives within the watch's own timeout: its connection counts as dead."""
    monkeypatch.setattr(client_module, "SILENT_S", 0.5)
    monkeypatch.setattr(reflector_module, "SHORTEST_WATCH_S", 1)
    monkeypatch.setattr(reflector_module, "LONGEST_WATCH_S", 1)
    fates: Iterator[Fate] = iter([Silence(), Silence()])
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: next(fates, None) if "watch=1" in path else None
        async with reflected(client, cluster.namespace) as reflector:
            await write(cluster, "a", "1")
            await cluster.until(lambda: agrees(cluster, reflector))
            assert reflector.steps.watches >= 3


async def test_a_watch_whose_answer_does_not_begin_is_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the watch's own timeout."""
    monkeypatch.setattr(client_module, "REQUEST_S", 0.5)
    fates: Iterator[Fate] = iter([Silence()])
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: next(fates, None) if "watch=1" in path else None
        async with reflected(client, cluster.namespace) as reflector:
            await write(cluster, "a", "1")
            await cluster.until(lambda: agrees(cluster, reflector))
            assert reflector.steps.watches >= 2
