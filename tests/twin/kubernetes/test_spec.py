"""The file of a cluster: what it becomes, and what is said of faults."""

import pytest

from tests.gangs.manifests import constraint, load, workload
from windtunnel.core.errors import InputError
from windtunnel.gangs.placement.constraints import REUSE, SPREAD, SPREAD_WISH, reuses, spread_of
from windtunnel.twin.kubernetes.build import build, keys_of, machines, play
from windtunnel.twin.kubernetes.settings import load_cluster, load_cluster_text
from windtunnel.twin.kubernetes.times import CONSTANT, LOGNORMAL, UNIFORM

SMALL = """
nodes:
  - name: gpu
    count: 4
    capacity: {nvidia.com/gpu: 8, cpu: 96, memory: 1Ti}
    labels: {accelerator: h100}
    per: {rack: 2}
"""
MORE = SMALL.partition("nodes:")[2]


def test_machines_fill_racks() -> None:
    spec = load_cluster_text(SMALL)
    made = machines(spec.nodes[0], {"t": {"rack": "rack-key"}, "u": {"rack": "other-key"}})
    assert [node.name for node in made] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert [node.labels["rack-key"] for node in made] == ["gpu-rack-0"] * 2 + ["gpu-rack-1"] * 2
    assert made[3].labels == {
        "kubernetes.io/hostname": "gpu-3",
        "accelerator": "h100",
        "rack-key": "gpu-rack-1",
        "other-key": "gpu-rack-1",
    }
    assert made[0].capacity == {"nvidia.com/gpu": 8.0, "cpu": 96.0, "memory": 1024.0**4}
    assert keys_of("rack", {}) == ["rack"]


def test_times_are_fixed_or_vary() -> None:
    text = SMALL + (
        "times: {image_pull: 2m, readiness: {mean: 90s, cv: 0.3}, ending: {mean: 4s,"
        " distribution: uniform}, startup: {mean: 2s, distribution: uniform, half_width: 1s},"
        " force_after: 1h}\n"
    )
    times = load_cluster_text(text).times
    delays = times.delays()
    assert (delays["image_pull"].kind, delays["image_pull"].mean_s) == (CONSTANT, 120.0)
    assert (delays["readiness"].kind, delays["readiness"].spread) == (LOGNORMAL, 0.3)
    assert (delays["ending"].kind, delays["ending"].spread) == (UNIFORM, 4.0)
    assert delays["startup"].spread == 1.0
    assert times.force_after_s == 3600.0
    assert load_cluster_text(SMALL).times.force_after_s is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("times: {}", "nodes: missing"),
        ("nodes: []", "the list has no items; allowed: at least 1"),
        (SMALL + "rack: 3", "rack: unknown key"),
        (SMALL.replace("1Ti", "1Tx"), "'1Tx' is not a quantity; allowed: a quantity, such as 8"),
        (SMALL.replace("1Ti", "-1"), "-1 is not a quantity of 0 or more"),
        (SMALL.replace("count: 4", "count: 0"), "0 is too small"),
        (SMALL + MORE, "'gpu' is there twice"),
        (SMALL.replace("count: 4", "count: 100000") + MORE.replace("gpu\n", "x\n"),
         "there are 100004 nodes; allowed: up to 100000"),
        (SMALL + "happens: [{at: 1s}]", "nothing happens; allowed: one of cordon"),
        (SMALL + "happens: [{at: 1s, fail: gpu-0, cordon: gpu-1}]", "cordon and fail happen"),
        (SMALL + "happens: [{at: 1s, fail: gpu-4}]",
         "there is no node 'gpu-4'; allowed: nodes such as gpu-0 to gpu-3"),
        (SMALL + "times: {ending: {mean: 1s, distribution: uniform, cv: 1}}", "only `lognormal`"),
        (SMALL + "times: {ending: {mean: 1s, half_width: 1s}}", "only `uniform` has a half width"),
        (SMALL + "scheduler: best", "'best' is not known here; allowed: gang, one-by-one"),
    ],
)  # fmt: skip
def test_a_fault_is_a_sentence_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster_text(text, "cluster.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml")


def test_a_set_that_is_scaled_to_too_many_pods_is_refused() -> None:
    text = SMALL + "happens: [{at: 1s, scale: {of: web, to: 50000}}]"
    with pytest.raises(InputError, match="web would have 500,000 pods to show; allowed: up to"):
        play(load_cluster_text(text), load(workload(1)))


def test_a_file_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_cluster("/nowhere/cluster.yaml")


def test_topologies_come_from_manifests_first_then_from_the_cluster_then_plain() -> None:
    text = SMALL + "topologies: {mine: {rack: my-rack}}\n"
    manifests = load(workload(1))
    assert build(load_cluster_text(text), manifests).view.levels["mine"] == {"rack": "my-rack"}
    plain = build(load_cluster_text(SMALL), manifests).view
    assert list(plain.levels["plain"]) == ["zone", "block", "rack", "host"]
    assert plain.nodes["gpu-0"].labels["topology.kubernetes.io/rack"] == "gpu-rack-0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SMALL, "no level 'rock' here; allowed: zone, block, rack, host"),
        (SMALL + "topologies: {mine: {row: my-row}}\n", "no level 'rock' here; allowed: row"),
    ],
)
def test_a_level_that_the_cluster_does_not_have_is_refused(text: str, says: str) -> None:
    manifests = load(workload(1, topologyConstraint=constraint("rock", topology="mine")))
    with pytest.raises(InputError, match=says):
        build(load_cluster_text(text), manifests)


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ({SPREAD: "rack:0"}, "'rack:0' is not a spread limit; allowed: a domain"),
        ({SPREAD: "rack:x"}, "is not a spread limit"),
        ({SPREAD_WISH: "rock"}, "no topology has the level 'rock'; allowed: rack, host"),
    ],
)
def test_a_spread_that_says_nothing_is_refused(notes: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        spread_of(notes, "", {"t": {"rack": "r", "host": "h"}})


def test_a_spread_is_read() -> None:
    levels = {"t": {"rack": "r"}, "u": {"rack": "s", "row": "o"}}
    found = spread_of({SPREAD: "rack:2"}, "u", levels)
    assert found is not None
    assert (found.key, found.most, found.required) == ("s", 2, True)
    wish = spread_of({SPREAD_WISH: "row"}, "t", levels)
    assert wish is not None
    assert (wish.key, wish.most, wish.required) == ("o", 1, False)
    assert spread_of({}, "t", levels) is None


def test_whether_gangs_return_is_read() -> None:
    assert reuses({REUSE: "true"})
    assert not reuses({REUSE: "false"})
    assert not reuses({})
    with pytest.raises(InputError, match="'yes' is not a boolean; allowed: 'true' or 'false'"):
        reuses({REUSE: "yes"})
