"""A failure is made small: the same cause, by the same steps every time, within its tries."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.mangle import mangle
from windtunnel.fuzz.shrink import LONGEST_S, shrink
from windtunnel.fuzz.trial import Breach, probe

ODD = Breach("invariant", "odd", "it is odd")
OTHER = Breach("invariant", "other", "it is another")


def size(value: Any) -> int:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return 1 + sum(size(below) for below in items)
    return 1


def two_pools(document: dict[str, Any]) -> Breach | None:
    """Breaks where two pools are there and the second has a replica."""
    pools = document.get("serving", {}).get("pools", [])
    if len(pools) < 2:
        return None if pools else OTHER
    return ODD if pools[1].get("replicas", 0) > 0 else None


def test_only_what_it_takes_is_left() -> None:
    document = {
        "name": "fuzz-7",
        "seed": 7,
        "duration": 30.0,
        "serving": {
            "pools": [{"name": "main", "replicas": 3}, {"name": "spare", "replicas": 12}],
            "router": {"policy": "random"},
        },
        "scaling": {"policy": "hpa", "pools": {"main": {"min": 1}, "spare": {"min": 2}}},
    }
    small, breach = shrink(document, ODD, two_pools)
    assert small == {"name": "fuzz-7", "seed": 7, "serving": {"pools": [{}, {"replicas": 1}]}}
    assert breach == ODD


def test_it_ends_in_time_with_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that never end take all the time they have, and there are hundreds of tries."""
    now_s = 0.0
    monkeypatch.setattr("windtunnel.fuzz.shrink.monotonic_s", lambda: now_s)

    def slow(document: dict[str, Any]) -> Breach | None:
        nonlocal now_s
        now_s += LONGEST_S / 10
        return two_pools(document)

    document = {"seed": 7, "serving": {"pools": [{"replicas": 1}, {"replicas": 1}]}}
    document |= {f"key-{n}": n for n in range(100)}
    small, breach = shrink(document, ODD, slow)
    assert breach == ODD
    assert size(small) == size(document) - 11
    assert now_s <= 1.2 * LONGEST_S


def test_who_is_left_out_is_forgotten_by_name() -> None:
    tried: list[dict[str, Any]] = []

    def note(document: dict[str, Any]) -> Breach | None:
        tried.append(document)
        return None

    document = {"pools": [{"name": "main"}, {"name": "far"}], "bounds": {"main": 1, "far": 2}}
    shrink(document, ODD, note)
    assert {"pools": [{"name": "main"}], "bounds": {"main": 1}} in tried


def test_files_go_with_their_names_and_get_shorter() -> None:
    rows = "arrived,prompt_tokens,output_tokens\n" + "1,2,3\n" * 40
    document = {
        "workload": [{"name": "a"}, {"trace": {"path": "t.csv"}}],
        "scaling": {"manifests": ["s.yml"]},
        "files": {"t.csv": rows, "s.yml": [{"kind": "Service"}]},
    }

    def breaks(candidate: dict[str, Any]) -> Breach | None:
        trace = candidate.get("files", {}).get("t.csv", "")
        return ODD if trace.count("1,2,3") >= 3 else None

    small, _ = shrink(document, ODD, breaks)
    assert small == {
        "workload": [{"trace": {"path": "t.csv"}}],
        "files": {"t.csv": "arrived,prompt_tokens,output_tokens\n" + "1,2,3\n" * 3},
    }


@given(st.integers(0, 10_000), st.integers(0, 60))
def test_it_keeps_the_cause_and_its_tries(seed: int, tries: int) -> None:
    document = draw(seed)
    before = copy.deepcopy(document)
    count = 0

    def breaks(candidate: dict[str, Any]) -> Breach | None:
        nonlocal count
        count += 1
        return ODD if "serving" in candidate else OTHER

    small, _ = shrink(document, ODD, breaks, tries)
    assert count <= tries
    assert document == before
    assert "serving" in small
    assert size(small) <= size(document)
    assert shrink(document, ODD, breaks, tries)[0] == small


@given(st.integers(0, 10_000))
def test_what_is_spoilt_is_refused_in_a_sentence(seed: int) -> None:
    document = draw(seed)
    before = copy.deepcopy(document)
    spoilt = mangle(document, seed)
    assert document == before
    assert probe(spoilt) is None
