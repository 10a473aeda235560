"""The pressure advisory prefers and never stops; the capacity plan says where numbers come from."""

import json
from typing import Any

import msgspec

from tests.admission.requests.desk import Desk
from tests.core.sinks import MemorySink
from windtunnel.admission.capacity import capacity_snapshot
from windtunnel.admission.events import EventReporter
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.budgets import ObservedLimit, ObservedLimits
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.pressure import PressureAdvisory
from windtunnel.admission.tasks.row_groups import RowGroupAdmission, RowGroupView
from windtunnel.core.telemetry import Telemetry

MODELS = ("m", "n", "o")


class Shop:
    """Tasks on three models, each with a lane of its own and an endpoint of cap 1."""

    def __init__(self) -> None:
        self.desk = Desk(cap=1)
        self.sink = MemorySink()
        limits = {SUBMISSION: 50, LLM_WAIT: 20} | {f"request:p/{model}": 9 for model in MODELS}
        self.tasks = TaskAdmission("run", limits)
        reporter = EventReporter(Telemetry(self.sink), "run")
        self.advisory = PressureAdvisory(self.tasks, self.desk.admission, reporter)
        for model in MODELS:
            self.desk.admission.register("p", model, "alias", 1, 0.0)
            lane = self.tasks.demand({SUBMISSION: 1, LLM_WAIT: 1, f"request:p/{model}": 1})
            self.advisory.watch(lane, "p", model, Domain.CHAT)
            for number in range(3):
                self.tasks.enqueue(f"{model}{number}", GroupShare(model), lane, 0.0)

    def choose(self) -> str:
        selection = self.advisory.select(0.0)
        assert selection is not None
        self.tasks.acquire(selection, 0.0)
        assert self.tasks.commit(selection, 0.0) is not None
        return selection.item.id


def test_a_task_whose_model_is_pressed_is_passed_over() -> None:
    shop = Shop()
    shop.desk.take(shop.desk.ask(model="m"))
    assert [shop.choose(), shop.choose(), shop.choose()] == ["n0", "o0", "n1"]
    assert shop.advisory.skips >= 3
    event = shop.sink.events[0]
    assert (event.kind, event.subject) == ("pressure_advisory_skipped", "m0")
    assert event.reason == "provider_model_aggregate_cap"
    assert event.data["chosen"] == "n0"


def test_when_all_are_pressed_the_first_goes() -> None:
    shop = Shop()
    for model in MODELS:
        shop.desk.take(shop.desk.ask(model=model))
    assert [shop.choose() for _ in range(9)] == [
        f"{model}{number}" for number in range(3) for model in MODELS
    ]
    assert shop.advisory.skips == 0
    assert shop.advisory.select(0.0) is None


def test_advising_leaves_no_trace_in_the_queue() -> None:
    shop = Shop()
    shop.desk.take(shop.desk.ask(model="m"))
    before = [(r.contenders, r.contending_weight, r.queued) for r in shop.tasks.resources()]
    version = shop.tasks.queue.version
    for _ in range(3):
        assert shop.advisory.select(0.0) is not None
    assert shop.tasks.queue.version == version
    after = [(r.contenders, r.contending_weight, r.queued) for r in shop.tasks.resources()]
    assert after == before


def test_each_pressure_in_its_order() -> None:
    desk = Desk(cap=3)
    tasks = TaskAdmission("run", {SUBMISSION: 1})
    advisory = PressureAdvisory(tasks, desk.admission)
    lane = tasks.demand({SUBMISSION: 1})
    assert advisory.pressure(lane, 0.0) is None
    advisory.watch(lane, "p", "m", Domain.CHAT)
    assert advisory.pressure(lane, 0.0) is None
    leases = [desk.take() for _ in range(3)]
    assert str(advisory.pressure(lane, 0.0)) == "provider_model_aggregate_cap"
    desk.admission.register("p", "m", "alias", 9, 0.0)
    for lease in leases:
        desk.end(lease, Outcome.RATE_LIMITED, retry_after_s=5.0)
    desk.wait()
    assert str(advisory.pressure(lane, 0.0)) == "cooldown"
    desk.wait()
    assert str(advisory.pressure(lane, 5.0)) == "waiters"


def test_the_capacity_plan_says_where_each_value_came_from() -> None:
    shop = Shop()
    lease = shop.desk.take(shop.desk.ask(model="m"))
    ticket = shop.desk.wait(shop.desk.ask(model="m"))
    shop.desk.end(lease, observed=ObservedLimits(requests=ObservedLimit(limit=60)))
    assert ticket.lease is not None
    shop.choose()
    groups = RowGroupAdmission(4, 16, 100)
    groups.decide(RowGroupView(1, 10, 10, 0, 0, 1, 8), 0.0)
    plan: Any = capacity_snapshot(shop.tasks, shop.desk.admission, groups, 3.0)
    endpoint = plan["endpoints"]["p/m"]
    assert endpoint["cap"] == {"value": 1, "source": "configured"}
    assert endpoint["requests_per_minute"]["source"] == "headers"
    assert endpoint["tokens_per_minute"]["value"] is None
    assert endpoint["tokens_per_minute"]["missing_reason"]
    assert (endpoint["in_flight"], endpoint["waiters"], endpoint["peak_waiters"]) == (1, 0, 1)
    assert endpoint["domains"]["chat"]["last_outcome"] == "success"
    resource = plan["tasks"]["resources"]["request:p/n"]
    assert (resource["limit"]["source"], resource["leased"]) == ("model_metadata", 1)
    assert (resource["queued"], resource["peak_queued"]) == (2, 3)
    assert plan["tasks"]["queued_by_group"] == {"m": 3, "n": 2, "o": 3}
    assert (plan["row_groups"]["target"], plan["row_groups"]["mode"]) == (2, "adaptive")
    assert json.loads(msgspec.json.encode(plan))["captured_s"] == 3.0
