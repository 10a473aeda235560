"""A sink that fails costs its own events and nothing else."""

import json
import logging
from pathlib import Path

import pytest

from tests.core.sinks import MemorySink
from windtunnel.core.errors import OutputError
from windtunnel.core.telemetry import CountingSink, Event, JsonlSink, Telemetry

EVENT = Event(1.5, "routed", "request-7", "fewest queued tokens", {"server": "a", "queued": 3})


class Broken:
    """Fails on every event, or already when asked."""

    def __init__(self, *, when_asked: bool = False) -> None:
        self.when_asked = when_asked

    def wants(self, kind: str) -> bool:
        if self.when_asked:
            raise RuntimeError("a slip")
        return True

    def record(self, event: Event) -> None:
        raise RuntimeError("a slip")


@pytest.mark.parametrize("when_asked", [False, True])
def test_the_others_still_hear_everything(
    when_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = MemorySink(), MemorySink()
    telemetry = Telemetry(before, Broken(when_asked=when_asked), after)
    with caplog.at_level(logging.ERROR, logger="windtunnel.telemetry"):
        for _ in range(5):
            telemetry.emit(EVENT)
    assert before.events == after.events == [EVENT] * 5
    assert telemetry.lost_events == 5
    assert telemetry.failures == {1: 5}
    assert len(caplog.records) == 1
    assert "Broken failed on routed at 1.5" in caplog.text
    assert "Traceback" in caplog.text


def test_nothing_is_wanted_when_nobody_listens() -> None:
    assert not Telemetry().wants("routed")
    assert Telemetry(MemorySink()).wants("routed")


def test_counts_by_kind_and_reason() -> None:
    sink = CountingSink()
    for _ in range(3):
        sink.record(EVENT)
    sink.record(Event(2.0, "rejected", "request-8", "queue full"))
    assert sink.counts == {("routed", "fewest queued tokens"): 3, ("rejected", "queue full"): 1}


def test_a_line_of_json_per_event(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "events.jsonl")
    sink.record(EVENT)
    sink.record(EVENT)
    sink.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "time": 1.5,
            "kind": "routed",
            "subject": "request-7",
            "reason": "fewest queued tokens",
            "data": {"server": "a", "queued": 3},
        }
    ] * 2


@pytest.mark.parametrize(
    ("append", "before", "lines"), [(False, "old\n", 1), (True, "old\n", 2), (True, "to", 2)]
)
def test_what_an_earlier_run_left_stays_until_the_first_event_or_for_good(
    tmp_path: Path, before: str, lines: int, *, append: bool
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(before)
    JsonlSink(path, append=append).close()
    assert path.read_text() == before
    sink = JsonlSink(path, append=append)
    sink.record(EVENT)
    sink.close()
    found = path.read_text().splitlines()
    assert len(found) == lines
    assert json.loads(found[-1])["kind"] == "routed"


def test_a_disk_that_is_full_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever opened the file says so in a sentence; a traceback is for those who look for it."""

    class Full(MemorySink):
        def record(self, event: Event) -> None:
            raise OSError(28, "No space left on device")

    telemetry = Telemetry(Full())
    with caplog.at_level(logging.INFO):
        telemetry.emit(EVENT)
    assert (telemetry.lost_events, caplog.text) == (1, "")


def test_a_file_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "events.jsonl"
    with pytest.raises(OutputError, match="cannot write events") as caught:
        JsonlSink(path)
    assert str(caught.value).startswith(str(path))


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EVENT.time = 2.0  # type: ignore[misc]
