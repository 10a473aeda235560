"""The house style, as far as a machine can see it."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
BANNED_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|managers?|misc)(_|$)|^base_|_impl$")
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")

FILES = sorted(
    path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
IDS = [path.relative_to(ROOT).as_posix() for path in FILES]


ONE_MEANING = ("InferencePool", "Metadata", "PoolSpec", "Received", "TargetPort")
"""Ports and kinds of Kubernetes, of which several modules read a part each."""


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for name in IDS:
        if name.startswith("src/"):
            tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(name)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not {name: where for name, where in twice.items() if name not in ONE_MEANING}


def test_there_is_something_to_look_at() -> None:
    assert "src/windtunnel/core/loop.py" in IDS
    assert "tests/house/test_tidy.py" in IDS


@pytest.mark.parametrize("name", IDS)
def test_a_module_is_tidy(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert not list(faults(name, text, tree))


def faults(name: str, text: str, tree: ast.Module) -> list[str]:
    """Everything that is wrong with a module, as sentences."""
    found = []
    if text and not (ast.get_docstring(tree) or "").strip():
        found.append("its first line does not say what it is for")
    if UNFINISHED.search(text):
        found.append("it says that it is unfinished")
    if BANNED_NAMES.search(Path(name).stem.removeprefix("test_")):
        found.append("its name says nothing")
    for node in ast.walk(tree):
        named = node.name if isinstance(node, ast.ClassDef) else ""
        if re.search(r"(Manager|Helper|Utils?|Impl)$", named) or named.startswith("Base"):
            found.append(f"the class name {named} says nothing")
    return found


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("src/a.py", "x = 1\n", "its first line"),
        ("src/a.py", '"""A."""\n# TO' + "DO: later\n", "unfinished"),
        ("src/string_utils.py", '"""A."""\n', "its name says nothing"),
        ("src/a.py", '"""A."""\nclass PodManager: ...\n', "PodManager says nothing"),
    ],
)
def test_each_rule_can_be_broken(name: str, text: str, fault: str) -> None:
    assert [found for found in faults(name, text, ast.parse(text)) if fault in found]
