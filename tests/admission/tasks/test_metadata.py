"""Scheduling metadata: what is accepted, with which code the rest is refused, what follows."""

import pytest

from tests.core.sinks import MemorySink
from windtunnel.admission.events import EventReporter
from windtunnel.admission.reasons import Domain
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION
from windtunnel.admission.tasks.metadata import (
    DEFAULT,
    MetadataError,
    MetadataFault,
    SchedulingMetadata,
    WorkKind,
    check_metadata,
    model_metadata,
    report_fallback,
    resolve,
)
from windtunnel.core.telemetry import Telemetry


@pytest.mark.parametrize(
    ("kind", "identity", "weight"),
    [
        ("local", ("local", "seed"), 1),
        ("model", ["model", "p", "m", "chat"], 8),
        ("custom_model", ("custom_model", "lab", "judge", "2"), 3),
    ],
)
def test_good_metadata_is_accepted(kind: str, identity: object, weight: int) -> None:
    metadata = check_metadata(kind, identity, weight)
    assert (metadata.kind.value, metadata.identity[0], metadata.weight) == (kind, kind, weight)


@pytest.mark.parametrize(
    ("kind", "identity", "weight", "code", "sentence"),
    [
        ("gpu", ("gpu", "x"), 1, "unknown_kind", "'gpu' is not a kind of work"),
        (3, ("local", "x"), 1, "unknown_kind", "allowed: local, model, custom_model"),
        ("local", ("local",), 1, "identity_shape", r"allowed: \(local, name\)"),
        ("model", "model", 1, "identity_shape", "'model' is not the identity of model work"),
        ("model", ("local", "a", "b", "c"), 1, "identity_kind", "begins with 'local'"),
        ("local", ("local", ""), 1, "identity_empty", "'' cannot be a part of an identity"),
        ("local", ("local", 5), 1, "identity_empty", "5 cannot be a part"),
        ("local", ("local", "x"), 0, "weight", "0 is not a weight"),
        ("local", ("local", "x"), True, "weight", "True is not a weight"),
        ("local", ("local", "x"), 1.5, "weight", "a whole number from 1"),
    ],
)
def test_bad_metadata_has_a_code_and_a_sentence(
    kind: object, identity: object, weight: object, code: str, sentence: str
) -> None:
    with pytest.raises(MetadataError, match=sentence) as fault:
        check_metadata(kind, identity, weight)
    assert fault.value.code is MetadataFault(code)
    assert fault.value.fallback is None


def test_a_fallback_is_used_and_reported() -> None:
    with pytest.raises(MetadataError) as fault:
        check_metadata("local", ("local", "x"), -1, DEFAULT)
    resolved = resolve(fault.value, ["a"], 64)
    assert resolved.group.key == "local/default/a"
    assert resolved.fell_back is MetadataFault.WEIGHT
    assert resolved.said.startswith("scheduling metadata: -1 is not a weight")
    sink = MemorySink()
    report_fallback(EventReporter(Telemetry(sink)), resolved, 0.0)
    report_fallback(EventReporter(Telemetry(sink)), resolve(None, ["a"], 64), 0.0)
    assert [(event.kind, event.reason) for event in sink.events] == [
        ("task_metadata_fell_back", "weight")
    ]


def test_without_a_fallback_the_run_stops() -> None:
    with pytest.raises(MetadataError) as fault:
        check_metadata("local", (), 1)
    with pytest.raises(MetadataError, match="is not the identity"):
        resolve(fault.value, ["a"], 64)


def test_saying_nothing_is_local_work() -> None:
    resolved = resolve(None, ["a", "b"], 64)
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


def test_one_endpoint_weighs_its_least_cap_and_several_their_sum() -> None:
    one = model_metadata({"x": ("p", "m", 8), "y": ("p", "m", 5)}, "chat")
    assert one == SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "chat"), 5)
    two = model_metadata({"y": ("p", "n", 5), "x": ("p", "m", 8)}, "chat")
    assert two == SchedulingMetadata(
        WorkKind.CUSTOM_MODEL, ("custom_model", "aliases", "x+y", "1"), 13
    )
    with pytest.raises(MetadataError, match="names no model"):
        model_metadata({}, "chat")


def test_columns_of_one_model_are_groups_of_their_own() -> None:
    metadata = SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "chat"))
    keys = {resolve(metadata, [column], 9).group.key for column in "ab"}
    assert keys == {"model/p/m/chat/a", "model/p/m/chat/b"}
