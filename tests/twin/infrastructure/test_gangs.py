"""Pools whose replicas are cliques, scaling groups and sets of manifests."""

from pathlib import Path

import pytest

from tests.twin.infrastructure.worlds import composed
from tests.twin.scaled import Script
from windtunnel.core.errors import InputError
from windtunnel.twin.run import run, simulate
from windtunnel.twin.scenario.load import load
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.replicas import READY

SET = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: chat}
spec:
  replicas: 1
  template:
    terminationDelay: 2m
    cliques:
      - name: router
        spec:
          roleName: router
          replicas: 1
          podSpec: {containers: [{name: r, image: "r:1", resources: {requests: {cpu: "4"}}}]}
      - name: leader
        spec:
          roleName: leader
          replicas: 1
          podSpec: &pod
            terminationGracePeriodSeconds: 20
            containers:
              - {name: e, image: "e:1", resources: {requests: {nvidia.com/gpu: "8"}}}
      - name: worker
        spec: {roleName: worker, replicas: 1, podSpec: *pod}
    podCliqueScalingGroups:
      - {name: engine, cliqueNames: [leader, worker], replicas: 2, minAvailable: 1}
"""
SCENARIO = """
name: gangs
{duration}
workload:
  - {{name: chat, count: {count}, arrivals: {{process: constant, rate: 1/s}},
     prompt_tokens: {{distribution: constant, value: 100}},
     output_tokens: {{distribution: constant, value: {output}}}}}
serving:
  pools:
    - {{name: main, accelerator: h200, {pool} engine: {{kv_blocks: 500, max_num_seqs: 4}},
       step_time: {{model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}}}
  startup: {{load: {{mean: 30s}}}}
gangs: {{manifests: [set.yaml]}}
{more}
"""
FLEET = """
fleet:
  pools:
    - {name: big, accelerator: h200, machines: {max: 6}, price_per_hour: 36,
       provisioning: {mean: 60s}, machines_per_rack: 2}
"""


def planned(
    folder: Path,
    *,
    pool: str = "clique: engine, tensor_parallel: 16,",
    more: str = FLEET,
    count: int = 60,
    output: int = 100,
    duration: str = "",
    manifest: str = SET,
) -> ScenarioPlan:
    (folder / "set.yaml").write_text(manifest)
    path = folder / "scenario.yaml"
    text = SCENARIO.format(pool=pool, more=more, count=count, output=output, duration=duration)
    path.write_text(text)
    return load(path)


def nothing(_: object) -> None:
    pass


def test_a_replica_of_a_scaling_group_is_a_server(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan.pools[0].replicas == 2, "as the manifest says"
    simulation, infrastructure = composed(plan)
    assert simulation.cluster.pools[0].counts[READY] == 2
    pods = infrastructure.serving_clusters[0].cluster.view.pods.values()
    assert len({pod.node for pod in pods if pod.requests.get("nvidia.com/gpu")}) == 4
    result = simulate(plan, check=True)
    assert result["requests"]["completed"] == 60
    assert result["gangs"]["clusters"]["main"] == {
        "gangs": 2,
        "pods": 5,
        "waiting": 0,
        "ready": 5,
        "sizes": [[0.0, 0, 0, 5, 0, 0]],
    }


def test_objects_of_other_apis_are_skipped_with_a_note(tmp_path: Path) -> None:
    more = SET + "---\n{apiVersion: v1, kind: Service, metadata: {name: front}}\n"
    result = simulate(planned(tmp_path, manifest=more), check=True)
    assert result["requests"]["completed"] == 60
    assert result["gangs"]["notes"] == ["not gangs, and skipped: Service front"]


def test_pods_go_to_tainted_machines_only_if_they_tolerate_it(tmp_path: Path) -> None:
    """With a dearer pool without taints beside, and with none."""
    tainted = FLEET.replace("big,", 'big, taints: ["gpu=yes:NoSchedule"],')
    tainted = tainted.replace("{max: 6}", "{initial: 0, max: 6}")
    counts = "{initial: 0, max: 6}"
    dear = f"    - {{name: dear, accelerator: h200, machines: {counts}, price_per_hour: 90}}\n"
    tolerations = "tolerations: [{key: gpu, operator: Exists}]"
    tolerant = SET.replace("{containers", f"{{{tolerations}, containers").replace(
        "            containers:", f"            {tolerations}\n            containers:"
    )
    for manifest, pool in ((SET, "dear"), (tolerant, "big")):
        result = simulate(planned(tmp_path, manifest=manifest, more=tainted + dear), check=True)
        assert result["requests"]["completed"] == 60
        assert [name for name, one in result["fleet"]["pools"].items() if one["most"]] == [pool]
    result = simulate(planned(tmp_path, more=tainted, duration="duration: 2m"))
    (note,) = result["gangs"]["notes"]
    assert note.startswith("5 pods can never be placed (chat-0-")
    assert "no kind of machine has the resources, labels and tolerated taints" in note


def test_a_gang_that_is_recycled_for_ever_ends_the_run(tmp_path: Path) -> None:
    """A crash at 5 s, and its servers need longer to load than a gang may be breached."""
    manifest = SET.replace("2m", "20s").replace("replicas: 2, minAv", "replicas: 1, minAv")
    manifest = manifest.replace('"8"}}}', '"8"}}, readinessProbe: {periodSeconds: 1}}')
    more = "faults: [{kind: engine-crash, at: 5s}]\nprogress: {recycles: 3}"
    plan = planned(tmp_path, more=more, manifest=manifest, count=20, output=20)
    result = simulate(plan, check=True)
    assert result["requests"]["unfinished"] == 16
    assert result["partial"] == (
        "none of the 16 requests inside finished in the last 1 min 23 s: gang chat-0 was recycled "
        "4 times, every 21.1 s (delay 20 s is shorter than loading, 30 s) (progress.recycles: 3)"
    )


def test_without_a_fleet_machines_are_without_end(tmp_path: Path) -> None:
    result = simulate(planned(tmp_path, more=""), check=True)
    assert result["fleet"] is None
    assert result["gangs"]["clusters"]["main"]["ready"] == 5


def test_a_server_dies_with_one_of_its_pods(tmp_path: Path) -> None:
    plan = planned(tmp_path, count=120)
    simulation, infrastructure = composed(plan)
    cluster = infrastructure.serving_clusters[0].cluster
    crashed = ""

    def look(_: object) -> None:
        nonlocal crashed
        if simulation.now_s > 20.0 and not crashed:
            pod = next(pod for pod in cluster.view.pods.values() if pod.template.name == "worker")
            crashed = pod.name
            cluster.crash(pod, simulation.now_s)
            infrastructure.wake(simulation.now_s)
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    pool = simulation.cluster.pools[0]
    assert pool.lost == 1
    assert pool.counts[READY] == 2, "its pods were started again, and are another replica"
    assert len(pool.replicas) == 3
    assert simulation.recorder.outcomes["completed"] == 120


def test_the_grace_of_pods_bounds_a_drain(tmp_path: Path) -> None:
    """Requests of 2,100 steps of some 24 ms take longer than the 20 s that a pod may take."""
    plan = planned(tmp_path, count=8, output=2100)
    simulation, _ = composed(plan)
    pool = simulation.cluster.pools[0]
    asked = False

    def look(_: object) -> None:
        nonlocal asked
        if simulation.now_s > 9.0 and not asked:
            asked = True
            simulation.lifecycle.set_target(pool, 1, simulation.now_s, "test")
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    gone = [replica for replica in pool.replicas if replica.gone_s >= 0.0]
    assert len(gone) == 1
    assert 29.0 <= gone[0].gone_s <= 31.0
    assert pool.lost == 1
    assert simulation.recorder.outcomes["completed"] == 8


def test_a_gang_below_its_minimum_is_terminated(tmp_path: Path) -> None:
    """Containers that keep crashing breach the group; after two minutes it is made anew."""
    plan = planned(tmp_path, count=300, duration="duration: 10m")
    simulation, infrastructure = composed(plan)
    cluster = infrastructure.serving_clusters[0].cluster
    begun = False

    def look(_: object) -> None:
        nonlocal begun
        if simulation.now_s > 10.0 and not begun:
            begun = True
            cluster.crash_loop("chat-0-engine-1-worker", simulation.now_s)
            infrastructure.wake(simulation.now_s)
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    assert infrastructure.terminations >= 1


@pytest.mark.parametrize(
    ("pool", "sentences"),
    [
        ("tensor_parallel: 16,", ["no clique backs the pool"]),
        ("clique: engin, tensor_parallel: 16,", ["no 'engin'", "did you mean 'engine'"]),
        ("clique: leader, tensor_parallel: 8,", ["scaled with its scaling group", "chat/engine"]),
        ("clique: engine, tensor_parallel: 8,", ["ask for 16"]),
        ("clique: engine, tensor_parallel: 16, replicas: 4,", ["can hold 3"]),
    ],
)
def test_contradictions(tmp_path: Path, pool: str, sentences: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        planned(tmp_path, pool=pool)
    for sentence in sentences:
        assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("manifests", "sentence"),
    [
        ("set.yaml, set.yaml", "gangs.manifests[1]: {}/set.yaml: the set chat is defined twice"),
        ("set.yaml, none.yaml", "gangs.manifests[1]: {}/none.yaml: there is no such file"),
        ("scenario.yaml", "gangs.manifests[0]: {}/scenario.yaml"),
    ],
)
def test_what_is_wrong_with_manifests_has_its_place(
    tmp_path: Path, manifests: str, sentence: str
) -> None:
    planned(tmp_path)
    with pytest.raises(InputError) as refused:
        load(tmp_path / "scenario.yaml", [f"gangs.manifests=[{manifests}]"])
    assert sentence.format(tmp_path) in str(refused.value)


def test_an_accelerator_that_no_machine_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pool of `fleet` has 'h200'; allowed: a100"):
        planned(tmp_path, more=FLEET.replace("accelerator: h200", "accelerator: a100"))


def test_contradictions_are_told_together(tmp_path: Path) -> None:
    pool = (
        "clique: engine, tensor_parallel: 16,\n       "
        "engine: {kv_blocks: 500}, step_time: {model: linear, fixed: 20ms}}\n"
        "    - {name: twin, accelerator: h200, clique: engine, tensor_parallel: 16,"
    )
    more = FLEET.replace("max: 6", "min: 9, max: 6")
    with pytest.raises(InputError) as refused:
        planned(tmp_path, pool=pool, more=more)
    text = str(refused.value)
    assert "9 is more than max" in text
    assert "scaled by two owners: pool main has 'engine' already" in text


def test_a_set_is_in_one_cluster(tmp_path: Path) -> None:
    manifest = SET + "      - {name: other, cliqueNames: [spare], replicas: 1}\n"
    manifest = manifest.replace(
        "    podCliqueScalingGroups:",
        "      - {name: spare, spec: {roleName: spare, replicas: 1, podSpec: *pod}}\n"
        "    podCliqueScalingGroups:",
    )
    pool = (
        "clique: engine, tensor_parallel: 16,\n       "
        "engine: {kv_blocks: 500}, step_time: {model: linear, fixed: 20ms}}\n"
        "    - {name: twin, cluster: west, accelerator: h200, clique: other, tensor_parallel: 8,"
    )
    with pytest.raises(InputError, match="the set 'chat' is in 'main'"):
        planned(tmp_path, pool=pool, manifest=manifest)


def test_every_time_of_the_section_is_in_force(tmp_path: Path) -> None:
    times = "startup: {mean: 2s, distribution: uniform, half_width: 1s}, force_after: 50s"
    planned(tmp_path)
    path = tmp_path / "scenario.yaml"
    path.write_text(path.read_text().replace("set.yaml]", f"set.yaml], times: {{{times}}}"))
    plan = load(path, ["faults=[{kind: machine-loss, at: 10s}]"])
    _, infrastructure = composed(plan)
    pods = infrastructure.serving_clusters[0].cluster
    assert pods.times.force_after_s == 50.0
    assert simulate(plan, check=True)["requests"]["completed"] == 60
    sentence = "gangs.times.startup.half_width: only `uniform` has a half width"
    with pytest.raises(InputError, match=sentence):
        load(path, ["gangs.times.startup.distribution=exponential"])


AT_MINIMUM = Path(__file__).parents[2] / "fuzz/corpus/a-gang-that-stays-at-its-minimum.yaml"


def test_an_order_below_the_minimum_of_a_gang_is_no_change() -> None:
    result = run(load(AT_MINIMUM), check=True, scaler=Script({"main": 1})).result
    assert (result["scaling"]["changes"], result["decisions"]["scaling"]) == (0, 0)
    assert result["scaling"]["changes_per_hour"] == 0


def test_a_run_waits_for_an_order_after_one_that_changed_nothing() -> None:
    late = ("scaling.interval=100ms", "scaling.actuation_delay={mean: 12s}")
    script = Script({"main": 1}, *[{}] * 118, {"spare": 1})
    result = run(load(AT_MINIMUM, sets=late), check=True, scaler=script).result
    assert result["requests"]["completed"] == 1
    assert result["decisions"]["scaling"] == 1
