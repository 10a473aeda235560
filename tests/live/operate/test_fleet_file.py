"""The file of `operate --fleet`: its page, and what is wrong with one."""

import runpy
from pathlib import Path

import pytest
import yaml

from windtunnel.core.errors import InputError
from windtunnel.live.operate.fleet.file import prices_of, read_fleet_file, unpriced

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = DOCS / "how-to" / "get-machines-on-kubernetes.md"


def test_the_page_is_what_the_settings_say() -> None:
    page = runpy.run_path(str(DOCS / "fleet_reference.py"))["page"]()
    written = (DOCS / "reference" / "fleet.md").read_text(encoding="utf-8")
    assert written == page, "run `python docs/fleet_reference.py`"


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    example = HOW_TO.read_text().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "fleet.yaml").write_text(example)
    file = read_fleet_file(tmp_path / "fleet.yaml")
    assert [one.name for one in file.live.fleet.pools] == ["h200", "metal"]
    prices = prices_of(file)
    assert prices["h200"] == 40.0
    assert prices["metal"] > 0.0, "the catalog's"
    assert not unpriced(file)


def test_machines_that_count_as_free_are_named(tmp_path: Path) -> None:
    example = HOW_TO.read_text().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "fleet.yaml").write_text(
        "accelerator: h2000".join(example.rsplit("accelerator: h200", 1))
    )
    file = read_fleet_file(tmp_path / "fleet.yaml")
    assert prices_of(file)["metal"] == 0.0
    (said,) = unpriced(file)
    assert said.startswith("fleet.pools.metal: the catalog has no price of 'h2000'")


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    pool = {"accelerator": "h200", "machines": {"max": 2}}
    content = {
        "fleet": {"pools": [{**pool, "name": "a"}, {**pool, "name": "B_"}, {**pool, "name": "c"}]},
        "live": {
            "fleet": {
                "pools": [
                    {"name": "a", "nodes": {"x": "y"}, "instance_types": ["big"]},
                    {"name": "B_", "node_class": {"group": "g", "kind": "k", "name": "n"}},
                    {"name": "d"},
                ],
                "shards": [{"name": "s", "zones": ["z"], "namespaces": ["n"]}],
            }
        },
    }
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        read_fleet_file(file)
    said = str(caught.value)
    for part in (
        "nodes that exist have none",
        "'main-B_' cannot be part of the name of an object",
        "neither is given",
        "there is no pool 'd'",
        "the pool 'c' is missing",
        "no shard has the zone 'zone-1'",
    ):
        assert part in said, said


def test_the_taints_of_a_pool_are_its_own(tmp_path: Path) -> None:
    taints = ["t=1:NoSchedule", "t=1:NoExecute", "t=2:NoSchedule"]
    taints += ["windtunnel.dev/idle:NoSchedule", "node.kubernetes.io/x:NoExecute"]
    pool = {"name": "a", "accelerator": "h200", "machines": {"max": 2}, "taints": taints}
    live = {"fleet": {"pools": [{"name": "a", "nodes": {"x": "y"}}]}}
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump({"fleet": {"pools": [pool]}, "live": live}))
    with pytest.raises(InputError) as caught:
        read_fleet_file(file)
    said = str(caught.value)
    for part in (
        "taints[2]: 't=2:NoSchedule' has the key and the effect of fleet.pools[0].taints[0]",
        f"{taints[3]!r} is a taint that Windtunnel adds and removes itself",
        f"{taints[4]!r} is a taint that Kubernetes adds and removes itself",
    ):
        assert part in said, said
    assert "taints[1]" not in said
