"""What is drawn: whole scenarios that the loader takes, every feature among them."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.admission.gateway.flow_control import ORDERS
from windtunnel.fuzz.documents import read_document, write_document
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.drawing.serving import MODELS
from windtunnel.fuzz.trial import loaded
from windtunnel.routing.build import POLICIES as ROUTERS
from windtunnel.scaling.build import POLICIES as SCALERS
from windtunnel.scaling.build import word_of
from windtunnel.twin.faults.kinds import KINDS

SEEDS = st.integers(0, 2**40)


@given(SEEDS)
def test_the_loader_takes_what_is_drawn(seed: int) -> None:
    with loaded(draw(seed)) as plan:
        assert plan.seed == seed


@given(SEEDS)
def test_a_scenario_is_the_same_without_its_text(seed: int) -> None:
    """Most trials leave out YAML, which would change nothing."""
    document = draw(seed)
    before = json.dumps(document)
    with loaded(document) as written, loaded(document, as_text=False) as plain:
        assert plain.sha256 == written.sha256
    assert json.dumps(document) == before


@given(SEEDS)
def test_a_seed_is_a_scenario(seed: int) -> None:
    assert json.dumps(draw(seed)) == json.dumps(draw(seed))


def pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and what it stands for, at any depth."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield key, below
            yield from pairs(below)
    elif isinstance(value, list):
        for below in value:
            yield from pairs(below)


@pytest.mark.once
def test_every_choice_is_drawn() -> None:
    seen: Counter[tuple[str, Any]] = Counter()
    alone: Counter[str] = Counter()
    for seed in range(400):
        document = draw(seed)
        for key, value in pairs(document):
            alone[key] += 1
            if isinstance(value, str | bool):
                seen[key, value] += 1
    chosen = {key: {value for name, value in seen if name == key} for key, _ in seen}
    assert chosen["process"] == {"poisson", "constant", "gamma", "weibull", "closed"}
    assert chosen["policy"] >= {
        *map(word_of, SCALERS),
        *ROUTERS,
        "token-bucket",
        "tier-shed",
        "saturation",
    }
    assert chosen["role"] == {"prefill", "decode"}
    assert chosen["order"] >= set(ORDERS)
    assert chosen["decider"] == {"always", "never", "prefix-threshold"}
    assert len(chosen["distribution"]) == 7
    for key in ("session", "population", "timeout", "offload", "lora", "encode", "duration"):
        assert alone[key] > 20, key
    assert alone["trace"] > 20
    assert len(chosen["model"] & set(MODELS)) == 2
    assert chosen["cluster"] == {"east", "west"}
    autoscalers = {"HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler", "Service"}
    assert chosen["kind"] >= {*KINDS, *autoscalers}


@pytest.mark.once
def test_every_role_may_be_scaled_to_zero_at_once() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(400):
        document = draw(seed)
        bounds = document.get("scaling", {}).get("pools", {})
        drain = document["serving"].get("drain", {}).get("policy", "wait")
        for pool in document["serving"]["pools"]:
            if bounds.get(pool["name"], {"min": 1})["min"] == 0:
                seen[pool.get("role", "both"), drain] += 1
    assert all(seen[role, "immediate"] for role in ("prefill", "decode", "both")), seen


def test_files_beside_a_scenario_are_read_again(tmp_path: Path) -> None:
    for seed in range(20):
        document = draw(seed)
        path = tmp_path / f"{seed}.yaml"
        write_document(path, document)
        assert read_document(path) == document


@pytest.mark.once
def test_rare_features_meet_each_other() -> None:
    features = ("scaling", "disaggregation", "session", "eviction", "offload")
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(400):
        has = {key for key, _ in pairs(draw(seed))}
        met.update((a, b) for a in features for b in features if a < b and {a, b} <= has)
    assert all(met[a, b] for a in features for b in features if a < b), met
