"""Where one of the pods that would make way for a gang may not be evicted, none is."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from windtunnel.gangs.commands import Delete
from windtunnel.gangs.objects import POD
from windtunnel.gangs.placement.placer import Eviction
from windtunnel.live.kubernetes.client import ObjectList, ObjectSelection
from windtunnel.live.kubernetes.errors import error_of
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.live.operate.evictions import BUDGETS, Evictions, RefusedEvictions
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.received import Received

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NO = b'{"kind": "Status", "message": "a budget says no"}'
LOW = {"matchLabels": {"app": "low"}}


class FakeApi:
    """Budgets and pods; an eviction counts against budgets as at the API server."""

    def __init__(self, *names: str, budgets: tuple[dict[str, Any], ...] = ()) -> None:
        self.budgets = budgets
        self.never: tuple[str, ...] = ()
        self.gone: tuple[str, ...] = ()
        self.evicted: list[str] = []
        self.mirror = Mirror(AsyncMock(), lambda: 0.0, placing=True)
        self.evictions = Evictions(self.mirror)
        self.show(*names)

    def show(self, *names: str, status: dict[str, Any] = READY) -> None:
        for name in names:
            meta = Meta(name=name, namespace="default", uid=name, labels={"app": "low"})
            self.mirror.objects[POD].cache.show(Received(metadata=meta, status=status))

    async def list_all(self, resource: Resource, selection: ObjectSelection) -> ObjectList:
        assert (resource, selection.namespace) == (BUDGETS, "default")
        return ObjectList([msgspec.Raw(msgspec.json.encode(one)) for one in self.budgets], "1")

    async def evict(self, pod: Meta, *, dry_run: bool = False) -> None:
        if pod.name in self.never:
            raise error_of("POST", 429, NO)
        if pod.name in self.gone:
            raise error_of("POST", 404, b"")
        if not dry_run:
            self.evicted.append(pod.name)

    def check(self, *evictions: Eviction) -> list[RefusedEvictions]:
        return asyncio.run(self.evictions.check(self, evictions))  # type: ignore[arg-type]


def budget(allowed: int, selector: object = LOW, **spec: object) -> dict[str, Any]:
    status = {"disruptionsAllowed": allowed, "desiredHealthy": 1}
    spec = {"selector": selector, **spec}
    return {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": status}


def going(gang: str, *pods: str) -> list[Eviction]:
    return [Eviction(f"gang-{pod}", pod, "n", gang) for pod in pods]


def test_one_pod_that_may_not_go_keeps_the_others_too() -> None:
    api = FakeApi("a", "b", "c", "d")
    api.never, api.gone = ("b",), ("d",)
    refused = api.check(*going("high", "a", "b"), *going("other", "c", "d"))
    assert refused == [RefusedEvictions("high", ("b",), "a budget says no")]


@pytest.mark.parametrize(("allowed", "passes"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_a_budget_that_allows_some_of_them_loses_none(allowed: int, passes: int) -> None:
    """A dry run says yes to each; two gangs that are made way for share what is allowed."""
    api = FakeApi("a", "b", "c", "d", budgets=(budget(allowed),))
    refused = api.check(*going("high", "a", "b"), *going("higher", "c", "d"))
    assert [one.in_favour_of for one in refused] == ["high", "higher"][passes:]
    for one in refused:
        left = allowed if passes == 0 else allowed - 2
        assert one.why == f"the disruption budget b allows {left} of 2 evictions"
        assert one.kept == (("a", "b") if one.in_favour_of == "high" else ("c", "d"))


@pytest.mark.parametrize(
    "other",
    [
        budget(0, {"matchLabels": {"app": "else"}}),
        budget(0, {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["low"]}]}),
        budget(0, None),
        {**budget(0), "metadata": {"name": "b", "namespace": "elsewhere"}},
    ],
    ids=["labels", "expression", "nothing selected", "namespace"],
)
def test_budgets_of_other_pods_do_not_count(other: dict[str, Any]) -> None:
    assert FakeApi("a", budgets=(other,)).check(*going("high", "a")) == []


def test_all_pods_are_selected_by_an_empty_selector() -> None:
    assert len(FakeApi("a", budgets=(budget(0, {}),)).check(*going("high", "a"))) == 1


@pytest.mark.parametrize("status", [{"phase": "Pending"}, {"phase": "Running"}])
def test_pods_that_are_not_ready_use_nothing_of_a_budget(status: dict[str, Any]) -> None:
    api = FakeApi("a", budgets=(budget(1),))
    api.show("b", status=status)
    assert api.check(*going("high", "a", "b")) == []


def test_budgets_that_cannot_be_read_keep_everything() -> None:
    api = FakeApi("a")
    api.list_all = AsyncMock(side_effect=error_of("GET", 403, b""))  # type: ignore[method-assign]
    (refused,) = api.check(*going("high", "a"))
    assert refused.kept == ("a",)
    assert refused.why.startswith("disruption budgets cannot be read: ")


def test_after_one_that_is_refused_no_other_pod_goes() -> None:
    """The budget was used by somebody else in between."""
    api = FakeApi("a", "b", "c", "x", budgets=(budget(3),))
    assert api.check(*going("high", "a", "b", "c")) == []
    api.never = ("b",)
    pods = {name: AsyncMock(uid=name) for name in ("a", "b", "c", "x")}
    for name, pod in pods.items():
        pod.name = name
    deletes = [Delete(pod, "it makes way") for pod in pods.values()]
    for_whom = dict.fromkeys(("a", "b", "c"), "high")
    refused = asyncio.run(api.evictions.carry_out(api, deletes, for_whom))  # type: ignore[arg-type]
    assert refused == 1
    assert sorted(api.evicted) == ["a", "x"]
