"""The chart of a policy comparison: names of policies that are close do not overlap."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.report.page.searches.arena import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LETTER,
    LINE,
    RADIUS,
    RIGHT,
    TOP,
    WIDTH,
    ArenaDot,
    ArenaLabel,
    labels_of,
)
from windtunnel.search.arena.contestants import CONTESTANTS

NAMES = [one.name for one in CONTESTANTS]


def dot(name: str, x: float, y: float) -> ArenaDot:
    return ArenaDot(x, y, x, x, y, y, "tuned", "", name)


def overlap(label: ArenaLabel, left: float, top: float, wide: float, high: float) -> bool:
    ends = label.x + LETTER * len(label.name)
    return (
        label.x < left + wide - 0.2
        and left < ends - 0.2
        and label.y - LINE < top + high - 3.2
        and top < label.y + 2.8
    )


@given(st.floats(LEFT, WIDTH - RIGHT), st.floats(TOP, HEIGHT - BOTTOM), st.floats(0.0, 60.0))
def test_names_of_close_policies_cover_no_name_and_no_dot(x: float, y: float, wide: float) -> None:
    middle = (len(NAMES) - 1) / 2
    dots = [
        dot(name, min(max(x + (n - middle) * wide / len(NAMES), LEFT), WIDTH - RIGHT), y)
        for n, name in enumerate(NAMES)
    ]
    labels = labels_of(dots)
    assert sorted(label.name for label in labels) == sorted(NAMES)
    for one, other in combinations(labels, 2):
        assert not overlap(one, other.x, other.y + 3.0 - LINE, LETTER * len(other.name), LINE)
    for label in labels:
        for each in dots:
            assert not overlap(label, each.x - RADIUS, each.y - RADIUS, 2 * RADIUS, 2 * RADIUS)


def test_only_a_name_away_from_its_dot_has_a_leader() -> None:
    alone, *_ = labels_of([dot("hpa", 300.0, 100.0)])
    assert alone.leader is None
    crowded = labels_of([dot(name, 300.0, 100.0) for name in NAMES])
    led = [label for label in crowded if label.leader is not None]
    assert led
    assert all(label.leader[:2] == (300.0, 100.0) for label in led if label.leader)
