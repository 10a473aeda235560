"""Whatever is fed to the loader, the worst that comes out is a sentence."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.scenario.scenario_texts import EVERYTHING, LARGE, SMALL
from windtunnel.core.errors import InputError
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

WORDS = sorted({word.strip("{}[],:-") for word in (SMALL + LARGE + EVERYTHING).split()} - {""})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**60)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(WORDS)
)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


def outcome(text: str, sets: list[str]) -> ScenarioPlan | str:
    try:
        return load_text(text, "s.yaml", sets)
    except InputError as error:
        return str(error)


def paths(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = (
        enumerate(data)
        if isinstance(data, list)
        else data.items()
        if isinstance(data, dict)
        else ()
    )
    return [path, *(found for key, below in items for found in paths(below, (*path, key)))]


PLACES = [
    (text, path) for text in (LARGE, EVERYTHING) for path in paths(yaml.safe_load(text)) if path
]


def checked(result: ScenarioPlan | str) -> None:
    if isinstance(result, str):
        assert result
        for line in result.splitlines():
            assert line.startswith(("s.yaml", "--set ", "--seed "))
            assert len(line) < 800


@given(st.text() | st.text(alphabet="ab:-[]{}&*!#|>'\"%@` \n\t,?~0", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text(text: str) -> None:
    checked(outcome(text, []))


@given(st.lists(st.sampled_from(SMALL.splitlines(keepends=True)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_shuffled_lines(lines: list[str]) -> None:
    checked(outcome("".join(lines), []))


@given(place=st.sampled_from(PLACES), junk=DATA)
@settings(max_examples=300, deadline=None)
def test_junk_anywhere_in_a_good_scenario(
    place: tuple[str, tuple[str | int, ...]], junk: Any
) -> None:
    text, path = place
    data = yaml.safe_load(text)
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = junk
    checked(outcome(yaml.safe_dump(data, allow_unicode=True), []))


@given(place=st.sampled_from(PLACES), value=SCALARS | DATA, tail=st.text(max_size=5))
@settings(max_examples=200, deadline=None)
def test_junk_by_overrides(place: tuple[str, tuple[str | int, ...]], value: Any, tail: str) -> None:
    text, path = place
    dotted = ".".join(map(str, path)) + tail
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True)
    checked(outcome(text, [f"{dotted}={written.removesuffix('...' + chr(10)).strip()}"]))


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_override(text: str) -> None:
    checked(outcome(SMALL, [text]))
