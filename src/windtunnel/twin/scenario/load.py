"""Loads a scenario: text, overrides, checks, plan. Whatever is wrong with it is an InputError."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from windtunnel.twin.scenario.faults import checker_faults, input_error
from windtunnel.twin.scenario.overrides import apply_override
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.scenario.resolve import resolve
from windtunnel.twin.scenario.rules import rule_faults
from windtunnel.twin.scenario.spec import ScenarioSpec
from windtunnel.twin.scenario.yaml_source import parse_document, read_text

__all__ = ["load", "load_text", "json_schema"]


def load(path: str | Path, sets: Sequence[str] = (), seed: int | None = None) -> ScenarioPlan:
    """The plan for a scenario file; `sets` are overrides such as `serving.pools.0.replicas=8`."""
    return load_text(read_text(path), str(path), sets, seed)


def load_text(
    text: str, file: str = "scenario.yaml", sets: Sequence[str] = (), seed: int | None = None
) -> ScenarioPlan:
    """As `load`, for a text at hand; faults and relative paths take it to be in `file`."""
    document = parse_document(text, file)
    for override in sets:
        apply_override(document, override)
    if seed is not None:
        document.data["seed"] = seed
        document.put_place(("seed",), f"--seed {seed}")
    try:
        spec = ScenarioSpec.model_validate(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, ScenarioSpec)) from None
    faults = rule_faults(spec)
    if faults:
        raise input_error(document, faults)
    return resolve(spec, Path(file))


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of scenario files, for editors and other programs."""
    schema = ScenarioSpec.model_json_schema()
    _drop_titles(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windtunnel scenario",
        **schema,
    }


def _drop_titles(node: Any) -> None:
    """Takes out the titles that only repeat a key."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for below in node.values():
            _drop_titles(below)
    elif isinstance(node, list):
        for below in node:
            _drop_titles(below)
