"""The entry point of the `windtunnel` program."""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from windtunnel import _start

COLLECT_AFTER = 500_000
"""New objects between garbage collections: imports create many objects and little garbage."""


def program() -> None:
    """Runs the command line; Ctrl-C exits silently until the command is imported."""
    _start.leave_silently()
    gc.set_threshold(COLLECT_AFTER)
    _without_plugins()
    for documentation in ("_add_newdocs", "_add_newdocs_scalars"):
        stand_in(f"numpy._core.{documentation}")  # its functions get their texts for `help`
    from windtunnel.cli import main

    main.program()


def _without_plugins() -> None:
    """Keeps pydantic from looking for plugins, which nothing here uses.

    It would read the metadata of every installed package. Told not to, by the variable, it still
    imports what reads them, and all of `email` with it; so the module that looks is replaced.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__":
        stand_in("pydantic.plugin._loader", get_plugins=tuple)


def stand_in(module: str, **names: Callable[..., object]) -> None:
    """Puts these names in the place of a module, until some version of a library asks for more."""
    instead = ModuleType(module)

    def from_library(name: str) -> object:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(name)
        if sys.modules.get(module) is instead:
            del sys.modules[module]
        return getattr(import_module(module), name)

    instead.__dict__.update(names, __getattr__=from_library)
    sys.modules.setdefault(module, instead)
