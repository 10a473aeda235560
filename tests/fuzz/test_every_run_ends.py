"""A run ends by itself in every combination of features, and everybody who came is counted."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.sinks import MemorySink
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import loaded
from windtunnel.twin.run import run


@given(st.integers(0, 2**40))
def test_a_run_ends_and_loses_nobody(seed: int) -> None:
    document = draw(seed)
    sink = MemorySink()
    with loaded(document) as plan:
        result = run(plan, events=sink).result
    requests = result["requests"]
    left = sum(requests[name] for name in requests if name != "arrived")
    assert requests["arrived"] == left
    ended = [event.time for event in sink.events if event.kind == "request.ended"]
    assert len(ended) == left - requests["unfinished"]
    if "duration" in document:
        assert result["simulated_seconds"] == document["duration"]
        return
    if document.get("scaling", {}).get("wake", True):  # else nobody may start a server for them
        assert requests["unfinished"] == 0
