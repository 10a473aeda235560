"""`windtunnel gangs status`: manifests on a simulated cluster, for people and as JSON."""

import io
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from tests.gangs.manifests import binding, clique, pod_clique_set, workload
from windtunnel.cli.controllers.gangs import gangs
from windtunnel.core.errors import InputError
from windtunnel.report.terminal.gangs import show_status
from windtunnel.twin.kubernetes.settings import load_cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "gangs"
SMALL = """
nodes: [{name: n, count: 10, capacity: {memory: 150Mi}}]
happens:
  - {at: 0s, cordon: n-9}
  - {at: 1m, uncordon: n-9}
  - {at: 2m, scale: {of: web-0-sg-x, to: 3}}
"""


def ask(tmp_path: Path, manifest: object, *options: str, cluster: str = SMALL) -> Result:
    file, machines = tmp_path / "m.yaml", tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(manifest))
    machines.write_text(cluster)
    words = ["status", str(file), "--check", *options]
    if "--nodes" not in options:
        words += ["--cluster", str(machines)]
    return CliRunner().invoke(gangs, words, catch_exceptions=False, env={"COLUMNS": "200"})


def test_a_gang_that_waits_is_told_why(tmp_path: Path) -> None:
    lines = ask(tmp_path, workload(1), "--at", "30s").output.splitlines()
    assert lines[0] == "at 30 s"
    gang = next(line for line in lines if line.startswith("web-0 "))
    assert gang.split()[:5] == ["web-0", "Pending", "10", "0/10", "0/10"]
    at = lines.index("WHY PENDING")
    assert lines[at + 1] == (
        "  web-0: it needs 10 pods of 80 MiB memory each; 9 fit on the 9 usable nodes of 10"
    )
    assert any("Unschedulable" in line for line in lines)


def test_the_tree_has_everything_in_its_place(tmp_path: Path) -> None:
    lines = ask(tmp_path, workload(1), "--at", "90s").output.splitlines()
    at = lines.index("web")
    assert lines[at + 1 : at + 10] == [
        "└─ replica 0",
        "   ├─ web-0-pc-a  2/2 ready, at least 2",
        "   └─ web-0-sg-x  2/2 available, at least 2",
        "      ├─ replica 0",
        "      │  ├─ web-0-sg-x-0-pc-b  1/1 ready, at least 1",
        "      │  └─ web-0-sg-x-0-pc-c  3/3 ready, at least 3",
        "      └─ replica 1",
        "         ├─ web-0-sg-x-1-pc-b  1/1 ready, at least 1",
        "         └─ web-0-sg-x-1-pc-c  3/3 ready, at least 3",
    ]
    assert "WHY PENDING" not in lines


def test_all_of_it_is_json_too(tmp_path: Path) -> None:
    found = json.loads(ask(tmp_path, workload(1), "--json", "-").output)
    assert [gang["phase"] for gang in found["gangs"]] == ["Running", "Pending"]
    assert found["pending"] == {
        "web-0-sg-x-0": "it needs 4 pods of 80 MiB memory each; 0 fit on 10 nodes"
    }
    assert len(found["pods"]) == 14
    assert found["nodes"][0]["used"] == {"memory": 80 * 1024.0**2}
    path = tmp_path / "out.json"
    assert "PODGANG" in ask(tmp_path, workload(1), "--json", str(path)).output
    assert json.loads(path.read_text())["pending"] == found["pending"]


def test_the_same_seed_gives_the_same_output(tmp_path: Path) -> None:
    first = ask(tmp_path, workload(2), "--json", "-", "--seed", "7").output
    assert ask(tmp_path, workload(2), "--json", "-", "--seed", "7").output == first


def test_wide_shows_every_pod_and_machine(tmp_path: Path) -> None:
    output = ask(tmp_path, workload(1), "--at", "30s", "--wide").output
    assert output.count("<none>") == 10
    assert "Ready,SchedulingDisabled" in output


def test_pods_that_are_held_by_their_gate_are_told_of(tmp_path: Path) -> None:
    found = json.loads(ask(tmp_path, workload(2), "--at", "30s", "--json", "-",
                           cluster=SMALL.replace("count: 10", "count: 2")
                           .replace("n-9", "n-1")).output)  # fmt: skip
    assert found["pending"]["web-0-sg-x-0"].startswith("the base gang web-0 comes first")


def test_racks_that_are_in_no_block_are_all_in_one(tmp_path: Path) -> None:
    """Nobody describes the levels of the topology, and only racks are written."""
    wish = {"topologyName": "plain", "pack": {"required": "rack"}}
    manifest = pod_clique_set([clique("a", 2)], replicas=2, topologyConstraint=wish)
    cluster = "nodes: [{name: n, count: 4, capacity: {memory: 150Mi}, per: {rack: 2}}]"
    found = json.loads(ask(tmp_path, manifest, "--json", "-", cluster=cluster).output)
    assert [gang["phase"] for gang in found["gangs"]] == ["Running", "Running"]
    block = {node["labels"]["topology.kubernetes.io/block"] for node in found["nodes"]}
    assert len(block) == 1


def test_everything_that_can_happen_to_a_cluster_happens(tmp_path: Path) -> None:
    deeds = """
nodes: [{name: n, count: 4, capacity: {memory: 150Mi}}]
happens:
  - {at: 60s, drain: n-0}
  - {at: 61s, crash: web-0-a}
  - {at: 70s, uncordon: n-0}
  - {at: 90s, mend: web-0-a}
  - {at: 200s, delete: {clique: web-0-a, count: 2}}
  - {at: 300s, fail: n-1}
  - {at: 1h, recover: n-1}
  - {at: 2h, scale: {of: web, to: 2}}
  - {at: 3h, scale: {of: web-0-a, to: 1}}
"""
    manifest = pod_clique_set([clique("a", 2, 1)])
    found = json.loads(ask(tmp_path, manifest, "--json", "-", cluster=deeds).output)
    assert [gang["ready"] for gang in found["gangs"]] == [1, 2]
    assert not found["pending"]


@pytest.mark.parametrize(
    ("options", "cluster", "says"),
    [
        (["--at", "soon"], SMALL, "'soon' is not a duration"),
        (["--at", "-5s"], SMALL, "--at: -5s is before the start"),
        (["--gpus", "4"], SMALL, "--gpus: .* says which machines there are"),
        ([], SMALL + "  - {at: 1m, crash: web-0-pc-x}", "no clique 'web-0-pc-x' .did you mean"),
        ([], SMALL + "  - {at: 1m, scale: {of: wob, to: 1}}", "no set, scaling group or clique"),
    ],
)
def test_bad_input_is_a_sentence(
    tmp_path: Path, options: list[str], cluster: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        ask(tmp_path, workload(1), *options, cluster=cluster)


def test_a_file_without_a_set_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no PodCliqueSet"):
        ask(tmp_path, binding("t", rack="r"))


def test_a_cluster_needs_no_file(tmp_path: Path) -> None:
    done = ask(tmp_path, workload(1), "--nodes", "2", "--gpus", "0", "--rack", "1", "--json", "-")
    found = json.loads(done.output)
    assert found["gangs"][0]["phase"] == "Running"
    assert found["nodes"][1]["labels"]["topology.kubernetes.io/rack"] == "node-rack-1"
    assert found["nodes"][1]["capacity"]["nvidia.com/gpu"] == 0.0


def test_a_cluster_that_is_never_quiet_is_stopped_and_that_is_said(tmp_path: Path) -> None:
    crashing = """
nodes: [{name: n, count: 1, capacity: {memory: 150Mi}}]
happens: [{at: 1m, crash: web-0-a}]
"""
    manifest = pod_clique_set([clique("a", 1)])
    done = ask(tmp_path, manifest, cluster=crashing)
    assert "note: it had not settled after 7 d, and was stopped there" in done.stderr
    assert "CrashLoopBackOff" in ask(tmp_path, manifest, "--wide", cluster=crashing).output


def test_the_example_waits_for_lack_of_wide_racks() -> None:
    words = ["status", str(EXAMPLES / "disaggregated.yaml"), "--json", "-", "--check"]
    narrow = CliRunner().invoke(gangs, [*words, "--cluster", str(EXAMPLES / "cluster.yaml")])
    found = json.loads(narrow.output)
    assert sorted(found["pending"]) == [f"chat-{n}-d-{k}" for n in (0, 1) for k in (0, 1)]
    assert all("in one rack; 1 fits in" in says for says in found["pending"].values())
    assert found["sets"][0]["available"] == 2
    wide = json.loads(CliRunner().invoke(gangs, [*words, "--nodes", "24", "--rack", "4"]).output)
    assert not wide["pending"]
    assert load_cluster(EXAMPLES / "cluster.yaml").nodes[0].count == 12


def test_invalid_sets_of_a_cluster_are_named(tmp_path: Path) -> None:
    found = json.loads(ask(tmp_path, workload(1), "--json", "-").output)
    console = Console(width=200, record=True, file=io.StringIO())
    show_status({**found, "invalid": {"shop": "spec.replicas: -1 is too low"}}, console, live=True)
    lines = console.export_text().splitlines()
    assert lines[lines.index("INVALID") + 1] == "  shop: spec.replicas: -1 is too low"
