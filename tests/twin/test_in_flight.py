"""The in-flight index against a scan of everything, and what it says of a server that goes."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.twin.requests.in_flight import InFlight
from windtunnel.workload.request import (
    AT_GATEWAY,
    BACKING_OFF,
    ENCODING,
    ON_THE_WAY,
    SPLIT,
    UNPLACED,
    Request,
)

PLACES = (AT_GATEWAY, ENCODING, ON_THE_WAY, SPLIT, UNPLACED, BACKING_OFF)
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(PLACES), st.integers(0, 3), st.integers(0, 3)),
    max_size=60,
)


@given(STEPS)
def test_counts_and_links_are_those_of_a_scan(steps: list[tuple[int, int, int, int]]) -> None:
    """A step puts a request somewhere, or takes out the one that is there."""
    index = InFlight(2, None)
    for number, place, server, prefill_server in steps:
        present = {one.id: one for one in index.requests()}.get(number)
        if present is not None:
            index.remove(present)
        else:
            request = Request(number, 0.0, 10 + number, 1)
            request.model = number % 2
            request.server, request.prefill_server = server, prefill_server
            index.keep(request, place)
        assert index.fault() is None
    index.clear()
    assert index.fault() is None
    assert index.queued == index.queued_prompt_tokens == [0, 0]


def test_a_request_that_moves_between_servers_is_forgotten_where_it_was() -> None:
    """Its server may change before it is taken out: the link is the one that was made."""
    index = InFlight(1, None)
    request = Request(7, 0.0, 10, 1)
    request.server, request.prefill_server = 2, 5
    index.keep(request, SPLIT)
    request.server = 5
    fault = index.fault()
    assert fault is not None
    assert "known of [2, 5]" in fault
    index.remove(request)
    assert index.fault() is None


def test_a_miscount_is_found() -> None:
    index = InFlight(1, None)
    index.keep(Request(1, 0.0, 10, 1), AT_GATEWAY)
    index.queued[0] = 2
    assert index.fault() == "[1] requests with [10] tokens are queued, [2] are counted"
