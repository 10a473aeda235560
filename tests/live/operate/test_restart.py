"""What a restart costs: no code that is not run, and no look at pods for each node."""

import subprocess
import sys
from unittest.mock import AsyncMock

from windtunnel.gangs.objects import NODE, POD
from windtunnel.live.kubernetes.resources import Meta, OwnerReference
from windtunnel.live.operate.mirror import Mirror
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
    mirror.objects[NODE].cache.show(Received(metadata=meta))
    assert sorted(asked) == ["a-new", "a-old"]
    phases = {name: pod.phase for name, pod in mirror.view.pods.items()}
    assert phases == {
        "a-old": "Failed", "a-new": "Running", "b-old": "Running", "b-new": "Running",
    }  # fmt: skip
    mirror.objects[POD].cache.remove(bound("a-old", "a", "2026-11-16T10:00:00Z"))
    asked.clear()
    mirror.objects[NODE].cache.remove(Received(metadata=meta))
    mirror.objects[NODE].cache.show(Received(metadata=meta))
    assert asked == ["a-new"]
