"""Images and sound that become tokens on encoders of their own: what it costs, and who is told."""

import math
from typing import Any

import pytest

from tests.twin.runs import one_server, run
from windtunnel.analysis.phases import RequestRow
from windtunnel.report.files.requests import times_of
from windtunnel.twin.compose import compose
from windtunnel.twin.requests.encoders import Encoders
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.reasons import reason_of
from windtunnel.twin.scenario.load import load_text
from windtunnel.workload.request import Request

PAIR = one_server(count=2, rate="1000000/s", output=1)
MEDIA = "workload.0.media={tokens: 100}"
ENCODE = "serving.encode={fixed: 50ms, per_token: 1ms}"
"""Two requests, a microsecond apart, whose media take 150 ms each on one encoder."""


class Rows:
    """Keeps what ended."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self.requests += requests


def rows_of(*sets: str) -> list[Request]:
    rows = Rows()
    compose(load_text(PAIR, sets=[MEDIA, ENCODE, *sets]), rows).run(lambda _: None)
    return sorted(rows.requests, key=lambda one: one.id)


def test_one_encoder_takes_two_requests_one_after_the_other() -> None:
    """The first is encoded after 150 ms, the second has waited for that and needs 150 ms more."""
    first, second = rows_of()
    assert first.encoded_s - first.arrived_s == pytest.approx(0.150)
    assert second.encoded_s - second.arrived_s == pytest.approx(0.300, abs=2e-6)
    first, second = rows_of("serving.encode.servers=2")
    assert second.encoded_s - second.arrived_s == pytest.approx(0.150)


def test_encoding_is_part_of_ttft_and_of_no_servers_queue() -> None:
    """Each prompt is computed in 10 + 108 ms, and the second comes when the first is done."""
    result = run(PAIR, MEDIA, ENCODE)
    assert result["servers"][0]["queue_mean"] == pytest.approx(0.0, abs=1e-9)
    alone = run(one_server(output=1), MEDIA)["latency"]["ttft"]["mean"]
    assert result["latency"]["ttft"]["mean"] == pytest.approx(0.225 + alone, abs=2e-6)
    encode = result["encode"]
    assert (encode["requests"], encode["tokens"]) == (2, 200)
    assert encode["wait"]["mean"] == pytest.approx(0.075, abs=2e-6)
    assert encode["busy"] == pytest.approx(0.300 / result["simulated_seconds"])
    assert run(PAIR)["encode"] is None


def test_encoders_without_media_are_noted() -> None:
    (note,) = load_text(PAIR, sets=[ENCODE]).notes
    assert "serving.encode: no source has media" in note


def test_encoders_that_are_always_busy_are_said_to_be() -> None:
    found = saturation(run(PAIR, MEDIA, ENCODE, "serving.encode.fixed=10s"))
    assert any("The encoders were busy 9" in one or "busy 100%" in one for one in found)
    assert not any("encoders" in one for one in saturation(run(PAIR, MEDIA, ENCODE)))


def saturation(result: dict[str, Any]) -> list[str]:
    return [one["says"] for one in result["trust"]["findings"] if one["code"] == "saturation"]


def test_busy_counts_until_now_and_not_what_is_still_to_do() -> None:
    encoders = Encoders(2, 1.0, 0.0)
    requests = [Request(number, 0.0, 9, 9) for number in range(3)]
    for request in requests:
        encoders.take(request, 0.0)
    assert [encoders.next(0.0) for _ in range(3)] == [(requests[0], 1.0), (requests[1], 1.0), None]
    assert encoders.busy(0.0) == 0.0
    assert encoders.busy(1.0) == 1.0
    encoders.leave(requests[0], 1.0)
    encoders.leave(requests[1], 1.0)
    assert encoders.next(1.0) == (requests[2], 2.0)
    encoders.leave(requests[2], 2.0)
    assert encoders.busy(2.0) == 0.75
    assert encoders.busy(4.0) == 0.375


def test_an_encoder_stops_for_a_client_that_has_left() -> None:
    """The first gives up after 100 of its 150 ms; the second then begins, and is done by 250."""
    result = run(PAIR, MEDIA, ENCODE, "workload.0.timeout=100ms", "workload.0.count=1")
    assert result["requests"]["timed_out"] == 1
    assert result["encode"]["busy"] * result["simulated_seconds"] == pytest.approx(0.1)
    encoders = Encoders(1, 1.0, 0.0)
    first, second, third = (Request(number, 0.0, 9, 9) for number in range(3))
    for request in (first, second, third):
        encoders.take(request, 0.0)
    assert encoders.next(0.0) == (first, 1.0)
    encoders.leave(second, 0.25)  # in the queue
    encoders.leave(first, 0.5)
    assert encoders.next(0.5) == (third, 1.5)


@pytest.mark.parametrize(("end_ms", "last"), [(100, "encode"), (200, "prefill")])
def test_the_phase_between_gateway_and_server_is_encoding(end_ms: int, last: str) -> None:
    request = rows_of(f"duration={end_ms}ms")[0]
    passed = phases_of(request, end_ms / 1000)
    assert [name for name, _ in passed][-1] == last
    name, took_s = passed[0]
    assert name == "encode"
    assert took_s == pytest.approx(min(end_ms / 1000, 0.150), abs=2e-6)
    assert math.fsum(took for _, took in passed) == pytest.approx(end_ms / 1000, abs=2e-6)


def phases_of(request: Request, end_s: float) -> list[tuple[str, float]]:
    """As a report finds them in the request's row."""
    times = times_of(request)
    row = RequestRow(
        *(getattr(times, name) for name in times.__struct_fields__),
        id=request.id,
        source="chat",
        slo="standard",
        outcome="unfinished",
        reason=reason_of(request, "unfinished"),
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        prefix_hit_tokens=0,
        preemptions=0,
        pool="main" if request.server >= 0 else None,
        replica=0,
        prefill_pool=None,
        prefill_replica=None,
    )
    return [(phase.name, phase.took_s) for phase in row.phases(end_s)]
