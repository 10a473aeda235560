"""The entry point of the `windtunnel` program."""

import gc
import os
import sys
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
    from windtunnel.cli import main

    main.program()


def _without_plugins() -> None:
    """Keeps pydantic from looking for plugins, which nothing here uses.

    It would read the metadata of every installed package. Told not to, by the variable, it still
    imports what reads them, and all of `email` with it; so the module that looks is replaced, until
    some version of pydantic asks it for more.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__":
        nothing = ModuleType("pydantic.plugin._loader")

        def from_pydantic(name: str) -> object:
            if name.startswith("__"):  # the import system looks for these
                raise AttributeError(name)
            del sys.modules[nothing.__name__]
            return getattr(import_module(nothing.__name__), name)

        nothing.__dict__.update(get_plugins=tuple, __getattr__=from_pydantic)
        sys.modules.setdefault(nothing.__name__, nothing)
