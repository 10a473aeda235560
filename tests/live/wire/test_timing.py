"""Deadlines of things that make progress, against the obvious way to keep them."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.live.wire.timing import Progress, ProgressDeadlines

LIMIT_S = 10.0
OPS = st.tuples(
    st.sampled_from(["add", "piece", "piece", "remove", "look"]),
    st.integers(0, 4),
    st.integers(0, 9),
)


@given(st.lists(OPS, max_size=80))
def test_a_thing_is_late_when_its_last_piece_is_too_long_ago(
    ops: list[tuple[str, int, int]],
) -> None:
    deadlines = ProgressDeadlines[Progress](LIMIT_S)
    things = [Progress() for _ in range(5)]
    plain: dict[int, float] = {}  # the time of the last piece, by thing
    now_s = 0.0
    for kind, number, passed in ops:
        now_s += passed
        thing = things[number]
        if kind == "add":
            deadlines.add(thing, now_s)
            plain[number] = now_s
        elif kind == "piece" and number in plain:
            thing.last_s = plain[number] = now_s
        elif kind == "remove":
            deadlines.remove(thing)
            plain.pop(number, None)
        elif kind == "look":
            late = {number for number, last_s in plain.items() if now_s - last_s >= LIMIT_S}
            assert {things.index(one) for one in deadlines.expired(now_s)} == late
            for one in late:
                del plain[one]
        assert len(deadlines) == len(plain)
