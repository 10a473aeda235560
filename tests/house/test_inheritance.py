"""A class of an interpreted module inherits from a compiled one only where that one allows it."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


def classes(module: str) -> list[tuple[str, list[str], bool]]:
    """The classes of a module: name, full names of their bases, and whether they allow it."""
    tree = ast.parse((SOURCES / f"{module.replace('.', '/')}.py").read_text())
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).split("[")[0] for base in node.bases]
            allows = any("allow_interpreted" in ast.unparse(one) for one in node.decorator_list)
            full = [names.get(base, f"{module}.{base}") for base in bases]
            found.append((f"{module}.{node.name}", full, allows))
    return found


@pytest.mark.once
def test_interpreted_classes_inherit_only_from_compiled_ones_that_allow_it() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["windtunnel"]["compiled"]
    closed = [name for module in table for name, _, allows in classes(module) if not allows]
    files = sorted((SOURCES / "windtunnel").rglob("*.py"))
    modules = [".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in files]
    wrong = [
        f"{name} inherits from {base}"
        for module in modules
        if module not in table and not module.endswith("__init__")
        for name, bases, _ in classes(module)
        for base in bases
        if base in closed
    ]
    assert wrong == []
