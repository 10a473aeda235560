"""What probes make of the start of a pod, with numbers worked by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.gangs.manifests import clique, group, load, pod_clique_set
from tests.twin.kubernetes.by_hand import World
from windtunnel.cli.controllers.gangs import gangs
from windtunnel.core.loop import Loop
from windtunnel.twin.kubernetes.build import play
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.probes import pod_start
from windtunnel.twin.kubernetes.settings import plain_cluster
from windtunnel.twin.kubernetes.times import PodTimes

MINUTE_S = 60.0
STARTUP = {"startupProbe": {"periodSeconds": 10, "failureThreshold": 30}}
READINESS = {"readinessProbe": {"periodSeconds": 10}}


def start(load_s: float, *containers: dict[str, Any], serves: bool = False) -> tuple[Any, ...]:
    return tuple(pod_start({"containers": list(containers)}, load_s, serves=serves))


@pytest.mark.parametrize(
    ("container", "load_s", "unready", "ready_s", "killed_s"),
    [
        ({}, 120.0, [], 0.0, math.inf),
        (READINESS, 5.0, [(0.0, 10.0)], 10.0, math.inf),
        (READINESS, 120.0, [(0.0, 120.0)], 120.0, math.inf),
        (READINESS, 120.5, [(0.0, 130.0)], 130.0, math.inf),
        ({"readinessProbe": {}}, 120.5, [(0.0, 130.0)], 130.0, math.inf),
        (
            {"readinessProbe": {"initialDelaySeconds": 7, "periodSeconds": 2}},
            10.0, [(0.0, 11.0)], 11.0, math.inf,
        ),
        (
            {"readinessProbe": {"periodSeconds": 5, "successThreshold": 3}},
            12.0, [(0.0, 25.0)], 25.0, math.inf,
        ),
        (STARTUP, 120.0, [], 120.0, math.inf),
        (STARTUP, 121.0, [], 130.0, math.inf),
        ({**STARTUP, **READINESS}, 121.0, [], 130.0, math.inf),
        (
            {**STARTUP, "readinessProbe": {"successThreshold": 2}},
            121.0, [(130.0, 140.0)], 140.0, math.inf,
        ),
        ({"startupProbe": {}}, 120.0, [], 120.0, 20.0),
        ({"livenessProbe": {"initialDelaySeconds": 30}}, 120.0, [], 0.0, 50.0),
        ({"livenessProbe": {"initialDelaySeconds": 120}}, 120.0, [], 0.0, math.inf),
        ({**STARTUP, "livenessProbe": {}}, 120.0, [], 120.0, math.inf),
    ],
)  # fmt: skip
def test_the_start_of_one_container(
    container: dict[str, Any],
    load_s: float,
    unready: list[tuple[float, float]],
    ready_s: float,
    killed_s: float,
) -> None:
    assert start(load_s, container) == (unready, ready_s, killed_s)


def test_a_pod_is_ready_when_its_last_container_is() -> None:
    assert start(120.0, {}, STARTUP) == ([], 120.0, math.inf)
    assert start(5.0, READINESS, STARTUP) == ([(0.0, 10.0)], 10.0, math.inf)


def test_a_server_gets_no_request_before_it_has_loaded() -> None:
    assert start(42.0, {}, serves=True) == ([], 42.0, math.inf)
    assert start(42.0, READINESS, serves=True) == ([(0.0, 50.0)], 50.0, math.inf)


def test_on_a_cluster_that_serves_a_pod_is_ready_when_it_has_loaded() -> None:
    world = World(2, serves=True)
    world.gang("a", 2, containers=[{"name": "main"}])
    world.run(12.0)
    assert [(pod.phase, pod.started) for pod in world.pods("a")] == [("Running", False)] * 2
    world.run()
    assert [pod.ready_s for pod in world.pods("a")] == [16.0, 16.0]


def slow_set(probes: dict[str, Any], delay: str = "1m") -> dict[str, Any]:
    manifest = pod_clique_set([clique("a", 2)], terminationDelay=delay)
    for container in manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"]:
        container.update(probes)
    return manifest


def played(manifest: dict[str, Any], at_s: float | None = None) -> tuple[SimCluster, Loop]:
    cluster = plain_cluster(nodes=2)
    times = PodTimes(readiness=2 * MINUTE_S)
    return play(cluster.model_copy(update={"times": times}), load(manifest), at_s=at_s)


def test_a_startup_probe_holds_off_termination_while_a_model_loads() -> None:
    cluster, _ = played(slow_set({**STARTUP, **READINESS}))
    assert all(pod.ready for pod in cluster.view.pods.values())
    assert cluster.view.sets["web"].status.incarnations == {}
    assert cluster.recycle_loops() == []


def test_without_probes_a_running_pod_is_ready_at_once() -> None:
    cluster, _ = played(slow_set({}), at_s=30.0)
    assert [pod.ready for pod in cluster.view.pods.values()] == [True, True]


def test_a_pod_in_its_startup_probe_is_running_and_not_started() -> None:
    cluster, _ = played(slow_set(STARTUP), at_s=60.0)
    pods = cluster.view.pods.values()
    assert [(pod.phase, pod.started, pod.ready) for pod in pods] == [("Running", False, False)] * 2
    assert cluster.view.cliques["web-0-a"].status.unready == 0


def test_a_set_that_is_recycled_before_it_is_ready_is_told_and_ends() -> None:
    cluster, loop = played(slow_set(READINESS))
    assert cluster.recycle_loops() == [
        "web-0 recycled 30 times: delay 1 min is shorter than loading, 2 min"
    ]
    assert loop.now_s < 2 * 3600.0


def test_a_replica_of_a_group_that_is_recycled_for_ever_is_told() -> None:
    manifest = pod_clique_set(
        [clique("a", 1), clique("b", 1)], [group("g", ["b"], 2, 1)], terminationDelay="1m"
    )
    slow = manifest["spec"]["template"]["cliques"][1]["spec"]["podSpec"]["containers"][0]
    slow.update(READINESS)
    cluster, loop = played(manifest)
    assert cluster.recycle_loops()
    assert loop.now_s < 2 * 3600.0


def test_a_startup_probe_that_gives_up_too_early_kills_the_container() -> None:
    cluster, _ = played(slow_set({"startupProbe": {}}, "4h"), at_s=100.0)
    assert all(pod.erroneous for pod in cluster.view.pods.values())


CLUSTER = {"nodes": [{"name": "n", "count": 2, "capacity": {"memory": "1Gi"}}],
           "times": {"readiness": "2m"}}  # fmt: skip


def test_commands_warn_of_a_delay_below_loading_and_end(tmp_path: Path) -> None:
    file, cluster = tmp_path / "m.yaml", tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(slow_set(READINESS)))
    cluster.write_text(yaml.safe_dump(CLUSTER))
    done = CliRunner().invoke(gangs, ["validate", str(file), "--cluster", str(cluster)])
    assert "the termination delay, 1 min, is shorter than loading, 2 min" in done.output
    done = CliRunner().invoke(gangs, ["status", str(file), "--cluster", str(cluster)])
    assert done.exit_code == 0, done.output
    assert "web-0 recycled 30 times: delay 1 min is shorter than loading, 2 min" in done.output
    assert "this would not end, and was stopped here" in done.output
    file.write_text(yaml.safe_dump(slow_set(STARTUP)))
    done = CliRunner().invoke(gangs, ["validate", str(file), "--cluster", str(cluster)])
    assert "shorter than loading" not in done.output
