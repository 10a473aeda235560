"""`windtunnel doctor`: what is installed, and which modules run compiled."""

import importlib
import platform
import re
import shutil
import textwrap
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import click

import windtunnel
from windtunnel._forms import PACKAGE, read_manifest
from windtunnel.cli.options import json_option
from windtunnel.cli.places import Output
from windtunnel.core.system.extras import install_command, project_table

TOOLS = ("dev", "docs")
"""Extras for developing windtunnel, not for using it."""
WIDEST = 1_000
NAME = re.compile(r"[ <>=!~\[(]")
"""The characters that end a package name in a requirement."""


@click.command(short_help="Show which packages are installed, and which modules run compiled.")
@json_option("the findings as JSON")
def doctor(json_to: str | None) -> None:
    """Show which packages are installed, and which modules run compiled.

    Each module that can be compiled is imported to see which form loads.
    """
    findings = examine()
    if json_to is None:
        click.echo(describe(findings, shutil.get_terminal_size().columns))
    with Output(json_to) as out:
        out.json(findings)


def examine() -> dict[str, Any]:
    """Collects the findings, as plain data."""
    needed, optional = _requirements()
    return {
        "windtunnel": windtunnel.__version__,
        "installed_in": str(PACKAGE),
        "form": windtunnel.FORM,
        "modules": {name: loaded_form(name) for name in hot_modules()},
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "dependencies": {name: installed_version(name) for name in needed},
        "extras": {
            extra: {
                "packages": {name: installed_version(name) for name in names},
                "install": install_command(extra),
            }
            for extra, names in optional.items()
        },
    }


def hot_modules() -> list[str]:
    """The compiled modules of this build; in an uncompiled clone, those it would compile."""
    manifest = read_manifest()
    if manifest is not None:
        return sorted(manifest.modules)
    table = project_table()
    return [] if table is None else sorted(table["tool"]["windtunnel"]["compiled"])


def loaded_form(name: str) -> str:
    """Imports a module and returns the form that was loaded."""
    spec = importlib.import_module(name).__spec__
    assert spec is not None
    return "interpreted" if isinstance(spec.loader, SourceFileLoader) else "compiled"


def installed_version(name: str) -> str | None:
    """The version of an installed package; None if it is absent."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Names of required packages, and of optional ones by extra.

    In a clone, pyproject.toml is read: the installed metadata may predate an extra.
    """
    declared: list[tuple[str, str | None]] = []
    table = project_table()
    if table is not None:
        project = table["project"]
        declared += [(line, None) for line in project["dependencies"]]
        for extra, lines in project["optional-dependencies"].items():
            declared += [(line, extra) for line in lines]
    else:
        declared += [_split(line) for line in requires("windtunnel") or []]
    needed: list[str] = []
    optional: dict[str, list[str]] = {}
    for requirement, extra in declared:
        name = NAME.split(requirement, maxsplit=1)[0]
        if extra is None:
            needed.append(name)
        elif name != "windtunnel":
            optional.setdefault(extra, []).append(name)
    return sorted(needed), {extra: sorted(names) for extra, names in sorted(optional.items())}


def _split(line: str) -> tuple[str, str | None]:
    """A requirement of an installed package, and the extra that it belongs to."""
    requirement, _, marker = line.partition(";")
    extra = marker.partition("extra ==")[2].strip(" \"'")
    return requirement, extra or None


def describe(findings: dict[str, Any], width: int = WIDEST) -> str:
    """The findings as text, in lines no wider than the screen."""
    lines = [
        f"windtunnel {findings['windtunnel']}, {findings['form']}, in {findings['installed_in']}",
        f"{findings['implementation']} {findings['python']} on {findings['platform']}",
        "",
        *_hot(findings["modules"], width),
        "",
        "Dependencies:",
    ]
    lines += _columns(
        {name: found or "missing" for name, found in findings["dependencies"].items()}
    )
    for extra, entry in findings["extras"].items():
        if extra not in TOOLS:
            lines += _wrapped(_extra(extra, entry), width)
    tools = [
        (name, found)
        for extra, entry in findings["extras"].items()
        if extra in TOOLS
        for name, found in entry["packages"].items()
    ]
    if tools:
        present = sum(found is not None for _, found in tools)
        line = f"Tools for work on windtunnel itself: {present} of {len(tools)} present"
        lines += _wrapped(line + (" (make setup)" if present < len(tools) else ""), width)
    return "\n".join(lines)


def _hot(forms: dict[str, str], width: int) -> list[str]:
    kinds = set(forms.values())
    if not kinds:
        none = "Hot modules: none is compiled; this install was built without a C compiler"
        return _wrapped(none, width)
    if len(kinds) > 1:
        return ["Hot modules:", *_columns(forms)]
    (kind,) = kinds
    hint = " (`make compile` makes them faster)" if kind == "interpreted" else ""
    return _wrapped(f"Hot modules: all {len(forms)} are {kind}{hint}", width)


def _extra(extra: str, entry: dict[str, Any]) -> str:
    missing = [name for name, found in entry["packages"].items() if found is None]
    state = "present" if not missing else f"absent: {', '.join(missing)} ({entry['install']})"
    return f"Extra {extra}: {state}"


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _columns(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in rows.items()]
