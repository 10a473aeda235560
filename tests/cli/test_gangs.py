"""`windtunnel gangs`."""

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from tests.gangs.manifests import (
    binding,
    clique,
    constraint,
    group,
    load_set,
    pod_clique_set,
    workload,
)
from windtunnel.cli.controllers.gangs import gangs
from windtunnel.core.errors import InputError


def written(tmp_path: Path, manifest: object) -> str:
    path = tmp_path / "m.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return str(path)


def test_a_good_file_is_said_to_be_good(tmp_path: Path) -> None:
    file = written(tmp_path, workload(1))
    done = CliRunner().invoke(gangs, ["validate", file])
    assert done.output == f"{file}: PodCliqueSet web: nothing is wrong\n"
    done = CliRunner().invoke(gangs, ["validate", "--json", file])
    assert json.loads(done.output) == {
        "valid": True,
        "kinds": ["PodCliqueSet web"],
        "skipped": [],
        "warnings": {"web": []},
    }


def test_a_bad_file_is_a_sentence(tmp_path: Path) -> None:
    manifest = workload(1)
    manifest["kind"] = "Deployment"
    done = CliRunner().invoke(gangs, ["validate", written(tmp_path, manifest)])
    assert isinstance(done.exception, InputError)
    assert "'Deployment' is not a kind that is read here" in str(done.exception)


TREE = """\
PodCliqueSet web: 3 x 4 pods, revision {revision}, update RollingRecreate, terminated after 4 h
├─ replica web-0
│  ├─ PodGang web-0: 2 of 3 pods are placed together
│  │  ├─ PodClique web-0-pc-a: 2 pods, at least 1; each 80 MiB memory
│  │  │  ├─ Pod web-0-pc-a-0
│  │  │  └─ Pod web-0-pc-a-1
│  │  └─ PodClique web-0-sg-0-pc-b: 1 pod, at least 1; each 80 MiB memory; \
starts after 1 of web-0-pc-a ready
│  │     └─ Pod web-0-sg-0-pc-b-0
│  ├─ PodGang web-0-sg-0: 1 of 1 pods are placed together, once web-0 is
│  │  └─ PodClique web-0-sg-1-pc-b: 1 pod, at least 1; each 80 MiB memory
│  │     └─ Pod web-0-sg-1-pc-b-0
│  ├─ PodCliqueScalingGroup web-0-sg: 2 replicas of pc-b, at least 1
│  └─ Service web-0
├─ replica web-1 to web-2: the same again
├─ ServiceAccount web
├─ Role grove.io:pcs:web
├─ RoleBinding grove.io:pcs:web
└─ Secret web-ic-sat
"""


def test_the_tree_of_what_would_be_created(tmp_path: Path) -> None:
    manifest = pod_clique_set(
        [clique("pc-a", 2, 1), clique("pc-b")],
        [group("sg", ["pc-b"], 2)],
        3,
        cliqueStartupType="CliqueStartupTypeInOrder",
    )
    file = written(tmp_path, manifest)
    done = CliRunner().invoke(gangs, ["render", file])
    assert done.output == TREE.format(revision=load_set(manifest).spec.hash)
    (plain,) = json.loads(CliRunner().invoke(gangs, ["render", "--json", file]).output)
    assert [one["name"] for one in plain["below"][0]["below"][:2]] == ["web-0", "web-0-sg-0"]


def test_claims_topology_and_many_pods_are_in_the_tree(tmp_path: Path) -> None:
    role = clique("a", 5, 1)
    role["resourceSharing"] = [{"name": "t", "scope": "PerReplica"}]
    manifest = pod_clique_set(
        [role],
        terminationDelay="Never",
        priorityClassName="high",
        topologyConstraint=constraint("zone", "rack", "cluster"),
    )
    manifest["metadata"]["namespace"] = "serving"
    path = tmp_path / "m.yaml"
    path.write_text(yaml.safe_dump_all([binding(), manifest]))
    lines = CliRunner().invoke(gangs, ["render", str(path)]).output.splitlines()
    assert lines[0].startswith("PodCliqueSet web: in serving, 1 x 5 pods, revision")
    assert lines[0].endswith("never terminated, priority high")
    assert lines[2].endswith(", in one zone-key, in one rack-key if it can be")
    assert lines[4].endswith("Pod web-0-a-0: claims web-0-a-0-t")
    assert lines[7].endswith("Pod ... web-0-a-4: 2 more")
    assert sum("ResourceClaim" in line for line in lines) == 5


def test_nothing_to_show_is_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(gangs, ["render", written(tmp_path, binding())])
    assert isinstance(done.exception, InputError)
    assert "there is no PodCliqueSet in it, only ClusterTopologyBinding cluster" in str(
        done.exception
    )


def test_the_manifests_of_what_would_be_created(tmp_path: Path) -> None:
    file = written(tmp_path, workload(1))
    found = list(yaml.safe_load_all(CliRunner().invoke(gangs, ["render", "--yaml", file]).output))
    kinds = [one["kind"] for one in found]
    assert [kinds.count(kind) for kind in ("PodGang", "PodClique", "Pod")] == [1, 5, 10]
    done = CliRunner().invoke(gangs, ["render", "--yaml", "--json", file])
    assert "two forms of the answer" in str(done.exception)


def test_more_than_anybody_can_read_is_a_sentence(tmp_path: Path) -> None:
    file = written(tmp_path, pod_clique_set([clique("a", 1000)], [group("g", ["a"], 1000)]))
    for command in ("render", "status"):
        done = CliRunner().invoke(gangs, [command, file])
        assert "the set web would have 1,000,000 pods to show; allowed: up to 200,000" in str(
            done.exception
        )


def test_what_may_not_change_is_said_with_its_line(tmp_path: Path) -> None:
    old = written(tmp_path, workload(1))
    manifest = workload(1)
    manifest["spec"]["template"]["cliques"][0]["spec"]["minAvailable"] = 1
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(manifest))
    done = CliRunner().invoke(gangs, ["validate", str(new), "--was", old])
    assert str(done.exception).startswith(f"{new}:11: spec.template.cliques[0].spec.minAvailable: ")
    assert "it was 2, and cannot become 1 (create another set instead)" in str(done.exception)


def test_replicas_that_would_change_nothing_are_noted(tmp_path: Path) -> None:
    old = written(tmp_path, workload(1))
    manifest = workload(1)
    manifest["spec"]["template"]["cliques"][0]["spec"]["replicas"] = 5
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["replicas"] = 3
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(manifest))
    done = CliRunner().invoke(gangs, ["validate", str(new), "--was", old])
    lines = done.output.splitlines()
    assert lines[0].startswith("web: note: clique 'pc-a': its replicas apply only to objects")
    assert lines[1].startswith("web: note: scaling group 'sg-x': its replicas apply only to")
    assert lines[2].endswith("PodCliqueSet web: no errors (notes: 2)")


def test_a_topology_that_is_not_in_the_file_is_noted(tmp_path: Path) -> None:
    manifest = workload(1, topologyConstraint=constraint("row", topology="fleet"))
    done = CliRunner().invoke(gangs, ["validate", written(tmp_path, manifest)])
    assert "note: the topology 'fleet' is not in the file, so its levels are not" in done.output
