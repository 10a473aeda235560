"""Webhooks on a real API server: refusals, defaults, dry runs, rotation, and their absence."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.kubernetes.chart import PLAIN, objects
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import SETS, Stage, stage
from tests.kubernetes.test_operate_command import operate, text_of
from windtunnel.core.clock import unix_s
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import ApiError, KubernetesError, NotFound
from windtunnel.live.kubernetes.resources import Plain, Unstructured
from windtunnel.live.operate.webhooks import CONFIGURATIONS, NAME, Webhooks
from windtunnel.live.rehearse.control_plane import free_port
from windtunnel.live.serving import listen

DAY_S = 86_400.0


@contextlib.asynccontextmanager
async def configured(
    client: Client, space: str, port: int, policy: str = "Fail"
) -> AsyncIterator[None]:
    """The configurations of the chart, for one namespace and an operator outside of the cluster."""
    kinds = {one.kind: one for one in CONFIGURATIONS}
    found = [one for one in objects(PLAIN.read_text()) if one["kind"] in kinds]
    assert len(found) == 2
    for one in found:
        (hook,) = one["webhooks"]
        path = hook["clientConfig"].pop("service")["path"]
        hook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
        hook["failurePolicy"] = policy
        hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": space}}
        body = {"metadata": {"name": NAME}, "webhooks": one["webhooks"]}
        await client.create(kinds[one["kind"]], body, Plain)
    try:
        yield
    finally:
        for resource in CONFIGURATIONS:
            await client.delete(resource, "", NAME)


async def until_called(on: Stage) -> None:
    """Waits for a call: an API server applies a new configuration a moment after its creation."""
    probe = pod_clique_set([clique("a")], name="probe")

    async def called() -> bool:
        try:
            async with asyncio.timeout(1):
                await create(on, probe, dry_run=True)
        except (ApiError, TimeoutError):
            return True
        return False

    await on.cluster.until(called)


def wrong() -> dict[str, Any]:
    return pod_clique_set([clique("a"), clique("b")], [group("g", ["a", "x"])])


async def create(on: Stage, manifest: dict[str, Any], *, dry_run: bool = False) -> Unstructured:
    meta = {**manifest["metadata"], "namespace": on.space}
    body = {"metadata": meta, "spec": manifest["spec"]}
    return await on.client.create(SETS, body, Unstructured, dry_run=dry_run)


async def until_ready(cluster: Cluster, url: str) -> None:
    async def ready() -> bool:
        return await text_of(f"{url}/readyz") == "ok\n"

    await cluster.until(ready)


async def test_wrong_sets_are_refused_and_defaults_filled_in(cluster: Cluster) -> None:
    port = free_port()
    async with (
        stage(cluster, operator=False) as on,
        operate(cluster, "--webhook-port", str(port), "--init-image", "x:1") as (_, url),
    ):

        async def says_why() -> bool:
            return "webhooks cannot be set up" in await text_of(f"{url}/readyz")

        await cluster.until(says_why)
        async with configured(on.client, on.space, port):
            await until_ready(cluster, url)
            with pytest.raises(ApiError, match=r"there is no clique 'x'"):
                await create(on, wrong())
            least = pod_clique_set(
                [clique("a", 2), clique("b")], [{"name": "g", "cliqueNames": ["b"]}]
            )
            del least["spec"]["template"]["cliques"][0]["spec"]["minAvailable"]
            tried = await create(on, least, dry_run=True)
            with pytest.raises(NotFound):
                await on.get("PodCliqueSet", "web")
            made = await create(on, least)
            assert made.spec == tried.spec, "a dry run gives the same answer"
            template = made.spec["template"]
            assert template["terminationDelay"] == "4h"
            assert template["cliques"][0]["spec"]["minAvailable"] == 2
            assert template["podCliqueScalingGroups"][0]["replicas"] == 1
            assert (
                template["cliques"][0]["spec"]["podSpec"]
                == (least["spec"]["template"]["cliques"][0]["spec"]["podSpec"])
            ), "pods are not replaced because a webhook came"
            await on.until_ready(3)
            change = {
                "spec": {
                    "template": {"resourceClaimTemplates": [{"name": "t", "templateSpec": {}}]}
                }
            }
            with pytest.raises(ApiError, match="it cannot change"):
                await on.client.patch(SETS, on.space, "web", change, Plain)
            metrics = await text_of(f"{url}/metrics")
            assert 'reviews_total{outcome="refused",webhook="validate"}' in metrics
            assert "windtunnel_operator_webhooks_reached 1.0" in metrics


async def test_what_came_in_without_the_webhook_gets_a_condition(cluster: Cluster) -> None:
    port = free_port()
    async with stage(cluster, operator=False) as on:
        async with configured(on.client, on.space, port), stage(cluster, operator=True):
            await until_called(on)
            with pytest.raises(ApiError, match="failed calling webhook"):
                await create(on, wrong())
        async with configured(on.client, on.space, port, "Ignore"):
            await create(on, wrong())
            async with operate(cluster, "--webhook-port", str(port)) as (_, url):

                async def told() -> bool:
                    found = (await on.status("PodCliqueSet", "web")).get("conditions") or []
                    return any("there is no clique 'x'" in one["message"] for one in found)

                await cluster.until(told)
                await until_ready(cluster, url)
                labelled = {"metadata": {"labels": {"seen": "yes"}}}
                await on.client.patch(SETS, on.space, "web", labelled, Plain)
                scaled = {"spec": {"replicas": 3}}
                with pytest.raises(ApiError, match="there is no clique 'x'"):
                    await on.client.patch(SETS, on.space, "web", scaled, Plain)


async def test_a_certificate_is_rotated_without_a_call_that_fails(cluster: Cluster) -> None:
    """The first one was issued 61 days ago; both authorities are trusted meanwhile."""
    assert cluster.plane, "an API server that reaches this process"
    port, ago_s = free_port(), [61 * DAY_S]
    hooks = Webhooks(cluster.client, cluster.namespace, dict, lambda: unix_s() - ago_s[0])
    failed: list[str] = []
    answered = 0

    async def keep_asking(on: Stage) -> None:
        nonlocal answered
        while True:
            try:
                await create(on, pod_clique_set([clique("a")]), dry_run=True)
                answered += 1
            except KubernetesError as error:
                failed.append(str(error))
            await asyncio.sleep(0.02)

    async with (
        stage(cluster, operator=False) as on,
        configured(on.client, on.space, port),
        hooks.serve(listen("127.0.0.1", port)),
    ):
        while hooks.why_not:
            await hooks._look()
        first = await _served(port)
        asking = asyncio.create_task(keep_asking(on))
        await hooks._look()
        assert await _served(port) == first, "nothing is due"
        ago_s[0] = 0.0
        await hooks._look()
        assert await _served(port) != first
        before = answered
        while answered < before + 20:
            await asyncio.sleep(0.02)
        asking.cancel()
    assert failed == []
    assert not hooks.why_not


async def _served(port: int) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
