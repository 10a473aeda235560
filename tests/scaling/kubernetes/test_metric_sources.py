"""Pages of servers and answers of Prometheus, good, wrong and hostile."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.scaling.kubernetes.pods import page, reading
from windtunnel.scaling.kubernetes.pages import TTFT, metric_names, page_samples, reading_of
from windtunnel.scaling.kubernetes.prometheus import (
    Unavailable,
    number_of,
    pods_query,
    refusal,
    samples_by_pod,
)

NOW_S = 1_700_000_000.0


def test_a_page_of_vllm_is_read_with_all_its_engines() -> None:
    found = reading(4, 7, 0.25, ended=9, first=3)
    assert (found.waiting, found.running, found.kv_used) == (4, 7, 0.25)
    assert found.kv_tokens == 16_000
    assert found.counters["completed"] == 9.0
    assert found.histograms[TTFT].buckets == {0.1: 0.0, 0.5: 3.0, float("inf"): 3.0}
    assert found.histograms[TTFT].count == 3.0


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (b"sglang:num_queue_reqs 2\nsglang:num_running_reqs 1\nsglang:token_usage 0.5\n",
         (2, 1, 0.5)),
        (b'nv_trt_llm_request_metrics{request_type="waiting",x="1"} 3\n'
         b'nv_trt_llm_request_metrics{request_type="scheduled"} 4\n', (3, 4, None)),
        (b"vllm:num_requests_waiting NaN\nvllm:num_requests_running -1\n", (None, None, None)),
        (b"<html>502 Bad Gateway</html>", (None, None, None)),
        (b"", (None, None, None)),
    ],
)  # fmt: skip
def test_other_servers_and_pages_that_say_nothing(text: bytes, load: tuple[Any, ...]) -> None:
    found = reading_of(page_samples(text))
    assert (found.waiting, found.running, found.kv_used) == load
    assert found.says_load == (load != (None, None, None))


@given(st.binary(max_size=60), st.integers(0, 900), st.binary(max_size=60))
def test_no_page_makes_a_number_that_cannot_be(head: bytes, at: int, more: bytes) -> None:
    text = page(3, 2)
    found = reading_of(page_samples(head + text[:at] + more + text[at:]))
    for value in (found.waiting, found.running, found.kv_used, *found.counters.values()):
        assert value is None or 0 <= value < 1e16


texts = st.text('ab{}"\\\n,= 1', max_size=6)


names = st.sampled_from([*metric_names(), "vllm:other", "x"])
labelled = st.dictionaries(st.sampled_from("abc"), texts)


@given(st.lists(st.tuples(names, labelled, st.integers(0, 99))))
def test_lines_are_read_as_prometheus_reads_them(
    lines: list[tuple[str, dict[str, str], int]],
) -> None:
    def quoted(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    text = ""
    for name, labels, value in lines:
        inside = ",".join(f'{key}="{quoted(one)}"' for key, one in labels.items())
        text += f"{name}{{{inside}}} {value}\n" if labels else f"{name} {value}\n"
    known = metric_names()
    wanted = [
        (one.name, set(one.labels), one.value)
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name in known
    ]
    found = [(one.name, set(one.labels), one.value) for one in page_samples(text.encode())]
    assert found == wanted


def answer(result: Any, kind: str = "matrix") -> bytes:
    data = {"status": "success", "data": {"resultType": kind, "result": result}}
    return json.dumps(data).encode()


def series(pod: str, age_s: float, value: str, name: str = "vllm:num_requests_waiting") -> Any:
    values = [[NOW_S - age_s - 15.0, "1"], [NOW_S - age_s, value]]
    return {"metric": {"__name__": name, "pod": pod, "namespace": "ns"}, "values": values}


def test_prometheus_gives_the_newest_sample_that_is_fresh() -> None:
    text = answer([series("a", 3.0, "7"), series("b", 50.0, "7"), series("c", 1.0, "NaN")])
    found = samples_by_pod(text, NOW_S, 45.0, pod_label="pod")
    assert {pod: reading_of(samples).waiting for pod, samples in found.items()} == {"a": 7}


def test_a_query_names_metrics_and_pods_exactly() -> None:
    query = pods_query(["a:b", "c.d"], "ns", ['x"y', "p-0"], 44.2, pod_label="pod")
    assert query == ('{__name__=~"a:b|c\\\\.d",namespace="ns",pod=~"x\\"y|p-0"}[45s]')
    assert "vllm:num_requests_waiting" in metric_names()


@pytest.mark.parametrize(
    "text",
    [b"", b"garbage", b"[]", b'{"status":"error","errorType":"bad_data","error":"parse error"}',
     answer([], "vector"), answer("x"), answer([{"metric": 3}]), b'{"status":"success"}',
     b"[" * 100_000],
)  # fmt: skip
def test_an_answer_of_another_shape_is_unavailable(text: bytes) -> None:
    with pytest.raises(Unavailable, match="Prometheus"):
        samples_by_pod(text, NOW_S, 45.0, pod_label="pod")


def test_one_number_is_a_scalar_or_a_vector_of_one() -> None:
    assert number_of(answer([1.0, "2.5"], "scalar")) == 2.5
    assert number_of(answer([{"metric": {}, "value": [1.0, "4"]}], "vector")) == 4.0
    two = [{"metric": {"a": "1"}, "value": [1.0, "4"]}, {"metric": {}, "value": [1.0, "4"]}]
    for wrong in (answer([], "vector"), answer(two, "vector"), answer([1.0, "NaN"], "scalar"),
                  answer([1.0, "+Inf"], "scalar"), answer([])):  # fmt: skip
        with pytest.raises(Unavailable):
            number_of(wrong)


def test_a_refusal_says_why() -> None:
    body = b'{"status":"error","errorType":"timeout","error":"query timed out"}'
    assert str(refusal(503, body)) == "Prometheus answers 503: query timed out"
    assert str(refusal(500, b"\x00\xff<html>")) == "Prometheus answers 500"
