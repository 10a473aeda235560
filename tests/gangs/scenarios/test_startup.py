"""SO1 to SO3: who starts after whom, by the times at which pods became ready."""

from tests.gangs.manifests import workload
from tests.gangs.scenarios.live import Live


def test_so1_in_order_all_of_one_role_before_the_next() -> None:
    live = Live(workload(3), nodes=10)
    assert live.ready() == 10
    assert live.ready_s("pc-a")[-1] < live.ready_s("pc-b")[0]
    assert live.ready_s("pc-b")[-1] < live.ready_s("pc-c")[0]


def test_so2_in_order_the_minimum_unlocks_the_next_and_scaled_gangs_are_on_their_own() -> None:
    live = Live(workload(4), nodes=10)
    assert live.ready() == 10
    assert live.ready_s("web-0-pc-a")[0] < live.ready_s("sg-x-0-pc-b")[0]
    assert live.ready_s("sg-x-0-pc-b")[0] < live.ready_s("sg-x-0-pc-c")[0]
    assert live.ready_s("sg-x-1-pc-b")[0] < live.ready_s("sg-x-1-pc-c")[0]


def test_so3_explicit_order_follows_what_is_written() -> None:
    live = Live(workload(5), nodes=10)
    assert live.ready() == 10
    assert live.ready_s("pc-a")[-1] < live.ready_s("pc-c")[0]
    assert live.ready_s("pc-c")[-1] < live.ready_s("pc-b")[0]
