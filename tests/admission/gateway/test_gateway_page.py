"""docs/explanation/gateway.md says what the gateway does: its reasons, ceilings and orders."""

import math
import re
from pathlib import Path

import pytest

from tests.admission.gateway.fleet import Desk, flow_settings, signals
from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.detectors import Concurrency, Utilization
from windtunnel.admission.gateway.flow_control import ORDERS, FlowControl
from windtunnel.admission.reasons import Reason

pytestmark = pytest.mark.once

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "gateway.md").read_text()
MANY = 10**6


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose first line starts so, without that line."""
    rows = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]


def flow(order: str, per_server: int, limit: float, priorities: list[int]) -> FlowControl:
    settings = flow_settings(order, MANY, MANY, math.inf, limit, shedding=False, eviction=False)
    weights = Weights({}, ["acme", "bolt"])
    return FlowControl(Concurrency(per_server), settings, weights, priorities)


def test_every_reason_is_on_the_page() -> None:
    section = PAGE.partition("\n## Reasons\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^- `([a-z-]+)`", section, re.MULTILINE)) == sorted(Reason)


def test_the_ceilings_are_right() -> None:
    rows = table("class")
    gateway = flow("priority", 10, 0.6, [int(row[1]) for row in rows])
    for _, priority, ceiling, _ in rows:
        assert gateway.ceiling(int(priority)) == pytest.approx(float(ceiling))


def test_so_many_go_and_no_more() -> None:
    for _, priority, _, most in table("class"):
        desk = Desk(flow("priority", 10, 0.6, [4, 3, -1, -2, -3]), signals(0, 0, 0, 0))
        for _ in range(50):
            desk.arrive(priority=int(priority))
        assert len(desk.sent) == int(most)


QUEUED = [(0, 3, 10, 5.0), (0, 0, 10, 5.0), (1, 3, 30, 3.0), (1, 3, 10, math.inf)]
QUEUED += [(0, 4, 10, 4.0), (1, -1, 10, 1.0)]
"""Tenant, priority, prompt tokens and TTFT deadline of six requests, the first of them number 1."""
SENT = {
    "fifo": [1, 2, 3, 4, 5, 6],
    "priority": [5, 1, 3, 4, 2, 6],
    "slo-deadline": [6, 3, 5, 1, 2, 4],
    "round-robin": [3, 5, 4, 1, 6, 2],
}


@pytest.mark.parametrize("order", ORDERS)
def test_they_go_in_the_order_that_the_page_explains(order: str) -> None:
    desk = Desk(flow(order, 1, 1.0, []))
    desk.arrive(tenant=0)
    for tenant, priority, tokens, target_s in QUEUED:
        desk.arrive(tenant=tenant, priority=priority, tokens=tokens, target_s=target_s)
    for number in range(6):
        desk.end(desk.sent[number])
    assert desk.sent[1:] == SENT[order]


def test_the_example_of_saturation_adds_up() -> None:
    seen = signals(10, 10)
    seen.waiting[0], seen.running[0], seen.kv_used[0] = 2, 8, 1 / 3
    seen.kv_used[1] = 0.6
    detector = Utilization(5.0, 0.8, 0.05)
    detector.look(seen, 20)
    assert f"is {detector.saturation(20):.2f}." in PAGE
    assert f"= {detector.saturation(23):.2f}." in PAGE
