"""The chart: linted and rendered by the real helm, installed on a real API server, operating."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.kubernetes.chart import (
    CHART,
    HEAD,
    NAMESPACE,
    PLAIN,
    HelmFailed,
    helm,
    objects,
    rendered,
)
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import Stage, stage
from tests.kubernetes.test_operate_command import operate
from tests.kubernetes.test_rights import kubeconfig_of_account
from tests.kubernetes.test_webhooks import until_ready
from windtunnel.live.kubernetes.errors import ApiError, Forbidden, NotFound
from windtunnel.live.kubernetes.resources import NAMESPACES, PODS, Plain, Resource, Unstructured
from windtunnel.live.operate.rights import (
    CLUSTER,
    FEATURES,
    HOME,
    POOLS,
    SERVICES,
    WATCHED,
    gateway_rules,
    rules,
)
from windtunnel.live.operate.webhooks import CONFIGURATIONS
from windtunnel.live.rehearse.control_plane import free_port

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
GATEWAY_NAME = "windtunnel-gateway"
EVERYTHING = (
    "gateway.enabled=true",
    "operator.autoscale=true",
    "operator.canary.persistentVolumeClaim.claimName=gateway-trace",
    "operator.fleet.fleet.pools[0].name=a",
    "operator.fleet.fleet.pools[0].accelerator=h200",
    "operator.fleet.fleet.pools[0].machines.max=2",
    "operator.fleet.live.fleet.pools[0].name=a",
    "operator.fleet.live.fleet.pools[0].nodes.x=y",
    "monitoring.prometheusOperator=true",
    "monitoring.dashboards=true",
)


def test_helm_lints_it_and_plain_manifests_are_what_it_renders() -> None:
    for values in ((), EVERYTHING):
        chosen = [word for one in values for word in ("--set", one)]
        helm("lint", "--strict", str(CHART), *chosen)
    assert PLAIN.read_text() == HEAD + rendered(), "python -m tests.kubernetes.chart writes it"


def test_all_features_have_all_rights_and_none_have_fewer() -> None:
    no_gangs = ("operator.gangs=false", "operator.autoscale=true")
    for values, features in (
        (EVERYTHING, FEATURES),
        (("operator.place=false", "webhooks.enabled=false"), ("operator", "gangs")),
        (no_gangs, ("operator", "autoscale")),
    ):
        made = objects(rendered(*values))
        found = {one["kind"]: one for one in made if one["metadata"]["name"] != GATEWAY_NAME}
        for kind, scopes in (("ClusterRole", (CLUSTER, WATCHED)), ("Role", (HOME,))):
            assert found[kind]["rules"] == separate(features, *scopes)
        assert ("ValidatingWebhookConfiguration" in found) == ("webhooks" in features)


def separate(features: Iterable[str], *scopes: str) -> list[dict[str, Any]]:
    return [rule for scope in scopes for one in features for rule in rules([one], scope)]


def test_for_one_namespace_the_rights_are_a_role_of_it() -> None:
    found = objects(rendered(*EVERYTHING, "operator.namespace=team"))
    (cluster,) = (one for one in found if one["kind"] == "ClusterRole")
    assert cluster["rules"] == separate(FEATURES, CLUSTER)
    assert not any("secrets" in one["resources"] for one in cluster["rules"])
    there = {one["kind"]: one for one in found if one["metadata"].get("namespace") == "team"}
    assert there["Role"]["rules"] == separate(FEATURES, WATCHED)
    assert there["RoleBinding"]["roleRef"]["name"] == there["Role"]["metadata"]["name"]


def test_the_token_of_prometheus_comes_from_a_secret() -> None:
    values = ("autoscale=true", "prometheus=http://p", "prometheusTokenSecret=t")
    text = rendered(*(f"operator.{one}" for one in values))
    (deployment,) = (one for one in objects(text) if one["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert {"name": "prometheus", "secret": {"secretName": "t"}} in spec["volumes"]
    (container,) = spec["containers"]
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "prometheus")
    assert f"--prometheus-token-file={mount['mountPath']}/token" in container["args"]


def test_the_gateway_may_watch_what_it_needs_where_its_servers_are_and_nothing_else() -> None:
    services = "gateway.config.live.servers_kubernetes"
    made = objects(
        rendered(
            "gateway.enabled=true",
            f"{services}[0].service=vllm",
            f"{services}[1].service=other/decode",
            f"{services}[2].service=other/prefill",
            f"{services}[3].pool=both/vllm",
            f"{services}[4].service=both/vllm",
            f"{services}[5].pool=pools/vllm",
        )
    )
    ours = [one for one in made if one["metadata"]["name"] == GATEWAY_NAME]
    (account,) = [one for one in ours if one["kind"] == "ServiceAccount"]
    roles = {one["metadata"]["namespace"]: one for one in ours if one["kind"] == "Role"}
    bound = {one["metadata"]["namespace"]: one for one in ours if one["kind"] == "RoleBinding"}
    assert set(roles) == set(bound)
    assert {space: role["rules"] for space, role in roles.items()} == {
        NAMESPACE: gateway_rules(SERVICES),
        "other": gateway_rules(SERVICES),
        "both": gateway_rules(POOLS) + gateway_rules(SERVICES),
        "pools": gateway_rules(POOLS),
    }
    subject = {
        "kind": "ServiceAccount",
        **{k: account["metadata"][k] for k in ("name", "namespace")},
    }
    assert [one["subjects"] for one in bound.values()] == [[subject]] * 4
    (deployment,) = [one for one in ours if one["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == GATEWAY_NAME
    without = [one for one in objects(rendered("gateway.enabled=true")) if one not in made]
    assert not {"Role", "ServiceAccount"} & {one["kind"] for one in without}
    (deployment,) = [one for one in without if one["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("webhooks.failurePolicy=Perhaps", "failurePolicy"),
        ("operator.replica=3", "replica"),
        ("webhooks.url=http://x", "url"),
        ("operator.namespace=../x", "at '/operator/namespace'"),
        ("operator.prometheus=http://p", "nothing asks Prometheus without operator.autoscale"),
        (
            "operator.autoscale=true,operator.prometheus=http://me:pw@p",
            "has no user and no password",
        ),
        ("operator.fleet.pools[0].name=a", "missing properties 'fleet', 'live'"),
        (
            "operator.fleet.fleet.pools[0].name=a,operator.fleet.live.fleet.pools[0].nam=a",
            "at '/operator/fleet/live/fleet/pools/0': additional properties 'nam' not allowed",
        ),
    ],
)
def test_wrong_values_are_refused(value: str, said: str) -> None:
    with pytest.raises(HelmFailed, match=said):
        rendered(value)


async def test_installed_it_operates_with_its_own_rights_and_leaves_nothing(
    cluster: Cluster,
) -> None:
    """In a namespace with the pod security level `restricted`."""
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    port = free_port()
    where = ("--namespace", cluster.namespace, "--kubeconfig", str(cluster.plane.kubeconfig))
    values = ("--set", f"webhooks.url=https://127.0.0.1:{port},gateway.enabled=true")
    async with stage(cluster, slots=None, operator=False) as on:
        await on.client.patch(NAMESPACES, "", on.space, level, Plain)
        await asyncio.to_thread(helm, "install", "wt", str(CHART), *where, *values)
        try:
            await _both_pods_are_admitted(on)
            args = await _arguments(on)
            file = await kubeconfig_of_account(cluster)
            words = [*args[1:], "--webhook-port", str(port), "--kubeconfig", str(file)]
            async with operate(cluster, *words) as (_, url):
                await until_ready(cluster, url)
                safe = clique("a", 2)
                safe["spec"]["podSpec"] |= await _pod_security(on)
                await on.apply(pod_clique_set([safe]))
                await on.until(lambda: len(on.kubelets.alive("web-0-a")) == 2)
                with pytest.raises(ApiError, match="there is no clique 'x'"):
                    await on.apply(pod_clique_set([safe], [group("g", ["x"])], name="wrong"))
        finally:
            await asyncio.to_thread(helm, "uninstall", "wt", *where)
        for resource in CONFIGURATIONS:
            with pytest.raises(NotFound):
                await on.client.get(resource, "", "windtunnel-operator", Plain)


async def _pod_security(on: Stage) -> dict[str, Any]:
    """A pod spec that the namespace accepts."""
    found = await on.client.get(DEPLOYMENTS, on.space, "windtunnel-operator", Unstructured)
    spec = found.spec["template"]["spec"]
    kept = {"name": "main", "image": "busybox:1"}
    safe = {**kept, "securityContext": spec["containers"][0]["securityContext"]}
    return {"securityContext": spec["securityContext"], "containers": [safe]}


async def _arguments(on: Stage) -> list[str]:
    found = await on.client.get(DEPLOYMENTS, on.space, "windtunnel-operator", Unstructured)
    args: list[str] = found.spec["template"]["spec"]["containers"][0]["args"]
    assert args[0] == "operate"
    return args


async def _both_pods_are_admitted(on: Stage) -> None:
    for part in ("operator", "gateway"):
        name = f"windtunnel-{part}"
        found = await on.client.get(DEPLOYMENTS, on.space, name, Unstructured)
        spec: dict[str, Any] = found.spec["template"]["spec"]
        meta = {"name": f"try-{part}", "namespace": on.space}
        await on.client.create(PODS, {"metadata": meta, "spec": spec}, Plain, dry_run=True)
        open_spec = {**spec, "securityContext": {}}
        with pytest.raises(Forbidden, match="violates PodSecurity"):
            await on.client.create(PODS, {"metadata": meta, "spec": open_spec}, Plain, dry_run=True)
