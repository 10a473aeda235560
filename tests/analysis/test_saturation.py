"""When a run counts as saturated."""

from tests.twin.samples import sample
from windtunnel.analysis.saturation import NO_SERVER, Stretch, stretches


def found(
    waiting: list[list[int]], running: list[list[int]], kv: float = 0.5, slots: int = 8
) -> list[Stretch]:
    """Of samples a second apart; a list per server."""
    times = zip(zip(*waiting, strict=True), zip(*running, strict=True), strict=True)
    samples = [sample(n + 1.0, list(w), list(r), kv) for n, (w, r) in enumerate(times)]
    return stretches(samples, [slots] * len(waiting))


def test_a_server_is_saturated_for_one_of_three_causes() -> None:
    line = [[0, 1, 1, 1, 0, 0]]
    slots = [Stretch(1.0, 4.0, "all batch slots taken", 1)]
    assert found(line, [[8] * 6]) == slots
    assert found(line, [[7] * 6], kv=0.95) == [Stretch(1.0, 4.0, "KV cache full", 1)]
    assert found(line, [[7] * 6]) == []
    longer = [[0, 9, 9, 9, 0, 0]]
    assert found(longer, [[7] * 6]) == [Stretch(1.0, 4.0, "more waiting than running", 1)]


def test_a_moment_is_no_stretch_and_a_short_pause_ends_none() -> None:
    assert found([[0, 1, 1, 0, 0, 0]], [[8] * 6]) == []
    paused = [[1, 1, 1, 0, 0, 1, 1, 1]]
    assert found(paused, [[8] * 8]) == [Stretch(0.0, 8.0, "all batch slots taken", 1)]
    apart = [[1, 1, 1, 0, 0, 0, 1, 1, 1]]
    assert [(one.start_s, one.end_s) for one in found(apart, [[8] * 9])] == [(0, 3), (6, 9)]


def test_a_tenth_of_the_servers_must_be_saturated() -> None:
    for servers, expected in ((10, 1), (11, 0)):
        waiting = [[1] * 5] + [[0] * 5] * (servers - 1)
        assert len(found(waiting, [[8] * 5] * servers)) == expected


def test_a_stretch_has_the_cause_of_most_servers_and_their_largest_number() -> None:
    waiting = [[1] * 5, [1] * 5, [0, 1, 1, 1, 0]]
    running = [[8] * 5, [2] * 5, [8] * 5]
    assert found(waiting, running) == [Stretch(0.0, 5.0, "all batch slots taken", 2)]


def test_requests_for_which_no_server_is_ready_are_without_capacity() -> None:
    samples = [sample(n + 1.0, [0], [0]) for n in range(12)]
    waited = [0, 0, 3, 3, 3, 0, 3, 3, 0, 0, 0, 3]
    for one, awaiting in zip(samples, waited, strict=True):
        one.awaiting_server = awaiting
    none = Stretch(2.0, 8.0, NO_SERVER, 0)  # a pause of a sample does not end it
    assert stretches(samples, [8]) == [none]
    full = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    for one, waiting in zip(samples, full, strict=True):
        one.waiting[0], one.running[0] = waiting, 8 * waiting
    overlap = [Stretch(0.0, 2.0, "all batch slots taken", 1), none]
    assert stretches(samples, [8]) == overlap, "each instant is counted once"


def test_a_queue_at_the_gateway_is_without_capacity_only_if_no_server_is_there() -> None:
    for serving, expected in ((0, [Stretch(0.0, 4.0, NO_SERVER, 0)]), (1, [])):
        samples = [sample(n + 1.0, [0], [0]) for n in range(4)]
        for one in samples:
            one.at_gateway, one.serving = 5, serving
        assert stretches(samples, [8]) == expected
