"""Restlessness, shortage and waste, by hand."""

import pytest

from tests.scaling.worlds import fleet, variant
from windtunnel.scaling.measures import Measures


def test_changes_and_turns_are_counted() -> None:
    measures = Measures()
    for more in (2, 1, -2, 3):
        measures.changed("v", more)
    measures.look(fleet(variant(ready=1), taken_s=1790.0))  # a first look as late as this
    measures.close(1800.0)
    result = measures.result()
    assert result["changes_per_hour"] == 8.0  # four within half an hour
    assert result["direction_changes"] == 2


def test_waste_is_what_nobody_needed() -> None:
    measures = Measures()
    # 40,000 tokens on each of four, where one holds 80,000: two would have done.
    measures.look(fleet(variant(ready=4, used=40_000, running=4), taken_s=0.0))
    measures.close(60.0)
    # A fifth that still starts is paid for, too; a minimum is no waste.
    busy = variant(ready=4, starting=1, used=40_000, running=4, minimum=3)
    measures.look(fleet(busy, taken_s=60.0))
    measures.close(70.0)
    assert measures.result()["wasted_replica_seconds"] == 2 * 60 + 2 * 10
    assert measures.result()["under_provisioned_s"] == 0.0


def test_a_fleet_is_short_while_more_is_wanted_than_it_holds() -> None:
    measures = Measures()
    measures.look(fleet(variant(ready=1, used=79_000, waiting=4), taken_s=0.0))
    measures.close(20.0)
    measures.look(fleet(variant(ready=2, used=40_000, running=1), taken_s=30.0))
    measures.close(100.0)
    assert measures.result()["under_provisioned_s"] == 30.0


def test_a_queue_before_no_replica_is_a_shortage() -> None:
    measures = Measures()
    measures.look(fleet(variant(ready=0), queued=2, taken_s=0.0))
    measures.close(5.0)
    assert measures.result()["under_provisioned_s"] == 5.0


def test_nothing_seen_is_nothing_to_tell() -> None:
    assert Measures().result() == pytest.approx(
        {
            "changes_per_hour": 0.0,
            "direction_changes": 0,
            "under_provisioned_s": 0.0,
            "wasted_replica_seconds": 0.0,
        }
    )
