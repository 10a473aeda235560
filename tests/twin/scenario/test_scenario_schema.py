"""The JSON Schema and the reference page say what the loader does."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.twin.scenario.scenario_texts import EVERYTHING, LARGE, SMALL
from windtunnel.live.gateway.settings import LiveSettings
from windtunnel.settings.fields import Bandwidth, Duration, Number, Rate, Share, Size
from windtunnel.twin.scenario.load import json_schema, load, load_text

ROOT = Path(__file__).parents[3]


def read(text: str) -> Any:
    """As the loader does: YAML 1.1 would take 1e3 for text."""
    return yaml.safe_load(text.replace("1e3", "1000"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def test_it_is_a_schema_of_the_draft_it_names(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("text", [SMALL, LARGE, EVERYTHING])
def test_good_scenarios_satisfy_it(schema: dict[str, Any], text: str) -> None:
    load_text(text)
    jsonschema.Draft202012Validator(schema).validate(read(text))


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=str)
def test_examples_load_and_satisfy_it(schema: dict[str, Any], example: Path) -> None:
    load(example)
    data = read(example.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replicas: 2", "replicas: -1"),
        ("replicas: 2", "replica: 2"),
        ("rate: 40/s", "rate: -40"),
        ("rate: 40/s", "rate: true"),
        ("poisson", "poison"),
        ("kv_blocks: 1000", "kv_blocks: lots"),
        ("fixed: 6ms", "path: x"),
        ("tokens: 512", "tokens: 0"),
        ("name: small", "name: a b"),
        ("name: small", "slo: {critical: {ttft: [1]}}"),
    ],
)
def test_bad_scenarios_do_not(schema: dict[str, Any], old: str, new: str) -> None:
    assert SMALL.count(old) == 1
    validator = jsonschema.Draft202012Validator(schema)
    assert not validator.is_valid(read(SMALL.replace(old, new)))


def test_every_field_explains_itself(schema: dict[str, Any]) -> None:
    def properties(node: Any) -> list[tuple[str, Any]]:
        if isinstance(node, list):
            return [found for below in node for found in properties(below)]
        if not isinstance(node, dict):
            return []
        own = list(node.get("properties", {}).items())
        return own + [found for below in node.values() for found in properties(below)]

    silent = [
        key
        for key, field in properties(schema)
        if "const" not in field and not field.get("description", "").endswith(".")
    ]
    assert silent == []


def test_the_reference_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "scenario_reference.py"))["page"]()
    written = (ROOT / "docs" / "reference" / "scenario.md").read_text(encoding="utf-8")
    assert written == page, "run `python docs/scenario_reference.py`"


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """The mappings of a schema, at any depth."""
    if isinstance(node, list):
        for below in node:
            yield from nodes(below)
    elif isinstance(node, dict):
        yield node
        yield from nodes(list(node.values()))


def test_every_share_may_be_a_percentage(schema: dict[str, Any]) -> None:
    live = LiveSettings.schema_of_files()
    shares = [node for node in nodes([schema, live]) if node.get("maximum") == 1.0]
    assert len(shares) > 20
    assert [node for node in shares if node["type"] != ["string", "number"]] == []


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (Duration("0s", "366d"), ["0s", "50us", "5ms", "90s", "24h", "14h", "1500ms", "30ns"]),
        (Size("0B", "1TB"), ["0B", "16GB", "512MiB", "80GiB", "1500MB"]),
        (Bandwidth("1kB/s", "1PB/s"), ["25GB/s", "900MiB/s"]),
        (Rate("0/s", "1000/s"), ["40/s", "0.5/s"]),
        (Number(0, 10), ["0", "1", "0.8"]),
        (Share(), ["0%", "95%", "7%", "99.9%", "100%"]),
    ],
    ids=["duration", "size", "bandwidth", "rate", "number", "share"],
)
def test_the_page_writes_defaults_as_people_do(leaf: Number | Duration, text: list[str]) -> None:
    as_written = runpy.run_path(str(ROOT / "docs" / "scenario_reference.py"))["as_written"]
    for one in text:
        value = leaf.read(one if leaf.examples else float(one))
        assert as_written(value, leaf) == one
