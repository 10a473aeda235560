"""Single requests, leader election and events while the path to a real API server is disturbed."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kubernetes.chaos import Cut, Delay, Fate, Refuse, Silence, Swallow, proxied
from tests.kubernetes.cluster import Cluster, labelled
from windtunnel.core.clock import monotonic_s
from windtunnel.live.kubernetes.client import ObjectSelection, open_client
from windtunnel.live.kubernetes.config import in_cluster
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    Forbidden,
    NoAnswer,
    NotFound,
    NotLeader,
    ServerError,
    Unauthorized,
    UnreadableAnswer,
)
from windtunnel.live.kubernetes.events import WARNING, EventRecorder, Subject
from windtunnel.live.kubernetes.leader import LeaderElector, LeaseObject, Timing
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    Meta,
    Object,
    Plain,
    Unstructured,
)

QUICK = Timing(lease_s=3.0, renew_deadline_s=2.4, retry_s=0.4)
"""A fifth of the usual times."""


async def test_a_write_without_an_answer_is_not_repeated_and_may_have_happened(
    cluster: Cluster,
) -> None:
    async with proxied(cluster) as (proxy, client):
        body = labelled(cluster.namespace, "a")
        proxy.fate = lambda method, path: Swallow()
        with pytest.raises(NoAnswer):
            await client.create(CONFIG_MAPS, body, Plain)
        proxy.fate = lambda method, path: Refuse(500)
        with pytest.raises(ServerError):
            await client.create(CONFIG_MAPS, labelled(cluster.namespace, "b"), Plain)
        proxy.fate = lambda method, path: None
        assert [method for method, _ in proxy.seen] == ["POST", "POST"]
        with pytest.raises(AlreadyExists):
            await client.create(CONFIG_MAPS, body, Plain)


async def test_reads_are_repeated_and_shed_requests_wait_as_they_are_asked(
    cluster: Cluster,
) -> None:
    fates: Iterator[Fate] = iter([Cut(), Refuse(503), None, Refuse(429, "1"), Refuse(429)])
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: next(fates, None)
        await client.list_all(CONFIG_MAPS, ObjectSelection(cluster.namespace))
        began_s = monotonic_s()
        await client.create(CONFIG_MAPS, labelled(cluster.namespace, "a"), Plain)
        assert monotonic_s() - began_s >= 1.0
        assert client.requests_shed == 2
        assert [method for method, _ in proxy.seen] == ["GET"] * 3 + ["POST"] * 3
        proxy.fate = lambda method, path: Refuse(200)  # something else answers, and it is no list
        with pytest.raises(UnreadableAnswer, match="missing required field `metadata`"):
            await client.list_all(CONFIG_MAPS, ObjectSelection(cluster.namespace))


async def test_the_second_candidate_takes_over_and_the_first_writes_nothing_more(
    cluster: Cluster,
) -> None:
    """The leader is cut off: it stops by itself before the other can begin."""
    space = cluster.namespace
    async with proxied(cluster) as (proxy, first):
        one = LeaderElector(first, space, "lease", "one", QUICK)
        two = LeaderElector(cluster.client, space, "lease", "two", QUICK)
        running = [asyncio.create_task(one.run())]
        async with asyncio.timeout(30):
            await one.led.wait()
        running.append(asyncio.create_task(two.run()))
        writer = first.fenced(one)
        await writer.create(CONFIG_MAPS, labelled(space, "by-one"), Plain)
        proxy.fate = lambda method, path: Silence()
        hanging = asyncio.create_task(writer.create(CONFIG_MAPS, labelled(space, "hangs"), Plain))
        async with asyncio.timeout(30):
            await one.lost.wait()
            assert not two.led.is_set()
            with pytest.raises(NotLeader):
                await writer.create(CONFIG_MAPS, labelled(space, "late"), Plain)
            with pytest.raises(NoAnswer):
                await hanging
            await two.led.wait()
        assert (one.epoch, two.epoch) == (0, 1)
        proxy.fate = lambda method, path: None
        sent = len(proxy.seen)

        async def noticed() -> bool:
            return one.election.holder == "two"

        await cluster.until(noticed)
        assert {method for method, _ in proxy.seen[sent:]} == {"GET"}
        running[1].cancel()  # releases the lease: the other need not wait for it to run out
        async with asyncio.timeout(30):
            await one.led.wait()
        assert one.epoch == 2
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)
        lease = await cluster.client.get(LEASES, space, "lease", LeaseObject)
        assert not lease.spec.holder_identity
        assert two.epoch == 1


async def test_a_lease_is_renewed_while_other_requests_are_shed(cluster: Cluster) -> None:
    space = cluster.namespace
    async with proxied(cluster) as (proxy, client):
        elector = LeaderElector(client, space, "lease", "only", QUICK)
        running = asyncio.create_task(elector.run())
        async with asyncio.timeout(30):
            await elector.led.wait()
        proxy.fate = lambda method, path: None if "leases" in path else Refuse(429, "60")
        waiting = [
            asyncio.create_task(client.get(CONFIG_MAPS, space, "a", Object)) for _ in range(3)
        ]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * QUICK.renew_deadline_s):
                await elector.lost.wait()
        assert sum("configmaps" in path for _, path in proxy.seen) <= 3
        for task in [running, *waiting]:
            task.cancel()
        await asyncio.gather(running, *waiting, return_exceptions=True)


async def test_a_lease_is_kept_while_every_answer_takes_long(cluster: Cluster) -> None:
    """Like 5 s with the usual times."""
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: Delay(1.0)
        elector = LeaderElector(client, cluster.namespace, "lease", "only", QUICK)
        running = asyncio.create_task(elector.run())
        async with asyncio.timeout(30):
            await elector.led.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * QUICK.lease_s):
                await elector.lost.wait()
        assert elector.epoch == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_leader_that_was_stopped_writes_nothing_after_the_next_one_began(
    cluster: Cluster,
) -> None:
    """SIGSTOP for longer than the lease: in the API server's order, epochs never go back."""
    space = cluster.namespace

    async def written() -> list[tuple[int, str]]:
        listed = await cluster.client.list_all(
            CONFIG_MAPS, ObjectSelection(space, "windtunnel=test")
        )
        maps = [msgspec.json.decode(one, type=Unstructured) for one in listed.items]
        maps.sort(key=lambda one: int(one.metadata.resource_version))
        return [(int(one.data["epoch"]), one.data["by"]) for one in maps]

    async def some_by(identity: str, least: int = 3) -> None:
        async def there() -> bool:
            return [by for _, by in await written()].count(identity) >= least

        await cluster.until(there)

    command = [sys.executable, "-m", "tests.kubernetes.candidate", str(cluster.plane.kubeconfig)]
    first = await asyncio.create_subprocess_exec(*command, space, "first")
    second = None
    try:
        await some_by("first")
        second = await asyncio.create_subprocess_exec(*command, space, "second")
        first.send_signal(signal.SIGSTOP)
        await some_by("second")
        first.send_signal(signal.SIGCONT)
        await some_by("second", 30)
        second.send_signal(signal.SIGSTOP)
        before = len([by for _, by in await written() if by == "first"])
        await some_by("first", before + 3)
        second.send_signal(signal.SIGCONT)
        await some_by("first", before + 30)
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                await process.wait()
    order = await written()
    assert order == sorted(order, key=lambda one: one[0])
    assert list(dict(order).values())[:2] == ["first", "second"]


class Expiring:
    """A guard that expires after this many checks."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def write_time_s(self, now_s: float) -> float:
        self.left -= 1
        return 5.0 if self.left >= 0 else 0.0


async def test_a_lease_that_ends_while_a_write_connects_withholds_it(cluster: Cluster) -> None:
    body = labelled(cluster.namespace, "a")
    for asked in (0, 1):
        with pytest.raises(NotLeader):
            await cluster.client.fenced(Expiring(asked)).create(CONFIG_MAPS, body, Plain)
    with pytest.raises(NotFound):
        await cluster.client.get(CONFIG_MAPS, cluster.namespace, "a", Object)
    writer = cluster.client.fenced(Expiring(6))
    await writer.create(CONFIG_MAPS, body, Plain)
    await writer.patch(CONFIG_MAPS, cluster.namespace, "a", {"data": {"x": "1"}}, Plain)
    await writer.delete(CONFIG_MAPS, cluster.namespace, "a")


async def test_repeated_events_are_one_object_with_a_series(cluster: Cluster) -> None:
    space = cluster.namespace
    about = Subject.of(CONFIG_MAPS, Meta(name="a", namespace=space, uid="u"))
    recorder = EventRecorder(cluster.client, "windtunnel.dev/operator", "tests")
    running = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.record(about, WARNING, "GangWaits", "Place", "no node has 8 GPUs")
    unknown = about._replace(namespace="absent")
    recorder.record(unknown, WARNING, "GangWaits", "Place", "its namespace does not exist")

    async def written() -> bool:
        return recorder.written == 2 and recorder.dropped == 1

    await cluster.until(written)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    listed = await cluster.client.list_all(EVENTS, ObjectSelection(space))
    assert len(listed.items) == 1
    assert b'"count":2' in bytes(listed.items[0])


async def test_a_pod_has_the_rights_of_its_service_account_and_rereads_its_token(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The token is read again when the API server refuses it."""
    space = cluster.namespace
    account = f"/api/v1/namespaces/{space}/serviceaccounts"
    await cluster.client.request("POST", account, {"metadata": {"name": "operator"}})
    asked = {"spec": {"expirationSeconds": 600}}
    answer = await cluster.client.request("POST", f"{account}/operator/token", asked)
    role = {
        "metadata": {"namespace": space, "name": "operator"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    }
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    await cluster.client.request("POST", f"{rbac}/roles", role)
    bound = {
        "metadata": {"namespace": space, "name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": space, "name": "operator"}],
    }
    await cluster.client.request("POST", f"{rbac}/rolebindings", bound)
    (tmp_path / "ca.crt").write_bytes(cluster.plane.certificates.ca.read_bytes())
    (tmp_path / "token").write_text("stale")
    port = str(cluster.plane.port)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    async with open_client(in_cluster(environment, tmp_path)) as client:
        with pytest.raises(Unauthorized):
            await client.list_all(CONFIG_MAPS, ObjectSelection(space))
        assert client.requests_sent == 2
        (tmp_path / "token").write_text(answer["status"]["token"])
        await client.list_all(CONFIG_MAPS, ObjectSelection(space))
        with pytest.raises(Forbidden):
            await client.delete(CONFIG_MAPS, space, "a")
