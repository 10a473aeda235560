"""Optional packages: the extras of this project, and the command that installs one of them."""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError

PACKAGE = Path(__file__).parents[2]


def source_tree() -> Path | None:
    """The clone that this package runs from; None when it is installed."""
    root = PACKAGE.parent.parent
    if PACKAGE.parent.name == "src" and (root / "pyproject.toml").is_file():
        return root
    return None


def project_table() -> dict[str, Any] | None:
    """The parsed pyproject.toml of the clone; None without a clone."""
    root = source_tree()
    return None if root is None else tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def install_command(extra: str) -> str:
    """The command that installs an extra, from a clone or for an installed package."""
    root = source_tree()
    return (
        f'pip install "windtunnel[{extra}]"'
        if root is None
        else f'pip install -e "{root}[{extra}]"'
    )


def need(package: str, where: str | None, extra: str, what: str | None = None) -> None:
    """Raises InputError unless a package of an extra is installed; `what` replaces its message."""
    if importlib.util.find_spec(package) is None:
        raise InputError(
            what or f"the package {package} is not installed",
            where=where,
            hint=install_command(extra),
        )
