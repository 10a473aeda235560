"""Failures on a cluster, one test for each: `failure_cases.py` has the table of all."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from math import log2

import msgspec
import pytest

from tests.gangs.kubernetes.groves import HPA, as_groves, groves_hash
from tests.gangs.manifests import clique, pod_clique_set, workload
from tests.kubernetes.chaos import Delay, Fate, Refuse, Silence, Swallow, chaos, proxied
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import SET, SETS, Operator, Stage, stage
from tests.kubernetes.test_gang_placement import add, placed
from tests.kubernetes.test_operate_command import operate, text_of
from tests.kubernetes.test_webhooks import configured, until_called
from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.random import Streams
from windtunnel.gangs.kubernetes.crds import crds
from windtunnel.gangs.pod_manifest import TEMPLATE_HASH
from windtunnel.live.kubernetes.client import ObjectSelection
from windtunnel.live.kubernetes.errors import ApiError, NotFound
from windtunnel.live.kubernetes.resources import NAMESPACES, NODES, PODS, Plain, Resource
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.rehearse.cluster import install_crds
from windtunnel.live.rehearse.control_plane import CONTROLLERS, free_port
from windtunnel.live.rehearse.kubelets import add_node

OWN = ("PodClique", "PodCliqueScalingGroup", "PodGang", "Service", "Pod")
"""The kinds that the operator deletes itself."""
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[None]:
    task = asyncio.create_task(operator.run())
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, BaseException)
        if not isinstance(ended, asyncio.CancelledError):
            raise ended


async def until_nothing(on: Stage) -> None:
    async def empty() -> bool:
        return not [name for kind in OWN for name in await on.names(kind)]

    await on.cluster.until(empty)


def _is_watch(path: str) -> bool:
    return "watch=" in path


def lost_creates() -> Callable[[str, str], Fate]:
    """Swallows the answer to every second create of a pod."""
    numbers = count()

    def fate(method: str, path: str) -> Fate:
        is_pod = method == "POST" and path.partition("?")[0].endswith("/pods")
        return Swallow() if is_pod and next(numbers) % 2 == 0 else None

    return fate


def conflicts() -> Callable[[str, str], Fate]:
    numbers = count()

    def fate(method: str, path: str) -> Fate:
        is_status = method == "PATCH" and "/status" in path
        return Refuse(409) if is_status and next(numbers) < 5 else None

    return fate


def at_random(*fates: Fate) -> Callable[[str, str], Fate]:
    """Applies one of the fates to a fifth of the requests."""
    stream = Streams(7)["tests.faults"]

    def fate(method: str, path: str) -> Fate:
        number = stream.integer(0, 5 * len(fates) - 1)
        return fates[number] if number < len(fates) else None

    return fate


def slow() -> Callable[[str, str], Fate]:
    return lambda method, path: None if _is_watch(path) else Delay(0.2)


def deaf() -> Callable[[str, str], Fate]:
    """Silences watches of gangs, and swallows the answer to every fourth patch of one."""
    numbers = count()

    def fate(method: str, path: str) -> Fate:
        if "/podgangs" not in path:
            return None
        if _is_watch(path):
            return Silence()
        return Swallow() if method == "PATCH" and next(numbers) % 4 == 0 else None

    return fate


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(deaf, id="a watch is silent"),
        pytest.param(lost_creates, id="answers of creates are lost"),
        pytest.param(conflicts, id="statuses conflict"),
        pytest.param(lambda: at_random(Refuse(500), Refuse(504)), id="a fifth fails"),
        pytest.param(lambda: at_random(Swallow()), id="a fifth is not answered"),
        pytest.param(lambda: at_random(Refuse(429, "0")), id="a fifth is shed"),
        pytest.param(slow, id="every answer is slow"),
    ],
)
async def test_a_set_comes_up_whatever_becomes_of_requests(
    cluster: Cluster, make: Callable[[], Callable[[str, str], Fate]]
) -> None:
    async with proxied(cluster) as (proxy, client), stage(cluster, client=client) as on:
        await on.until(lambda: on.operator.mirror.synced)
        proxy.fate = make()
        if make is deaf:
            proxy.cut_all()
        await on.apply(workload(2))
        await on.until_ready(10)
        await on.kubelets.lose("web-0-sg-x-0-pc-c")
        await on.until(lambda: len(on.ever) == 11 and on.kubelets.ready() == 10)

        async def available() -> bool:
            return (await on.status(SET, "web")).get("availableReplicas") == 1

        await cluster.until(available)
        assert len(on.ever) == 11, "no pod was created twice"
        assert not [call for call in on.operator.writer.log if call.verb == "delete"]
        proxy.fate = lambda method, path: None


async def test_a_set_whose_requests_hang_holds_up_no_other(cluster: Cluster) -> None:
    async with proxied(cluster) as (proxy, client), stage(cluster, client=client) as on:
        await on.until(lambda: on.operator.mirror.synced)
        proxy.fate = lambda method, path: Silence() if "/slow" in path else None
        for name in ("slow", "web"):
            await on.apply(pod_clique_set([clique("a", 2)], name=name))
        async with asyncio.timeout(20):  # a request may take 30 s
            await on.until(lambda: on.kubelets.ready("web-0-a") == 2)
            await on.kubelets.lose("web-0-a")
            await on.until(lambda: len(on.ever) == 3 and on.kubelets.ready("web-0-a") == 2)
        proxy.fate = lambda method, path: None
        proxy.cut_all()
        await on.until_ready(4)


async def test_no_pod_takes_the_place_of_one_that_could_not_be_deleted(cluster: Cluster) -> None:
    """An update deletes the old pod and creates the new one in one pass, at the same index."""
    async with proxied(cluster) as (proxy, client), stage(cluster, client=client) as on:
        await on.apply(pod_clique_set([clique("a", 2)]))
        await on.until_ready(2)
        old: set[str] = set(on.ever)
        refused: list[set[str]] = []

        def fate(method: str, path: str) -> Fate:
            if method == "DELETE" and "/pods/" in path and len(refused) < 3:
                refused.append(on.ever - old)
                return Refuse(500)
            return None

        proxy.fate = fate
        changed = pod_clique_set([clique("a", 2)])
        changed["spec"]["template"]["cliques"][0]["labels"] = {"version": "2"}
        await on.apply(changed)
        await on.until(lambda: len(refused) == 3)
        assert not any(refused), "no new pod was there when the old one was to go"
        await on.until(lambda: len(on.ever) == 4 and on.kubelets.ready() == 2)
        assert not {pod.metadata.uid for pod in on.kubelets.alive()} & old


async def test_a_binding_without_an_answer_is_read_and_not_repeated(cluster: Cluster) -> None:
    async with proxied(cluster) as (proxy, client):
        proxy.fate = lambda method, path: Swallow() if path.endswith("/binding") else None
        async with stage(cluster, slots=None, client=client) as on:
            node = await add(on, 0)
            await on.apply(placed(on, 4))
            await on.until(lambda: on.kubelets.ready("web-0-a") == 4)
            await on.client.delete(NODES, "", node)
        assert sum(path.endswith("/binding") for _, path in proxy.seen) == 4


async def test_a_set_deleted_and_created_again_at_once_starts_clean(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        old = set(on.ever)
        before = (await on.get(SET, "web")).metadata.uid
        await on.client.delete(SETS, on.space, "web")
        await on.apply(workload(2))

        def renewed() -> bool:
            alive = {pod.metadata.uid for pod in on.kubelets.alive()}
            return not alive & old and on.kubelets.ready() == len(alive) == 10

        await on.until(renewed)
        now = (await on.get(SET, "web")).metadata.uid
        assert now != before
        owners = {one.metadata.controller.uid for one in await on.all("PodGang")}  # type: ignore[union-attr]
        assert owners == {now}
        assert len(on.ever) == 20


async def test_a_clique_made_by_hand_is_not_adopted(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        theirs = {"roleName": "x", "replicas": 1, "minAvailable": 1,
                  "podSpec": {"containers": [{"name": "m", "image": "x"}]}}  # fmt: skip
        meta = {"name": "web-0-pc-a", "namespace": on.space}
        made = await on.client.create(
            RESOURCES["PodClique"], {"metadata": meta, "spec": theirs}, Plain
        )
        await on.apply(workload(2))

        async def told() -> bool:
            return "NamesTaken" in await on.conditions(SET, "web")

        await cluster.until(told)
        found = await on.get("PodClique", "web-0-pc-a")
        assert (found.metadata.uid, found.spec) == (made["metadata"]["uid"], made["spec"])
        assert not on.kubelets.alive("web-0-pc-a")
        await on.client.delete(RESOURCES["PodClique"], on.space, "web-0-pc-a")
        await on.until_ready(10)


async def become_groves(on: Stage) -> None:
    """Makes all existing objects look as if Grove's operator had created them."""
    for kind in ("PodCliqueSet", "PodCliqueScalingGroup", "PodClique", "PodGang", HPA, "Pod"):
        resource = RESOURCES[kind]
        listed = await on.client.list_all(resource, ObjectSelection(on.space))
        for item in listed.items:
            theirs = as_groves(kind, msgspec.json.decode(item))
            meta = theirs["metadata"]
            if kind == "Pod":
                change = {"metadata": {"labels": meta["labels"]}}
                await on.client.patch(resource, on.space, meta["name"], change, Plain)
                continue
            made = await on.client.replace(resource, theirs, Plain)
            if "status" in theirs and kind not in ("PodGang", HPA):
                told = {"metadata": made["metadata"], "spec": made["spec"]}
                told["status"] = theirs["status"]
                await on.client.replace(resource, told, Plain, subresource="status")


async def test_sets_of_groves_operator_are_taken_over_and_no_pod_is_restarted(
    cluster: Cluster,
) -> None:
    scaled = {"maxReplicas": 3, "metrics": []}
    manifest = workload(4)
    manifest["spec"]["template"]["cliques"][0]["spec"]["autoScalingConfig"] = scaled
    async with stage(cluster, operator=False) as on:
        async with running(on.operator):
            await on.apply(manifest)
            await on.until_ready(10)
            await on.until_status(SET, "web", availableReplicas=1, updatedReplicas=1)
        ours = (await on.status(SET, "web"))["currentGenerationHash"]
        await become_groves(on)
        pods = {one.metadata.uid: one.metadata.labels[TEMPLATE_HASH] for one in await on.all("Pod")}
        async with running(on.operator_without_placement()):
            theirs = groves_hash(ours)
            now = {"currentGenerationHash": theirs, "availableReplicas": 1, "updatedReplicas": 1}
            await on.until_status(SET, "web", **now)

            async def remembered() -> bool:
                return "windtunnel" in await on.status(SET, "web")

            await cluster.until(remembered)
            held = [one.metadata.name for kind in ("PodClique", "PodCliqueScalingGroup", SET)
                    for one in await on.all(kind) if one.metadata.finalizers]  # fmt: skip
            assert held == []
            found = {one.metadata.uid: one.metadata.labels[TEMPLATE_HASH]
                     for one in await on.all("Pod")}  # fmt: skip
            assert found == pods
            assert "NamesTaken" not in await on.conditions(SET, "web")
            manifest["spec"]["template"]["cliques"][0]["labels"] = {"version": "2"}
            await on.apply(manifest)
            await on.until(
                lambda: len(on.ever) == 12 and on.kubelets.ready() == len(on.kubelets.alive()) == 10
            )
            kept = {pod.metadata.uid for pod in on.kubelets.alive()} & set(pods)
            assert len(kept) == 8, "those of the other roles"
            await on.client.delete(SETS, on.space, "web")
            await until_nothing(on)


@pytest.mark.parametrize("placing", [False, True], ids=["others place", "we place"])
async def test_a_label_that_somebody_takes_off_a_pod_is_put_back(
    cluster: Cluster, *, placing: bool
) -> None:
    async with stage(cluster, slots=None if placing else 100) as on:
        node = await add(on, 0)
        await on.apply(placed(on, 4))
        await on.until_ready(4)
        pod = on.kubelets.alive("web-0-a")[0].metadata
        label = "app.kubernetes.io/managed-by"
        change = {"metadata": {"labels": {label: None}}}
        await on.client.patch(PODS, on.space, pod.name, change, Plain)

        async def put_back() -> bool:
            return label in (await on.get("Pod", pod.name)).metadata.labels

        await cluster.until(put_back)
        await on.until_ready(4)
        assert len(on.ever) == 4, "no second pod took its place"
        assert not [one for one in on.operator.events if "StrayPod" in one]
        await on.client.delete(NODES, "", node)


async def test_a_pod_that_loses_its_owner_is_told_and_replaced_once(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        stray = on.kubelets.alive("web-0-pc-a")[0].metadata
        change = {"metadata": {"ownerReferences": None}}
        await on.client.patch(PODS, on.space, stray.name, change, Plain)
        await on.until_ready(11)
        assert stray.uid in {pod.metadata.uid for pod in on.kubelets.alive()}, "it is left alone"
        assert [one for one in on.operator.events if stray.name in one and "StrayPod" in one]


def limit_range(space: str, least: str) -> Plain:
    limits = [{"type": "Container", "min": {"memory": least}}]
    return {"metadata": {"name": "least", "namespace": space}, "spec": {"limits": limits}}


@pytest.mark.parametrize("case", ["pod security", "limit range", "priority class"])
async def test_pods_that_admission_refuses_are_a_condition_and_no_storm(
    cluster: Cluster, case: str
) -> None:
    async with stage(cluster) as on:
        manifest = pod_clique_set([clique("a", 2)])
        label = "pod-security.kubernetes.io/enforce"
        if case == "pod security":
            strict = {"metadata": {"labels": {label: "restricted"}}}
            await on.client.patch(NAMESPACES, "", on.space, strict, Plain)
            says = "violates PodSecurity"
        elif case == "limit range":
            await on.client.create(LIMIT_RANGES, limit_range(on.space, "100Mi"), Plain)
            says = "minimum memory usage per Container is 100Mi"
        else:
            pod = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
            pod["priorityClassName"] = on.space
            says = f"no PriorityClass with name {on.space}"
        began_s = monotonic_s()
        await on.apply(manifest)

        async def told() -> bool:
            return says in (await on.conditions(SET, "web")).get("Refused", "")

        await cluster.until(told)
        await asyncio.sleep(1.0)
        passes = 3 + log2(1.0 + (monotonic_s() - began_s) / 0.25)
        assert on.calls("failed")["create Pod"] < 2 * passes, "tried more and more seldom"
        assert [one for one in on.operator.events if says in one and one.startswith("FailedCreate")]
        if case == "pod security":
            await on.client.patch(
                NAMESPACES, "", on.space, {"metadata": {"labels": {label: None}}}, Plain
            )
        elif case == "limit range":
            change = limit_range(on.space, "10Mi")
            await on.client.patch(LIMIT_RANGES, on.space, "least", change, Plain)
        else:
            made = {"metadata": {"name": on.space}, "value": 7}
            await on.client.create(RESOURCES["PriorityClass"], made, Plain)
        await on.until_ready(2)

        async def over() -> bool:
            return "Refused" not in await on.conditions(SET, "web")

        await cluster.until(over)
        if case == "priority class":
            await on.client.delete(RESOURCES["PriorityClass"], "", on.space)


async def test_a_namespace_that_is_deleted_goes_and_nothing_is_created_in_it(
    cluster: Cluster,
) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        await on.client.delete(NAMESPACES, "", on.space)

        async def gone() -> bool:
            try:
                await on.client.get(NAMESPACES, "", on.space, Plain)
            except NotFound:
                return True
            return False

        await cluster.until(gone)
        assert len(on.ever) == 10


async def test_without_a_garbage_collector_nothing_is_left_of_a_set(cluster: Cluster) -> None:
    """The set is deleted while no operator runs: the next one finds what is left of it."""
    plane = cluster.plane
    async with stage(cluster, operator=False) as on:
        async with running(on.operator):
            await on.apply(workload(2))
            await on.until_ready(10)
        plane.kill(CONTROLLERS)
        try:
            await on.client.delete(SETS, on.space, "web")
            async with running(on.operator_without_placement()):
                await until_nothing(on)
                await on.apply(workload(2))
                await on.until_ready(10)
                await on.client.delete(SETS, on.space, "web")
                await until_nothing(on)
        finally:
            plane.start(CONTROLLERS)


async def test_a_set_that_waits_for_its_parts_to_go_gets_no_new_ones(cluster: Cluster) -> None:
    """Foreground deletion, which the garbage collector completes."""
    plane = cluster.plane
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        plane.kill(CONTROLLERS)
        try:
            path = SETS.path(on.space, "web")
            await on.client.request("DELETE", path, {"propagationPolicy": "Foreground"})
            sets = on.operator.mirror.view.sets
            await on.until(lambda: sets[f"{on.space}/web"].terminating)
            await on.kubelets.lose("web-0-sg-x-0-pc-c")
            await on.until(lambda: len(on.kubelets.alive()) == 9)
            await asyncio.sleep(1.0)
            assert len(on.ever) == 10
        finally:
            plane.start(CONTROLLERS)


async def test_a_clique_that_something_holds_back_holds_back_nothing_else(
    cluster: Cluster,
) -> None:
    async with stage(cluster) as on:
        for name in ("web", "other"):
            await on.apply(pod_clique_set([clique("a", 2), clique("b", 1)], name=name))
        await on.until_ready(6)
        cliques = RESOURCES["PodClique"]
        held = {"metadata": {"finalizers": ["windtunnel.dev/test"]}}
        await on.client.patch(cliques, on.space, "web-0-a", held, Plain)
        await on.client.delete(cliques, on.space, "web-0-a")
        await on.client.delete(cliques, on.space, "other-0-a")
        old = set(on.ever)
        await on.until(lambda: len(on.ever - old) == 2)
        await on.until(lambda: on.kubelets.ready("other-0-a") == 2)
        assert (await on.get("PodClique", "web-0-a")).metadata.deletion_timestamp is not None
        free = {"metadata": {"finalizers": None}}
        await on.client.patch(cliques, on.space, "web-0-a", free, Plain)
        await on.until_ready(6)


@pytest.mark.parametrize("answers", [False, True], ids=["is down", "says nothing"])
async def test_running_sets_go_on_while_the_webhook(cluster: Cluster, answers: bool) -> None:
    port = free_port()

    waiting: list[asyncio.StreamWriter] = []

    def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)

    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        server = await asyncio.start_server(silent, "127.0.0.1", port) if answers else None
        try:
            async with configured(on.client, on.space, port):
                await until_called(on)
                with pytest.raises((ApiError, TimeoutError)):
                    async with asyncio.timeout(2):
                        await on.apply(workload(2, 2))
                await on.kubelets.lose("web-0-sg-x-0-pc-c")
                await on.until(lambda: len(on.ever) == 11 and on.kubelets.ready() == 10)
                await on.scale("PodCliqueScalingGroup", "web-0-sg-x", 3)
                await on.until_ready(14)
        finally:
            for writer in waiting:
                writer.transport.abort()
            if server is not None:
                server.close()
                await server.wait_closed()


async def test_kinds_that_the_cluster_lacks_are_waited_for(cluster: Cluster) -> None:
    async with stage(cluster, operator=False) as on, chaos(cluster.plane) as proxy:
        proxy.fate = lambda method, path: Refuse(404) if "grove.io" in path else None
        config = cluster.plane.kubeconfig_of("late", "system:masters", proxy.url)
        async with operate(cluster, "--kubeconfig", str(config), "--init-image", "x:1") as (
            process,
            url,
        ):

            async def waits() -> bool:
                return (await text_of(f"{url}/readyz")).startswith("not listed yet: PodCliqueSet")

            await cluster.until(waits)
            await on.apply(pod_clique_set([clique("a", 2)]))
            proxy.fate = lambda method, path: None
            await on.until_ready(2)
            assert process.returncode is None
            assert await text_of(f"{url}/readyz") == "ok\n"


async def test_kinds_that_are_upgraded_roll_nothing_out(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        upgraded = copy.deepcopy([*crds()])
        for crd in upgraded:
            for version in crd["spec"]["versions"]:
                fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                fields.setdefault("properties", {})["later"] = {"type": "string", "default": "x"}
        await install_crds(on.client, upgraded)
        await on.kubelets.lose("web-0-sg-x-0-pc-c")
        await on.until(lambda: len(on.ever) == 11 and on.kubelets.ready() == 10)
        await on.scale("PodCliqueScalingGroup", "web-0-sg-x", 3)
        await on.until_ready(14)
        assert len(on.ever) == 15
        assert "Accepted" not in (await on.conditions(SET, "web"))


async def test_a_pod_that_its_node_has_no_room_for_is_replaced(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        nodes = [await add(on, number) for number in range(2)]
        await on.apply(placed(on, 3))
        await on.until(lambda: on.kubelets.ready("web-0-a") == 3)
        await on.fail(on.kubelets.alive("web-0-a")[0], "OutOfcpu")
        await on.until(lambda: len(on.ever) == 4 and on.kubelets.ready("web-0-a") == 3)
        for name in nodes:
            await on.client.delete(NODES, "", name)


async def test_pods_of_a_dead_node_are_replaced_while_they_cannot_end(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        first = await add(on, 0)
        await on.apply(placed(on, 3))
        await on.until(lambda: on.kubelets.ready("web-0-a") == 3)
        second = await add(on, 1)
        await on.kubelets.fail_node(first)
        lost = on.kubelets.alive("web-0-a")
        for pod in lost:
            await on.client.delete(PODS, on.space, pod.metadata.name)
        await on.until(
            lambda: (
                {pod.spec.get("nodeName") for pod in on.kubelets.alive()} == {second}
                and on.kubelets.ready("web-0-a") == 3
            )
        )
        old = {pod.metadata.uid for pod in on.kubelets.pods if pod.metadata.deletion_timestamp}
        assert old == {pod.metadata.uid for pod in lost}, "nobody could end them"
        on.kubelets.revive(first)
        on.kubelets.look()
        for name in (first, second):
            await on.client.delete(NODES, "", name)


@pytest.mark.parametrize("how", ["not ready", "out of service", "gone"])
async def test_pods_of_a_dead_node_are_lost_before_kubernetes_deletes_them(
    cluster: Cluster, how: str
) -> None:
    """Of one that is not ready the clock of their gang runs; they may be tolerated there."""
    async with stage(cluster, slots=None) as on:
        first = await add(on, 0)
        manifest = placed(on, 3)
        manifest["spec"]["template"]["terminationDelay"] = "3s"
        await on.apply(manifest)
        await on.until(lambda: on.kubelets.ready("web-0-a") == 3)
        others = [await add(on, number) for number in (1, 2)]  # most nodes are ready
        began_s = unix_s()
        await on.kubelets.fail_node(first)
        if how == "gone":
            await on.client.delete(NODES, "", first)
        if how == "out of service":
            taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
            await on.client.patch(NODES, "", first, {"spec": {"taints": [taint]}}, Plain)
        await on.until(
            lambda: (
                {pod.spec.get("nodeName") for pod in on.kubelets.alive()} <= {*others}
                and on.kubelets.ready("web-0-a") == 3
            )
        )
        waited_s = unix_s() - began_s
        terminations = (await on.status(SET, "web"))["windtunnel"].get("incarnations")
        assert bool(terminations) == (how == "not ready")
        assert how != "not ready" or waited_s > 3.0
        on.kubelets.revive(first)
        on.kubelets.look()
        for name in (first, *others):
            with contextlib.suppress(NotFound):
                await on.client.delete(NODES, "", name)


async def test_while_many_nodes_are_not_ready_no_gang_is_terminated(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        nodes = [await add(on, number) for number in range(3)]
        for name in nodes:
            await on.kubelets.fail_node(name)
        # The default is a share of all nodes, and those of other tests are there, too.
        manifest = pod_clique_set([clique("a", 3)], terminationDelay="1s", holdAtNodesNotReady=3)
        await on.apply(manifest)
        await on.until_ready(3)
        first = {pod.metadata.uid for pod in on.kubelets.alive()}
        on.kubelets.slots = 2
        await on.kubelets.lose("web-0-a")

        async def says(what: str) -> dict[str, str]:
            found = (await on.status(SET, "web")).get("conditions") or []
            return next((one for one in found if one["type"] == what), {})

        async def held() -> bool:
            return (await says("TerminationHeld")).get("status") == "True"

        await cluster.until(held)
        assert [one for one in on.operator.events if one.startswith("TerminationHeld ")]
        await asyncio.sleep(2.0)
        assert len(first & {pod.metadata.uid for pod in on.kubelets.alive()}) == 2
        held_until_s = unix_s()
        await add(on, 0)  # it is ready again

        async def terminated() -> bool:
            return not first & {pod.metadata.uid for pod in on.kubelets.alive()}

        await cluster.until(terminated)
        assert unix_s() - held_until_s > 1.0, "the delay started over"
        on.kubelets.slots = 100
        on.kubelets.look()
        await on.until_ready(3)

        async def over() -> bool:
            return not await says("TerminationHeld")

        await cluster.until(over)
        for name in nodes:
            await on.client.delete(NODES, "", name)


async def test_pods_of_a_node_that_was_replaced_under_its_name_are_lost(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(pod_clique_set([clique("a", 2)]))
        await on.until_ready(2)
        old = set(on.ever)
        for pod in on.kubelets.alive():
            known = [one for one in pod.status["conditions"] if one["type"] != "PodScheduled"]
            bound = {"type": "PodScheduled", "status": "True"}
            bound["lastTransitionTime"] = "2020-01-01T00:00:00Z"
            await on.client.patch(
                PODS, on.space, pod.metadata.name, {"status": {"conditions": [*known, bound]}},
                Plain, subresource="status",
            )  # fmt: skip
        node = f"node-{on.space}"
        await on.client.delete(NODES, "", node)
        await add_node(on.client, node)
        await on.until(lambda: len(on.ever) == 4 and on.kubelets.ready() == 2)
        assert not old & {pod.metadata.uid for pod in on.kubelets.alive()}


async def test_pods_of_a_node_that_was_deleted_while_no_operator_ran_are_lost(
    cluster: Cluster,
) -> None:
    async with stage(cluster, slots=None, operator=False) as on:
        first, second = [await add(on, number) for number in range(2)]
        async with running(on.operator):
            await on.apply(placed(on, 2))
            await on.until_ready(2)
        old = on.kubelets.alive("web-0-a")
        assert {pod.spec["nodeName"] for pod in old} == {first}
        await on.kubelets.fail_node(first)
        await on.client.delete(NODES, "", first)
        on.operator = Operator(cluster, placing=True)
        async with running(on.operator):
            await on.until(
                lambda: (
                    {pod.spec.get("nodeName") for pod in on.kubelets.alive()} == {second}
                    and on.kubelets.ready("web-0-a") == 2
                )
            )
        assert len(on.ever) == 4, "each is replaced once"
        await on.client.delete(NODES, "", second)


async def test_a_gang_is_not_terminated_for_a_cordon_that_its_operator_could_not_see(
    cluster: Cluster,
) -> None:
    """A pod can be bound to a node that was cordoned while the watch of nodes was cut, as by any
    scheduler: its gang is whole then. Once the cordon is seen, the next loss is a breach."""
    async with (
        proxied(cluster) as (proxy, client),
        stage(cluster, slots=None, client=client) as on,
    ):
        node = await add(on, 0)
        manifest = placed(on, 2)
        manifest["spec"]["template"]["terminationDelay"] = "3s"
        await on.apply(manifest)
        await on.until_ready(2)

        async def lose() -> None:
            pod = on.kubelets.alive("web-0-a")[0]
            meta = pod.metadata
            await on.client.delete(PODS, on.space, meta.name, uid=meta.uid, grace_s=0)

        async def terminations() -> object:
            return (await on.status(SET, "web"))["windtunnel"].get("incarnations")

        silenced: list[str] = []

        def silent(method: str, path: str) -> Fate:
            if "/v1/nodes" in path and "watch=" in path:
                silenced.append(path)
                return Silence()
            return None

        proxy.fate = silent
        proxy.cut_all()
        await on.until(lambda: bool(silenced))
        await on.client.patch(NODES, "", node, {"spec": {"unschedulable": True}}, Plain)
        await lose()
        await on.until(lambda: len(on.ever) == 3 and on.kubelets.ready("web-0-a") == 2)
        assert {pod.spec["nodeName"] for pod in on.kubelets.alive()} == {node}
        await asyncio.sleep(4.0)
        assert await terminations() is None
        proxy.fate = lambda method, path: None
        proxy.cut_all()
        await on.until(lambda: on.operator.mirror.view.nodes[node].cordoned)
        await lose()

        async def terminated() -> bool:
            return await terminations() is not None

        await cluster.until(terminated)
        await on.client.delete(NODES, "", node)


async def test_many_sets_with_a_restart_in_the_middle(cluster: Cluster) -> None:
    async with stage(cluster, slots=200, operator=False) as on:
        for number in range(30):
            await on.apply(pod_clique_set([clique("a", 2), clique("b", 1)], name=f"s{number}"))
        first = on.operator
        async with running(first):
            await on.until(lambda: len(on.ever) >= 40)
        second = on.operator_without_placement()
        async with running(second):
            await on.until_ready(90)
        assert len(on.ever) == 90
        calls = sum(first.writer.counts.values()) + sum(second.writer.counts.values())
        assert calls / 30 < 40, "requests for each set"
