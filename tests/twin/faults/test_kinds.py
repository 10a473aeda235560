"""What every kind of fault brings with it, whatever it does."""

from pathlib import Path

import pytest

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice
from windtunnel.twin.faults.context import FaultContext, MachinePool
from windtunnel.twin.faults.kinds import KINDS

ROOT = Path(__file__).parents[3]
EVERYTHING = FaultContext(
    servers={"main": 2, "spare": 1},
    machines=(MachinePool("big", "zone-1", spot=True), MachinePool("far", "zone-2", spot=False)),
    scales=True,
    queues=True,
    pods=True,
    lasts_s=100.0,
)
BARE = FaultContext(servers={"main": 1}, machines=(), scales=False, queues=False, pods=False)


@pytest.mark.parametrize("word", KINDS)
def test_a_kind_is_documented(word: str) -> None:
    page = (ROOT / "docs" / "explanation" / "faults.md").read_text(encoding="utf-8")
    assert f"`{word}`" in "".join(line for line in page.splitlines() if line.startswith("###"))


@pytest.mark.parametrize("word", KINDS)
def test_a_kind_reads_what_it_draws(word: str) -> None:
    kind = KINDS[word]
    assert kind.applies(EVERYTHING)
    drawn = [kind.draw(Dice(Stream(seed, "drawn")), EVERYTHING) for seed in range(20)]
    read = [kind.read({"kind": word, "at": 1.0, **one}) for one in drawn]
    assert all(one.word() == word for one in read)
    if any(drawn):
        assert len({one.model_dump_json() for one in read}) > 1


def test_kinds_that_need_what_a_scenario_has_not_are_not_drawn() -> None:
    there = {word for word, kind in KINDS.items() if kind.applies(BARE)}
    assert there == {
        "controller-restart",
        "crash-loop",
        "engine-crash",
        "kv-leak",
        "metric-blackout",
        "metric-lag",
        "partial-scrape",
        "rate-limit-storm",
        "router-partition",
        "slow-machine",
    }
