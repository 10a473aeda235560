"""The start of the `windtunnel` program: Ctrl-C while it imports ends it at once, without a word.

A KeyboardInterrupt amid imports would be a traceback, or whatever a library makes of it. Nothing is
under way then that would have to be put in order.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes milliseconds to import
import os
import sys

EXIT_INTERRUPTED = 130


def is_program() -> bool:
    """Whether this process is the `windtunnel` program, and no other that imports the package."""
    if sys.argv[:1] == ["-m"]:  # so while Python looks for the module that it was told to run
        return sys.orig_argv[-len(sys.argv)] == "windtunnel"
    return os.path.basename("".join(sys.argv[:1])) in ("windtunnel", "windtunnel.exe")


IS_PROGRAM = is_program()
"""As it was when the package was first imported; Python changes the arguments later."""


def leave_silently() -> None:
    """Lets Ctrl-C end the process; one that is ignored, as in the background, stays so."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def listen() -> None:
    """Lets Ctrl-C be a KeyboardInterrupt again."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(EXIT_INTERRUPTED)
