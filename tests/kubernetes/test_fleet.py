"""The fleet on a real API server: machines for waiting gangs, drains, notices, restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.gangs.manifests import clique, pod_clique_set
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import Stage, stage
from tests.kubernetes.karpenter import Karpenter, install_node_claims
from tests.kubernetes.test_operate_command import operate, text_of
from tests.kubernetes.test_rights import ACCOUNT, account, asked_of
from windtunnel.fleet.demand.requests import GPU
from windtunnel.fleet.kubernetes.objects import IDLE_TAINT
from windtunnel.live.kubernetes.client import ObjectSelection
from windtunnel.live.kubernetes.errors import NotFound
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    NODE_CLAIMS,
    NODES,
    Plain,
    Unstructured,
)
from windtunnel.live.operate.evictions import BUDGETS
from windtunnel.live.operate.rights import FLEET, GANGS, PLACE, RIGHTS
from windtunnel.live.rehearse.kubelets import add_node


class FleetStage:
    """A cluster with kubelets and a Karpenter, and the file of a fleet."""

    def __init__(self, on: Stage, karpenter: Karpenter, file: Path) -> None:
        self.on, self.karpenter, self.file = on, karpenter, file
        self.client, self.space = on.client, on.space

    def claims(self) -> list[str]:
        return [one.metadata.name for one in self.karpenter.claims]

    async def apply(self, pods: int, name: str = "web", gpus: int = 8) -> None:
        role = clique("a", pods)
        spec = role["spec"]["podSpec"]
        spec["schedulerName"] = "windtunnel"
        spec["nodeSelector"] = {"test": self.space}
        amounts = {GPU: str(gpus)}
        spec["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        await self.on.apply(pod_clique_set([role], name=name))

    async def node(self, name: str) -> Unstructured:
        return await self.client.get(NODES, "", name, Unstructured)

    async def until(self, holds: Callable[[], bool]) -> None:
        await self.on.until(holds)

    async def until_moved(self, pods: int, node_uid: str) -> None:
        """Waits until each runs on its own node, and none on this one. While a machine has no pod
        it may be parked and another one taken, possibly under the old name."""

        async def moved() -> bool:
            if self.on.kubelets.ready("web-0-a") != pods:
                return False
            names = {one.spec["nodeName"] for one in self.on.kubelets.alive("web-0-a")}
            uids = {(await self.node(name)).metadata.uid for name in names}
            return len(uids) == pods and node_uid not in uids

        await self.on.cluster.until(moved)

    async def events(self, reason: str) -> list[str]:
        listed = await self.client.list_all(EVENTS)
        found = [json.loads(bytes(one)) for one in listed.items]
        return [
            one["note"]
            for one in found
            if one["reason"] == reason and self.space in json.dumps(one)
        ]


def pool(space: str, name: str = "h200", **more: Any) -> Plain:
    return {"name": name, "accelerator": "h200", "accelerators": 8, "cpu": 32, "memory": "128GiB",
            "labels": {"test": space}, "machines": {"max": 4}, **more}  # fmt: skip


@asynccontextmanager
async def fleet_stage(
    cluster: Cluster, folder: Path, pools: list[Plain], live: list[Plain], **more: Any
) -> AsyncIterator[FleetStage]:
    await install_node_claims(cluster)
    ref = {"group": "test.dev", "kind": "TestNodeClass", "name": "default"}
    sources = [one if "nodes" in one else {**one, "node_class": ref} for one in live]
    content = {
        "fleet": {"pools": pools, "cycle": "200ms"},
        "live": {"fleet": {"name": cluster.namespace, "pools": sources, **more}},
    }
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(content))
    async with stage(cluster, slots=None, operator=False) as on:
        karpenter = Karpenter(on.client, cluster.namespace)
        running = asyncio.create_task(karpenter.run())
        try:
            yield FleetStage(on, karpenter, file)
        finally:
            for claim in karpenter.claims:
                await on.client.delete(NODE_CLAIMS, "", claim.metadata.name)
            await cluster.until(lambda: _none(karpenter))
            running.cancel()
            await asyncio.wait([running])
            listed = await on.client.list_all(NODES, ObjectSelection(labels=f"test={on.space}"))
            for one in listed.items:
                name = msgspec.json.decode(one, type=Unstructured).metadata.name
                await on.client.delete(NODES, "", name)


async def _none(karpenter: Karpenter) -> bool:
    return not karpenter.claims


async def test_a_gang_that_waits_gets_machines_and_gives_them_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    """With exactly the declared rights."""
    spot = pool(cluster.namespace, capacity="spot", zone="z1")
    async with fleet_stage(cluster, tmp_path, [spot], [{"name": "h200"}]) as at:
        rights = await account(at.on, GANGS, PLACE, FLEET)
        words = ["--place", "--fleet", str(at.file), "--log", str(tmp_path / "log.jsonl")]
        words += ["--kubeconfig", str(rights)]
        async with operate(cluster, *words) as (process, url):
            await at.apply(2)
            await at.until(lambda: at.on.kubelets.ready("web-0-a") == 2)
            assert at.claims() == [f"{at.space}-h200-0", f"{at.space}-h200-1"]
            assert len(at.karpenter.launched) == 2
            claim = at.karpenter.claims[0]
            wanted = {one["key"]: one["values"] for one in claim.spec["requirements"]}
            assert wanted["karpenter.sh/capacity-type"] == ["spot"]
            states = 'windtunnel_fleet_machines{pool="h200",shard="main",state="configured"} 2.0'

            async def told() -> bool:
                notes = await at.events("FleetProvision")
                said = any("no idle machine matches" in note for note in notes)
                return said and states in await text_of(f"{url}/metrics")

            await cluster.until(told)

            # A budget keeps one pod: the drain of its machine waits for it.
            chosen = {"matchLabels": {"app.kubernetes.io/part-of": "web"}}
            meta = {"name": "keep", "namespace": at.space}
            budget = {"metadata": meta, "spec": {"minAvailable": 2, "selector": chosen}}
            await at.client.create(BUDGETS, budget, Plain)

            async def counted() -> bool:
                found = await at.client.get(BUDGETS, at.space, "keep", Unstructured)
                return found.status.get("currentHealthy") == 2

            await cluster.until(counted)
            first = f"ip-{at.space}-h200-0"
            before = await at.node(first)
            notice = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
            await at.client.patch(NODES, "", first, {"spec": {"taints": notice}}, Plain)
            await at.until(lambda: len(at.claims()) == 3)  # its replacement comes first

            async def cordoned() -> bool:
                return bool((await at.node(first)).spec.get("unschedulable"))

            await cluster.until(cordoned)
            assert at.on.kubelets.ready("web-0-a") == 2, "the budget keeps both"
            assert before.metadata.uid == (await at.node(first)).metadata.uid
            await at.client.delete(BUDGETS, at.space, "keep")
            await at.until_moved(2, before.metadata.uid)
            lost = claim.metadata.uid
            await at.until(lambda: lost not in [one.metadata.uid for one in at.karpenter.claims])

            async def failed() -> bool:
                return bool(await at.events("FleetFailed"))

            await cluster.until(failed)

            # Scaled down: machines are drained, and spot is given back after a minute idle.
            await at.on.scale("PodCliqueSet", "web", 0)

            async def parked() -> bool:
                taints = (await at.node(f"ip-{at.space}-h200-1")).spec.get("taints") or []
                return IDLE_TAINT in [one["key"] for one in taints]

            await cluster.until(parked)
            assert b"Traceback" not in (await stopped(process))
        assert_rights(cluster)
        lines = (tmp_path / "log.jsonl").read_text()
        assert '"fleet.provision"' in lines
        assert '"fleet.reclaim"' in lines


def assert_rights(cluster: Cluster) -> None:
    """Checks that nothing was forbidden, and that every right of the fleet was used."""
    asked = cluster.plane.requests_of(f"{cluster.namespace}:{ACCOUNT}")
    assert [one["requestURI"] for one in asked if one["responseStatus"]["code"] == 403] == []
    used = {asked_of(one) for one in asked if "objectRef" in one}
    declared = {
        (one.resource.group, one.plural, verb)
        for one in RIGHTS
        if one.feature == FLEET
        for verb in one.verbs.split()
    }
    # A create is part of an apply; a claim is read when its name is taken.
    unseen = {("", "configmaps", "create"), ("karpenter.sh", "nodeclaims", "get")}
    # An event is patched when it comes again while it is still remembered.
    assert declared - used - {("events.k8s.io", "events", "patch")} == unseen


async def stopped(process: asyncio.subprocess.Process) -> bytes:
    process.terminate()
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return err


async def test_a_restart_creates_nothing_twice(cluster: Cluster, tmp_path: Path) -> None:
    """Killed while its NodeClaims are in progress, it continues with the same records."""
    demand = [pool(cluster.namespace)]
    async with fleet_stage(cluster, tmp_path, demand, [{"name": "h200"}]) as at:
        at.karpenter.paused = True
        words = ("--place", "--fleet", str(at.file))
        async with operate(cluster, *words) as (process, _):
            await at.apply(3)
            await at.until(lambda: bool(at.claims()))
            process.kill()
            await process.wait()
        before = {one.metadata.uid for one in at.karpenter.claims}
        books = f"windtunnel-fleet-{at.space}-main"
        stored = await at.client.get(CONFIG_MAPS, at.space, books, Unstructured)
        names = [row["name"] for row in json.loads(stored.data["rows"])["rows"]]
        assert len(names) >= len(before) > 0, "rows are stored before machines are ordered"
        async with operate(cluster, *words) as (process, _):
            await at.until(lambda: len(at.claims()) == 3)
            at.karpenter.resume()
            await at.until(lambda: at.on.kubelets.ready("web-0-a") == 3)
            await stopped(process)
        assert before <= set(at.karpenter.launched)
        assert len(set(at.karpenter.launched)) == len(at.claims()) == 3, "as many as pods need"
        again = await at.client.get(CONFIG_MAPS, at.space, books, Unstructured)
        rows = [row["name"] for row in json.loads(again.data["rows"])["rows"]]
        assert len(rows) == 3
        assert rows[: len(names)] == names


async def test_existing_nodes_are_parked_and_taken_back(cluster: Cluster, tmp_path: Path) -> None:
    metal = pool(cluster.namespace, "metal", capacity="bare-metal")
    live = [{"name": "metal", "nodes": {"test": cluster.namespace}}]
    async with fleet_stage(cluster, tmp_path, [metal], live) as at:
        name = f"{at.space}-metal"
        await add_node(at.client, name, {"test": at.space}, {GPU: "8"})

        async def parked() -> bool:
            taints = (await at.node(name)).spec.get("taints") or []
            return IDLE_TAINT in [one["key"] for one in taints]

        async with operate(cluster, "--place", "--fleet", str(at.file)) as (process, _):
            await cluster.until(parked)
            await at.apply(1)
            await at.until(lambda: at.on.kubelets.ready("web-0-a") == 1)
            assert not await parked()
            assert (await at.node(name)).metadata.labels["windtunnel.dev/need"].startswith("main.")
            await at.on.scale("PodCliqueSet", "web", 0)
            await cluster.until(parked)
            await stopped(process)


async def test_a_dry_run_stores_nothing(cluster: Cluster, tmp_path: Path) -> None:
    metal = pool(cluster.namespace, "metal", capacity="bare-metal")
    live = [{"name": "metal", "nodes": {"test": cluster.namespace}}]
    async with fleet_stage(cluster, tmp_path, [metal], live) as at:
        name = f"{at.space}-metal"
        await add_node(at.client, name, {"test": at.space}, {GPU: "8"})
        async with operate(cluster, "--fleet", str(at.file), "--dry-run") as (process, _):
            assert process.stderr is not None
            said = b""
            async with asyncio.timeout(60):
                while b"would reclaim machine" not in said:
                    said += await process.stderr.readline()
            process.terminate()
            _, rest = await process.communicate()
        assert b"Traceback" not in rest
        assert IDLE_TAINT not in json.dumps((await at.node(name)).spec)
        with pytest.raises(NotFound):
            await at.client.get(CONFIG_MAPS, at.space, f"windtunnel-fleet-{at.space}-main", Plain)


async def test_a_shard_that_is_short_gets_a_machine_of_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two processes share the shards; a machine is moved from the other's zone."""
    space = cluster.namespace
    pools = [
        pool(space, "east", zone="z1", machines={"max": 1}),
        pool(space, "west", zone="z2", machines={"max": 1}),
    ]
    shards = [
        {"name": "one", "zones": ["z1"], "namespaces": [space]},
        {"name": "two", "zones": ["z2"], "namespaces": ["elsewhere"]},
    ]
    live = [{"name": "east"}, {"name": "west"}]
    async with fleet_stage(cluster, tmp_path, pools, live, shards=shards) as at:
        words = ("--place", "--fleet", str(at.file))
        async with operate(cluster, *words) as (first, _), operate(cluster, *words) as (second, _):
            await at.apply(2)
            await at.until(lambda: at.on.kubelets.ready("web-0-a") == 2)
            assert at.claims() == [f"{space}-east-0", f"{space}-west-0"]
            said = await stopped(first) + await stopped(second)
        assert b"Traceback" not in said
        assert f"given_up machine {space}-west-0".encode() in said
        name = f"windtunnel-fleet-{space}-coordinator"
        stored = await at.client.get(CONFIG_MAPS, space, name, Unstructured)
        assert json.loads(stored.data["books"])["moved"] == {f"{space}-west-0": ["two", "one"]}
