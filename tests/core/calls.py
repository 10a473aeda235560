"""What worker processes are asked to do in tests; they import it."""

import os
import signal
import sys

from windtunnel.core.errors import InputError


class Odd(Exception):
    """No other process can have it."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)
        self.why = why


def act(word: str) -> int:
    """The square of a number, or whatever goes wrong."""
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "exit":
        os._exit(7)
    elif word == "wait":
        signal.pause()
    elif word == "raise":
        raise InputError("too blue", where="here", hint="try green")
    elif word == "odd":
        raise Odd("seven", "of nine")
    elif word == "print":
        sys.stdout.write("among the answers\n")
        sys.stdout.flush()
        return 0
    return int(word) ** 2
