"""The entry point of the `windtunnel` program."""

import gc
import os

from windtunnel import _start

COLLECT_AFTER = 500_000
"""New objects between garbage collections: imports create many objects and little garbage."""


def program() -> None:
    """Runs the command line; Ctrl-C exits silently until the command is imported."""
    _start.leave_silently()
    gc.set_threshold(COLLECT_AFTER)
    # To look for plugins of pydantic, which nothing here uses, it reads every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from windtunnel.cli import main

    main.program()
