"""The `windtunnel` program, from its first line on."""

import gc
import os

from windtunnel import _start

COLLECT_AFTER = 500_000
"""New objects between two looks for garbage: an import makes many, and little garbage."""


def program() -> None:
    """Runs the command line; Ctrl-C is silent until its command is imported."""
    _start.leave_silently()
    gc.set_threshold(COLLECT_AFTER)
    # To look for plugins of pydantic, which nothing here uses, it reads every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from windtunnel.cli import main

    main.program()
