"""Which events are created, which are counted in a series, and what they look like."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from windtunnel.live.kubernetes import events
from windtunnel.live.kubernetes.events import (
    MOST_SERIES,
    WARNING,
    CreateEvent,
    EventRecorder,
    EventSeries,
    Happened,
    PatchEvent,
    Subject,
)

DATE_S = 1_800_000_000.0
POD = Subject("v1", "Pod", "n", "p-0", "uid-1")


def waits(about: Subject = POD, note: str = "no node has 8 GPUs") -> Happened:
    return Happened(about, WARNING, "GangWaits", "Place", note)


def test_repeated_events_become_a_series_that_is_written_rarely() -> None:
    series = EventSeries("windtunnel.dev/operator", "operator-0")
    (first,) = series.add(waits(), 0.0, DATE_S)
    assert isinstance(first, CreateEvent)
    assert first.body["regarding"]["uid"] == "uid-1"
    assert first.body["eventTime"] == "2027-01-15T08:00:00.000000Z"
    (second,) = series.add(waits(), 10.0, DATE_S + 10)
    assert second == PatchEvent(
        "n", first.name, {"series": {"count": 2, "lastObservedTime": "2027-01-15T08:00:10.000000Z"}}
    )
    for number in range(1, 20):
        assert series.add(waits(), 10.0 + 90 * number, DATE_S) == []
    (refreshed,) = series.add(waits(), 1810.0, DATE_S)
    assert refreshed.body["series"]["count"] == 22


def test_a_series_ends_when_it_is_quiet_and_the_next_event_is_a_new_one() -> None:
    series = EventSeries("c", "i")
    for second in (0.0, 1.0, 2.0):
        series.add(waits(), second, DATE_S)
    assert series.ended(361.0) == []
    (last,) = series.ended(362.0)
    assert last.body["series"]["count"] == 3
    assert len(series) == 0
    (again,) = series.add(waits(), 400.0, DATE_S)
    assert isinstance(again, CreateEvent)


def test_the_number_of_series_and_the_length_of_notes_are_bounded() -> None:
    series = EventSeries("c", "i")
    names = set()
    for number in range(MOST_SERIES + 10):
        about = POD._replace(name="n" * 300, uid=str(number))
        (made,) = series.add(waits(about, "é" * 2000), 0.0, DATE_S)
        assert len(made.name) <= 253
        assert len(made.body["note"].encode()) <= 1024
        names.add(made.name)
    assert len(series) == MOST_SERIES
    assert len(names) == 4096, "a name repeats only after 4,096 events in one microsecond"


def test_a_series_ends_while_other_events_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AsyncMock()

    async def record() -> None:
        recorder = EventRecorder(client, "c", "i")
        monkeypatch.setattr(events, "monotonic_s", lambda: 0.0)
        for _ in range(3):
            recorder.record(POD, WARNING, "GangWaits", "Place", "no room")
        running = asyncio.create_task(recorder.run())
        await asyncio.sleep(0.01)
        monkeypatch.setattr(events, "monotonic_s", lambda: 400.0)
        recorder.record(POD._replace(uid="other"), WARNING, "GangWaits", "Place", "no room")
        await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(record())
    counts = [call.args[3]["series"]["count"] for call in client.patch.await_args_list]
    assert counts == [2, 3]
