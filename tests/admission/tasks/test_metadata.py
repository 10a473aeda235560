"""Scheduling metadata: which group and which resources follow from it."""

import pytest

from windtunnel.admission.reasons import Domain
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION
from windtunnel.admission.tasks.metadata import (
    SchedulingMetadata,
    WorkKind,
    resolve,
)


def test_local_work_waits_for_no_model() -> None:
    resolved = resolve(SchedulingMetadata(WorkKind.LOCAL, ("local", "default")), ["a", "b"], 64)
    assert resolved.amounts == {SUBMISSION: 1}
    assert (resolved.group.key, resolved.group.admitted_limit) == ("local/default/a/b", 0)


@pytest.mark.parametrize(("weight", "most", "limit"), [(4, 100, 8), (4, 5, 5), (1, 100, 2)])
def test_a_models_group_may_run_twice_its_weight(weight: int, most: int, limit: int) -> None:
    metadata = SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "chat"), weight)
    resolved = resolve(metadata, ["a"], most)
    assert resolved.group.admitted_limit == limit
    assert resolved.amounts == {SUBMISSION: 1, LLM_WAIT: 1, "request:p/m": 1}
    assert resolved.request_key == ("p", "m", Domain.CHAT)


def test_work_of_an_unknown_domain_waits_for_no_endpoint() -> None:
    metadata = SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "telepathy"))
    resolved = resolve(metadata, ["a"], 9)
    assert resolved.request_key is None
    assert resolved.amounts == {SUBMISSION: 1, LLM_WAIT: 1}


def test_columns_of_one_model_are_groups_of_their_own() -> None:
    metadata = SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "chat"))
    keys = {resolve(metadata, [column], 9).group.key for column in "ab"}
    assert keys == {"model/p/m/chat/a", "model/p/m/chat/b"}
