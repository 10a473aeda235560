"""Points of a search: settings become plans, and an address changes with whatever matters."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.twin.runs import BUSY, one_server
from windtunnel.core.errors import InputError
from windtunnel.search.point import Origin, address_of
from windtunnel.twin.settings import DrainSettings

REPLICAS = "serving.pools.0.replicas"


def test_a_point_is_the_scenario_with_its_settings_and_its_seed() -> None:
    origin = Origin(BUSY, "busy.yaml", ["duration=1s"])
    plan = origin.plan(((REPLICAS, 3), ("serving.router.policy", "least-loaded")), 7)
    assert (plan.pools[0].replicas, plan.router.policy) == (3, "least-loaded")
    assert (plan.duration_s, plan.seed) == (1.0, 7)
    assert origin.plan().pools[0].replicas == 2  # what one point sets is no other's


def test_a_value_may_be_a_whole_section() -> None:
    pools = json.loads('[{"name": "a", "step_time": {"model": "linear", "fixed": "9ms"}}]')
    plan = Origin(one_server(), "one.yaml").plan(
        (("serving.pools", pools), ("serving.pools.0.engine", {"kv_blocks": 40}))
    )
    assert [pool.name for pool in plan.pools] == ["a"]
    assert "engine" not in pools[0]  # ours, not the plan's


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "serving.pools.0.replica",
            2,
            "--vary serving.pools.0.replica=2: serving.pools[0].replica: unknown key "
            "(did you mean 'replicas'?)",
        ),
        (REPLICAS, -1, f"--vary {REPLICAS}=-1: serving.pools[0].replicas: "),
        ("serving.pools.5.replicas", 1, "--vary serving.pools.5.replicas=1: serving.pools has no"),
        ("", 1, "--vary =1: this is not a path and a value"),
        ("serving.router.policy", "leased-loaded", "least-loaded"),
    ],
)
def test_a_fault_is_said_of_the_option_and_the_value(
    path: str, value: str | int, sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        Origin(BUSY, "busy.yaml").plan(((path, value),))
    assert sentence in str(raised.value)


def test_an_address_is_of_what_a_run_depends_on_and_nothing_else() -> None:
    origin = Origin(BUSY, "busy.yaml")
    plan = origin.plan()
    same = [
        origin.plan(((REPLICAS, 2),)),
        Origin(BUSY, "elsewhere/other.yaml", ["name=other"]).plan(),
        Origin(BUSY, "busy.yaml", [f"{REPLICAS}=2"]).plan(),
        Origin(BUSY, "busy.yaml", ["plan={attained: 0.9}"]).plan(),
    ]
    others = [
        origin.plan(seed=5),
        origin.plan(((REPLICAS, 3),)),
        origin.plan((("slo.critical.ttft", "201ms"),)),
    ]
    assert {address_of(one) for one in same} == {address_of(plan)}
    assert len({address_of(one) for one in (plan, *others)}) == 4


LENGTHS = "{distribution: empirical, path: lengths.csv}"


def test_the_bytes_of_files_count_and_not_where_they_are(tmp_path: Path) -> None:
    text = one_server().replace("prompt_tokens: 8", f"prompt_tokens: {LENGTHS}")
    addresses = []
    for folder, content in (("a", "5\n6\n"), ("b", "5\n6\n"), ("c", "5\n7\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lengths.csv").write_text(content)
        plan = Origin(text, str(tmp_path / folder / "one.yaml")).plan()
        addresses.append(address_of(plan))
    assert addresses[0] == addresses[1] != addresses[2]
    (tmp_path / "a" / "lengths.csv").write_text("5\n6\n7\n")
    plan = Origin(text, str(tmp_path / "a" / "one.yaml")).plan()
    assert address_of(plan) not in addresses


def test_a_router_of_ones_own_counts_with_its_module(tmp_path: Path) -> None:
    module = tmp_path / "an_address_router.py"
    chooser = "class Mine:\n    def choose(self, request, servers):\n        return servers[0]\n"
    module.write_text(chooser)
    origin = Origin(one_server(), str(tmp_path / "one.yaml"))
    plan = origin.plan((("serving.router.policy", "an_address_router:Mine"),))
    before = address_of(plan)
    assert address_of(plan) == before != address_of(origin.plan())
    module.write_text(chooser.replace("servers[0]", "servers[-1]"))
    assert address_of(plan) != before


def test_every_field_of_a_plan_counts() -> None:
    """All but the two that are names of the whole."""
    plan = Origin(BUSY, "busy.yaml").plan()
    before = address_of(plan)
    assert address_of(plan.changed(name="x")) == before
    assert address_of(msgspec.structs.replace(plan, sha256="0")) == before
    serving = plan.serving.model_copy(update={"drain": DrainSettings(policy="redirect")})
    for other in ({"duration_s": 3.0}, {"serving": serving}, {"model": "llama-3.1-8b"}):
        assert address_of(plan.changed(**other)) != before
