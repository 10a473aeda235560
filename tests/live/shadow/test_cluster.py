"""What a shadow knows of a cluster: by an operator's log, or an API server that it reads."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from windtunnel.analysis.shadow.window import ClusterState, Present, ReplicaCount, StateCount
from windtunnel.core.errors import InputError
from windtunnel.live.event_log import EventLogFile, log_line
from windtunnel.live.shadow.cluster import ClusterObjects, ClusterReader, OperatorLog
from windtunnel.scaling.kubernetes.control import TickObservation
from windtunnel.scaling.kubernetes.snapshots import PodView, PoolObservation
from windtunnel.search.forecast import Forecaster, WhatIf

GROVE: dict[str, Any] = {
    "app.kubernetes.io/part-of": "chat",
    "grove.io/podcliqueset-replica-index": "0",
}


def pod(
    name: str, labels: dict[str, str] | None = None, *, ready: bool = True, owner: str = ""
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    status = "True" if ready else "False"
    condition = {"type": "Ready", "status": status}
    return {"metadata": meta, "status": {"phase": "Running", "conditions": [condition]}}


def engine(group: int, role: str, *, ready: bool = True) -> dict[str, Any]:
    labels = {
        **GROVE,
        "grove.io/podclique": f"chat-0-engine-{group}-{role}",
        "grove.io/podcliquescalinggroup": "chat-0-engine",
        "grove.io/podcliquescalinggroup-replica-index": str(group),
    }
    return pod(f"engine-{group}-{role}", labels, ready=ready)


def node(name: str, *, ready: bool = True, gpus: int = 8, pool: str = "") -> dict[str, Any]:
    found = pod(name, ready=ready)
    found["metadata"]["labels"] = {"windtunnel.dev/pool": pool} if pool else {}
    found["status"]["capacity"] = {"cpu": "8", "nvidia.com/gpu": str(gpus)}
    return found


def test_replicas_are_counted_by_what_makes_pods_one_replica() -> None:
    objects = ClusterObjects()
    hashed = {"pod-template-hash": "7f9"}
    lws = {
        "leaderworkerset.sigs.k8s.io/name": "lws",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
    }
    serving = {"modelserving.volcano.sh/name": "llm"}
    pods = [
        engine(0, "leader"), engine(0, "worker"), engine(1, "leader"),
        engine(1, "worker", ready=False),
        pod("router-0", {**GROVE, "grove.io/podclique": "chat-0-router"}),
        pod("main-7f9-a", hashed, owner="main-7f9"),
        pod("main-7f9-b", hashed, owner="main-7f9", ready=False),
        pod("lws-0", lws), pod("lws-0-1", lws, ready=False),
        pod("llm-0", {**serving, "modelserving.volcano.sh/entry": "true"}),
        pod("llm-0-worker", serving),
    ]  # fmt: skip
    for one in pods:
        objects.take("Pod", one["metadata"]["name"], one)
    ending = pod("old", hashed, owner="main-7f9")
    ending["metadata"]["deletionTimestamp"] = "2026-11-16T00:00:00Z"
    objects.take("Pod", "old", ending)
    found = objects.state()
    assert found.replicas == {
        "chat": ReplicaCount(1, 0),
        "engine": ReplicaCount(2, 1),
        "router": ReplicaCount(1, 1),
        "main": ReplicaCount(2, 1),
        "lws": ReplicaCount(1, 0),
        "llm": ReplicaCount(1, 1),
    }
    assert found.pods == StateCount(11, 8)
    assert (found.gangs, found.machines) == (None, None)
    for one in (node("a", pool="h200"), node("b", ready=False, pool="h200"), node("cpu", gpus=0)):
        objects.take("Node", one["metadata"]["name"], one)
    assert objects.state().machines == {"h200": StateCount(2, 1)}


def begin(path: Path) -> None:
    log = EventLogFile(path, {}, "operator")
    log.open()
    log.close()


def seen(kind: str, one: dict[str, Any]) -> bytes:
    name = one["metadata"]["name"]
    return log_line(9.0, "object.received", f"{kind} {name}", "", {"object": one})


def test_an_operators_log_is_followed_over_rotation_restarts_and_damage(tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    begin(log)
    follower = OperatorLog(log)
    with log.open("ab") as out:
        out.write(seen("Pod", engine(0, "leader")) + seen("Pod", engine(0, "worker")))
        out.write(b"{damaged\n" + log_line(9.0, "object.received", "Pod x", "", {}))
        gang = {"metadata": {"name": "g"}, "status": {"phase": "Running"}}
        out.write(seen("PodGang", gang) + seen("Node", node("a")))
    found = follower.look()
    assert (found.replicas["engine"], found.gangs) == (ReplicaCount(1, 1), StateCount(1, 1))
    assert found.machines == {"": StateCount(1, 1)}
    assert follower.bad_lines == 2
    with log.open("ab") as out:
        out.write(log_line(9.5, "object.gone", "PodGang g", "", {}))
    log.rename(tmp_path / "operator.log.1")
    log.write_bytes(seen("Pod", engine(1, "leader")))
    found = follower.look()
    assert found.gangs == StateCount(0, 0), "the end of the log before is read, too"
    assert found.replicas["engine"] == ReplicaCount(2, 2)
    pods = [PodView(str(at), "x", 0.0, ready=at < 3) for at in range(6)]
    look: Any = TickObservation({"main": PoolObservation(3, pods), "other": "no answer"})
    with log.open("ab") as out:
        out.write(log_line(9.9, "autoscaler.observed", "x", "", {"object": [], "seen": look}))
    assert follower.look().replicas["main"] == ReplicaCount(3, 1)
    begin(log)
    found = follower.look()
    assert (found.replicas, found.gangs) == ({}, StateCount(0, 0))
    assert follower.bad_lines == 2
    with pytest.raises(InputError, match="there is no such log of an operator"):
        OperatorLog(tmp_path / "none")


@contextmanager
def api_server(pages: dict[str, Any], asked: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(f"{self.command} {path}")
            status, items = pages.get(path, (404, []))
            body: dict[str, Any] = {"metadata": {"resourceVersion": "5"}, "items": items}
            if status != 200:
                body = {"kind": "Status", "code": status, "message": "not for you", "reason": "X"}
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_api_server_is_only_listed_and_may_refuse_some_of_it(tmp_path: Path) -> None:
    asked: list[str] = []
    pages = {
        "/api/v1/namespaces/ns/pods": (200, [engine(0, "leader"), engine(0, "worker")]),
        "/api/v1/nodes": (403, []),
    }
    with api_server(pages, asked) as url:
        config = tmp_path / "config"
        config.write_text(json.dumps({
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
            "clusters": [{"name": "one", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {}}],
        }))  # fmt: skip
        reader = ClusterReader(config, "", "ns")
        found = reader.look()
        assert found.replicas["engine"] == ReplicaCount(1, 1)
        assert (found.gangs, found.machines) == (None, None)
        assert "not for you" in reader.says
        assert all(one.startswith("GET ") for one in asked)
        pages["/api/v1/nodes"] = (200, [node("a")])
        assert reader.look().machines == {"": StateCount(1, 1)}
        assert reader.says == ""
    found = reader.look()
    assert found.machines == {"": StateCount(1, 1)}, "what was there last"
    assert reader.says


SCENARIO = """\
name: sizes
workload: [{name: chat, arrivals: {rate: 1/s}, prompt_tokens: 1, output_tokens: 1}]
serving:
  pools:
    - {name: main, replicas: 2}
    - {name: other, clique: engine}
scaling:
  policy: hpa
  metrics: [{name: running, target: 1}]
  pools: {main: {min: 2, max: 6}}
fleet:
  pools:
    - {name: h200, machines: {min: 1, max: 5}}
    - {name: l4, machines: {min: 0, max: 5}}
"""


@pytest.mark.parametrize(("ready", "replicas"), [(5, 5), (9, 6), (1, 2), (0, 2)])
def test_the_twin_begins_with_what_is_ready_within_bounds(ready: int, replicas: int) -> None:
    machines = {"h200": StateCount(3, 2), "": StateCount(9, 9)}
    counts = {"main": ReplicaCount(9, ready), "engine": ReplicaCount(4, 3)}
    present = Present(0.0, [], [], 1, ClusterState(counts, None, None, machines))
    document = Forecaster(SCENARIO, "x.yaml", {"1m": 60.0}, 60.0).document(
        Path("trace"), present, WhatIf()
    )
    serving: Any = document.data["serving"]
    fleet: Any = document.data["fleet"]
    assert [pool.get("replicas") for pool in serving["pools"]] == [replicas, 3]
    assert [pool["machines"].get("initial") for pool in fleet["pools"]] == [3, None]
