"""The start of the `windtunnel` program: Ctrl-C during imports ends it at once, silently.

Otherwise a KeyboardInterrupt amid imports would end in a traceback, or in whatever a library makes
of it. At that point there is nothing to clean up.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes milliseconds to import
import os
import sys

EXIT_INTERRUPTED = 130


def is_program() -> bool:
    """Whether this process is the `windtunnel` program, not one that imports the package."""
    if sys.argv[:1] == ["-m"]:  # so while Python looks for the module that it was told to run
        return sys.orig_argv[-len(sys.argv)] == "windtunnel"
    return os.path.basename("".join(sys.argv[:1])) in ("windtunnel", "windtunnel.exe")


IS_PROGRAM = is_program()
"""Determined at the first import of the package; Python changes the arguments later."""


def leave_silently() -> None:
    """Makes Ctrl-C end the process; if it is ignored, as in the background, it stays so."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def listen() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt again."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(EXIT_INTERRUPTED)
