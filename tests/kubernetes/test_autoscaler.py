"""The autoscaler on a real API server: scaling, restarts, other installations, outages."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from tests.gangs.manifests import clique, pod_clique_set
from tests.kubernetes.chaos import Cut, Swallow, proxied
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import stage
from tests.kubernetes.scaling_stage import (
    DEPLOYMENTS,
    FAILS,
    GARBAGE,
    OK,
    SLOW,
    STALE,
    autoscaler,
    autoscaling,
    condition,
    deployment,
    events,
    hpa,
    ready_pods,
    served,
    size,
    until_condition,
    until_event,
    until_size,
)
from tests.kubernetes.test_operate_command import operate, text_of
from tests.scaling.kubernetes.pods import page
from tests.scaling.manifests.texts import HOMOGENEOUS
from windtunnel.live.kubernetes.errors import Invalid, NotFound, NotLeader
from windtunnel.live.kubernetes.resources import CONFIG_MAPS, Plain, Resource, Unstructured
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.operate.scaling.caches import AUTOSCALERS, HPAS
from windtunnel.live.rehearse.cluster import install, install_crds, set_replicas
from windtunnel.live.rehearse.control_plane import API_SERVER
from windtunnel.settings.crds import CustomResource, crd_of

RECORD = "windtunnel-scaling-autoscaler-chat"


async def test_a_deployment_follows_its_metrics_and_a_restart_forgets_nothing(
    cluster: Cluster,
) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, on.port)
        async with autoscaling(cluster):
            await until_size(cluster, 6)  # eight are wanted, four more are allowed in 15 s
            message = await until_condition(cluster, "ScalingActive", "True", "ValidMetricFound")
            assert "vllm:num_requests_waiting is 20 of 5" in message
            note = await until_event(cluster, "SuccessfulRescale")
            assert "2 -> 6 replicas" in note

            async def published() -> bool:
                found = await cluster.client.get(
                    AUTOSCALERS, cluster.namespace, "chat", Unstructured
                )
                (target,) = found.status["targets"]
                return bool((target["name"], target["desired"], target["ready"]) == ("main", 6, 2))

            await cluster.until(published)
        record = await cluster.client.get(CONFIG_MAPS, cluster.namespace, RECORD, Plain)
        assert record["data"]["holder"] == "first/windtunnel-operator"
        on.page = page(0, 0)  # idle: only what it remembers keeps a new process from shrinking
        async with autoscaling(cluster) as again:
            await again.ticks(3)
            await until_condition(cluster, "ScalingLimited", "True", "StabilizationWindow")
        assert await size(cluster) == 6
        assert "ForeignChange" not in await events(cluster)


async def test_gangs_are_scaled_by_their_scale(cluster: Cluster) -> None:
    async with stage(cluster) as on, served() as metrics:
        on.kubelets.address_of = lambda _: "127.0.0.1"
        await on.apply(pod_clique_set([clique("pc-a", 2, 1)], [], 1))
        await on.until_ready(2)
        one = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "web-0-pc-a"}
        await autoscaler(cluster, metrics.port, target=one)
        async with autoscaling(cluster):
            await until_size(cluster, 6, RESOURCES["PodClique"], "web-0-pc-a")
            await on.until_ready(6)
            await cluster.client.delete(AUTOSCALERS, cluster.namespace, "chat")
            whole = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "web"}
            await autoscaler(cluster, metrics.port, "sets", target=whole)
            await until_size(cluster, 5, RESOURCES["PodCliqueSet"], "web")


async def test_of_two_installations_one_acts_and_the_other_stands_by(cluster: Cluster) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, on.port)
        async with autoscaling(cluster) as first:
            await until_size(cluster, 6)
            async with autoscaling(cluster, installation="second/windtunnel-operator") as second:
                note = await until_event(cluster, "AnotherInstallation")
                assert "second/windtunnel-operator stands by" in note
                await first.ticks(3)
                assert second.of().standing_by
                assert not second.of().control.orders  # type: ignore[union-attr]
        record = await cluster.client.get(CONFIG_MAPS, cluster.namespace, RECORD, Plain)
        assert record["data"]["holder"] == "first/windtunnel-operator"


async def test_a_foreign_change_is_reported_and_stays(cluster: Cluster) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, on.port)
        async with autoscaling(cluster) as ours:
            await until_size(cluster, 6)
            await ours.ticks(1)
            await set_replicas(cluster.client, DEPLOYMENTS, cluster.namespace, "chat", 3)
            message = await until_condition(cluster, "Contested", "True", "ForeignChange")
            assert f"Deployment {cluster.namespace}/chat" in message
            note = await until_event(cluster, "ForeignChange")
            assert "has 3 replicas instead of 6: another writer scales it" in note
            assert "windtunnel-tests" in note  # its field manager
            await ours.ticks(3)
            assert await size(cluster) == 3


async def test_a_target_of_an_hpa_and_an_object_that_is_wrong(cluster: Cluster) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
        hpa = {"scaleTargetRef": target, "maxReplicas": 3}
        meta = {"namespace": cluster.namespace, "name": "theirs"}
        await cluster.client.create(HPAS, {"metadata": meta, "spec": hpa}, Plain)
        await autoscaler(cluster, on.port)
        with pytest.raises(Invalid, match="Unsupported value"):
            await autoscaler(cluster, on.port, "wrong", scaling={"policy": "hpx"})
        async with autoscaling(cluster) as ours:
            message = await until_condition(cluster, "AbleToScale", "False", "TargetTaken")
            assert "HorizontalPodAutoscaler theirs" in message
            assert await size(cluster) == 2
            bad = {"policy": "hpa", "metrics": [{"name": "x", "target": 1}]}
            await autoscaler(cluster, on.port, scaling=bad)
            message = await until_condition(cluster, "Accepted", "False", "Invalid")
            assert "'x' is not a metric that is measured here" in message
            assert "without bounds a mistake could grow" in message
            await autoscaler(cluster, on.port)
            await until_condition(cluster, "Accepted", "True", "Accepted")
            assert not ours.operator.bugs


QUICK = hpa(6, up={"rules": [{"pods": 4, "period": "1s"}]})
"""A limit of 1 s instead of 15 s, so that an order that failed does not hold back the next."""


async def test_an_api_server_that_is_away_decides_nothing(cluster: Cluster) -> None:
    await install(cluster.client)
    async with served() as on, proxied(cluster) as (proxy, client):
        await deployment(cluster)
        await ready_pods(cluster)
        on.page = page(5, 1)
        await autoscaler(cluster, on.port, scaling=QUICK)
        async with autoscaling(cluster, client) as ours:
            await until_condition(cluster, "ScalingActive", "True", "ValidMetricFound")
            proxy.fate = lambda method, path: Cut() if "/scale" in path else None
            on.page = page(20, 3)
            await ours.ticks(2)
            assert not ours.of().control.published  # type: ignore[union-attr]
            # Orders that cannot be sent are tried again; records that cannot be stored forbid them.
            proxy.fate = lambda method, path: (
                Cut() if method != "GET" and "configmaps" in path else None
            )
            await ours.ticks(3)
            assert await size(cluster) == 2
            # One that is carried out although no answer comes is known as ours.
            proxy.fate = lambda method, path: (
                Swallow() if method == "PATCH" and path.endswith("/scale") else None
            )
            await until_size(cluster, 6)
            await ours.ticks(2)
            cluster.plane.kill(API_SERVER)
            proxy.fate = lambda method, path: None
            await cluster.plane.restart()
            on.page = page(30, 3)
            await until_condition(cluster, "ScalingActive", "True", "ValidMetricFound")
            await ours.ticks(2)
            assert "ForeignChange" not in await events(cluster)


async def test_killed_at_any_write_it_knows_its_own_orders(cluster: Cluster) -> None:
    """Killed before the record, scale or status is written, or before the answer arrives."""
    await install(cluster.client)
    async with served() as on, proxied(cluster) as (proxy, client):
        await ready_pods(cluster)
        for number in range(6):
            deadly, fate = number // 2 + 1, (Cut(), Swallow())[number % 2]
            await deployment(cluster)
            writes, killed = 0, asyncio.Event()

            def die(
                method: str, path: str, at: int = deadly, fate: Any = fate, killed: Any = killed
            ) -> Any:
                nonlocal writes
                ours = any(word in path for word in ("configmaps", "/scale", "/status"))
                writes += method != "GET" and ours
                if writes < at:
                    return None
                killed.set()
                return fate if writes == at and method != "GET" else Cut()

            proxy.fate = die
            await autoscaler(cluster, on.port, scaling=QUICK)
            async with autoscaling(cluster, client), asyncio.timeout(30):
                await killed.wait()
            proxy.fate = lambda method, path: None
            async with autoscaling(cluster, client) as again:
                await until_size(cluster, 6)
                await again.ticks(2)
                assert "Contested" not in again.of().control.conditions  # type: ignore[union-attr]
            await cluster.client.delete(AUTOSCALERS, cluster.namespace, "chat")
            with suppress(NotFound):  # else it goes with its object, a little later
                await cluster.client.delete(CONFIG_MAPS, cluster.namespace, RECORD)
            await cluster.client.delete(DEPLOYMENTS, cluster.namespace, "chat")


async def test_no_write_after_the_lease_is_lost(cluster: Cluster) -> None:
    class Guard:
        left_s = 5.0

        def write_time_s(self, now_s: float) -> float:
            return self.left_s

    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        on.page = page(5, 1)
        await autoscaler(cluster, on.port)
        guard = Guard()
        fenced = cluster.client.fenced(guard)
        async with autoscaling(cluster, fenced) as ours:
            await until_condition(cluster, "ScalingActive", "True", "ValidMetricFound")
            guard.left_s = 0.0
            on.page = page(20, 3)
            with pytest.raises(NotLeader):
                await ours.ended()
        assert await size(cluster) == 2


@pytest.mark.parametrize(
    ("mood", "says"),
    [
        (GARBAGE, "what Prometheus answers cannot be read"),
        (SLOW, "Prometheus does not answer within 3 s"),
        (FAILS, "Prometheus answers 500: out of order"),
        (STALE, "Prometheus has no metrics of pod-0, pod-1 of the last 1.5 s"),
    ],
)
async def test_a_prometheus_that_fails_changes_nothing(
    cluster: Cluster, mood: str, says: str
) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, 1, metrics={"source": "prometheus"})
        on.mood = mood
        async with autoscaling(cluster, prometheus=on.url):
            message = await until_condition(cluster, "ScalingActive", "False", "FailedGetMetrics")
            assert says in message
            assert await size(cluster) == 2
            on.mood = OK
            await until_size(cluster, 6)


def kthena_crds(group: str, *kinds: str) -> list[dict[str, Any]]:
    """As much of Kthena's kinds as an API server must know."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    plurals = {"ModelServing": "modelservings", "AutoscalingPolicy": "autoscalingpolicies",
               "AutoscalingPolicyBinding": "autoscalingpolicybindings"}  # fmt: skip
    return [
        crd_of(
            CustomResource(
                f"{group}/v1alpha1", kind, plurals[kind], kind.lower(), "kthena", (),
                ".status.labelSelector" if kind == "ModelServing" else "",
            ),
            schema,
        )
        for kind in kinds
    ]  # fmt: skip


async def kthena_object(cluster: Cluster, group: str, kind: str, name: str, spec: Any) -> None:
    (crd,) = kthena_crds(group, kind)
    plural = crd["spec"]["names"]["plural"]
    meta = {"namespace": cluster.namespace, "name": name}
    resource = Resource(group, "v1alpha1", plural, kind)
    await cluster.client.create(resource, {"metadata": meta, "spec": spec}, Plain)


async def test_policies_of_kthena_before_and_after_its_v1(cluster: Cluster) -> None:
    """One reads pods; the other, with a binding, queries Prometheus with its own expression."""
    await install(cluster.client)
    group = "workload.serving.volcano.sh"
    kinds = ("ModelServing", "AutoscalingPolicy", "AutoscalingPolicyBinding")
    await install_crds(cluster.client, kthena_crds(group, *kinds))
    serving = Resource(group, "v1alpha1", "modelservings", "ModelServing")
    async with served() as on:
        labels = {"modelserving.volcano.sh/name": "llm", "modelserving.volcano.sh/entry": "true"}
        await ready_pods(cluster, 2, **labels)
        for name in ("llm", "old"):
            await kthena_object(cluster, group, "ModelServing", name, {"replicas": 2})
        policy = json.loads(json.dumps(HOMOGENEOUS["spec"]))
        source = policy["homogeneousTarget"]["target"]["metricSources"]
        source["vllm:num_requests_waiting"]["pod"]["port"] = on.port
        await kthena_object(cluster, group, "AutoscalingPolicy", "new", policy)
        query = {"serverURL": on.url, "query": "sum(their_own_metric) * 2"}
        target = {
            "targetRef": {"kind": "ModelServing", "name": "old"},
            "metricSources": {"pressure": {"type": "Prometheus", "prometheus": query}},
        }
        bound = {"target": target, "minReplicas": 1, "maxReplicas": 9}
        metrics = [{"metricName": "pressure", "targetValue": "1"}]
        await kthena_object(cluster, group, "AutoscalingPolicy", "earlier", {"metrics": metrics})
        binding = {"policyRef": {"name": "earlier"}, "homogeneousTarget": bound}
        await kthena_object(cluster, group, "AutoscalingPolicyBinding", "tied", binding)
        async with autoscaling(cluster):
            await until_size(cluster, 4, serving, "llm")
            await until_size(cluster, 6, serving, "old")
        assert "sum(their_own_metric) * 2" in on.asked


async def test_a_dry_run_publishes_what_an_hpa_can_consume(cluster: Cluster) -> None:
    await install(cluster.client)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, on.port)
        async with operate(cluster, "--autoscale", "--dry-run") as (process, url):
            labels = f'autoscaler="chat",kind="Deployment",namespace="{cluster.namespace}"'
            wanted = (
                f'windtunnel_scaling_desired_replicas{{{labels},pool="main",target="chat"}} 6.0'
            )
            text = ""
            async with asyncio.timeout(60):
                while wanted not in text:
                    await asyncio.sleep(0.1)
                    text = await text_of(f"{url}/metrics")
            assert process.returncode is None
        assert await size(cluster) == 2
        assert await condition(cluster, "ScalingActive") == ("", "", "")
        assert "SuccessfulRescale" not in await events(cluster)
