"""What a restart costs: no code that is not run, and no look at pods for each node."""

import asyncio
import subprocess
import sys
from unittest.mock import AsyncMock

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.objects import NODE, POD
from windtunnel.live.kubernetes.errors import NoAnswer
from windtunnel.live.kubernetes.resources import Meta, OwnerReference
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.orphans import AGAIN_S, FIRST_S, MissingNodes
from windtunnel.live.operate.received import Received

LOADS = """
import sys
import windtunnel.live.operate.placement
import windtunnel.live.operate.program
print([one for one in sys.modules if one.startswith(("windtunnel.scaling", "windtunnel.fleet"))])
"""


def test_an_operator_of_gangs_loads_neither_autoscalers_nor_the_fleet() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def bound(name: str, node: str, at: str) -> Received:
    clique = OwnerReference(kind="PodClique", name="c", uid="c", controller=True)
    labels = {"app.kubernetes.io/managed-by": "grove-operator"}
    meta = Meta(name=name, namespace="default", uid=name, labels=labels, owner_references=[clique])
    bound_at = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    status = {"phase": "Running", "conditions": [bound_at]}
    return Received(metadata=meta, spec={"nodeName": node}, status=status)


def test_a_node_that_comes_is_about_its_own_pods_alone() -> None:
    mirror = Mirror(AsyncMock(), lambda: 2e9, placing=True)
    for node in ("a", "b"):
        for name in ("old", "new"):
            at = f"2026-11-16T10:00:0{0 if name == 'old' else 9}Z"
            mirror.objects[POD].cache.show(bound(f"{node}-{name}", node, at))
    asked: list[str] = []
    raw = mirror.raw

    def noted(kind: str, name: str) -> Received | None:
        asked.append(name)
        return raw(kind, name)

    mirror.raw = noted  # type: ignore[method-assign]
    meta = Meta(name="a", uid="n", creation_timestamp="2026-11-16T10:00:06Z")
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    mirror.objects[NODE].cache.show(Received(metadata=meta, status=status))
    assert sorted(asked) == ["a-old"]
    phases = {name: pod.phase for name, pod in mirror.view.pods.items()}
    assert phases == {
        "a-old": "Failed", "a-new": "Running", "b-old": "Running", "b-new": "Running",
    }  # fmt: skip
    mirror.objects[POD].cache.remove(bound("a-old", "a", "2026-11-16T10:00:00Z"))
    asked.clear()
    mirror.objects[NODE].cache.remove(Received(metadata=meta))
    assert asked == ["a-new"]
    assert mirror.view.pods["a-new"].phase == "Failed", "its node is gone"
    mirror.objects[NODE].cache.show(Received(metadata=meta, status=status))
    assert mirror.view.pods["a-new"].phase == "Running"
    assert asked == ["a-new", "a-new"]


def test_pods_of_a_node_that_has_failed_are_lost_at_once() -> None:
    mirror = Mirror(AsyncMock(), lambda: 2e9, placing=True)
    pod = bound("p", "a", "2026-11-16T10:00:09Z")
    pod.status["conditions"].append({"type": "Ready", "status": "True"})
    mirror.objects[POD].cache.show(pod)

    def node(version: int, ready: str, *taints: str) -> tuple[bool, str]:
        meta = Meta(name="a", uid="n", resource_version=str(version))
        spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        mirror.objects[NODE].cache.show(Received(metadata=meta, spec=spec, status=status))
        found = mirror.view.pods["p"]
        return found.ready, found.phase

    assert node(1, "True") == (True, "Running")
    assert node(2, "Unknown") == (False, "Running")
    assert node(3, "True") == (True, "Running")
    assert node(4, "Unknown", "node.kubernetes.io/out-of-service") == (False, "Failed")
    assert node(5, "True") == (True, "Running")


def test_pods_of_nodes_deleted_before_the_start_are_lost_once_that_is_certain() -> None:
    now_s = 2e9
    client = AsyncMock()
    mirror = Mirror(client, lambda: now_s, placing=True)
    missing = MissingNodes(mirror, client, lambda: now_s)
    at = "2026-11-16T10:00:09Z"
    for node in ("a", "b"):
        mirror.objects[POD].cache.show(bound(f"p-{node}", node, at))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node_b = Received(metadata=Meta(name="b", uid="b"), status=ready)

    def phases() -> dict[str, str]:
        return {name: pod.phase for name, pod in mirror.view.pods.items()}

    def look(after_s: float) -> None:
        nonlocal now_s
        now_s += after_s
        asyncio.run(missing.check())

    look(0.0)
    mirror.objects[NODE].cache.show(node_b)  # the watch of nodes was behind that of pods
    assert client.find.await_count == 0, "it waits for the watch first"
    client.find.side_effect = NoAnswer("away")
    look(FIRST_S)
    assert phases() == {"p-a": "Running", "p-b": "Running"}, "no answer proves nothing"
    client.find.side_effect = None
    client.find.return_value = Received(metadata=Meta(name="a", uid="a"))
    look(AGAIN_S)
    assert phases() == {"p-a": "Running", "p-b": "Running"}, "the node exists"

    async def bound_meanwhile(*_: object) -> None:
        mirror.objects[POD].cache.show(bound("p-new", "a", at))

    client.find.side_effect = bound_meanwhile
    look(AGAIN_S)
    assert phases() == {"p-a": "Failed", "p-b": "Running", "p-new": "Running"}
    assert {call.args[2] for call in client.find.await_args_list} == {"a"}
    mirror.objects[NODE].cache.show(Received(metadata=Meta(name="a", uid="a2"), status=ready))
    assert phases()["p-new"] == "Running"
    look(AGAIN_S)
    assert missing.next_s() == INFINITY, "no more to ask"
