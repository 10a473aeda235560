"""What repeats are run for in tests; worker processes import it."""

import os
import signal
from typing import Any

from windtunnel.core.errors import InputError, InvariantBroken, one_sentence_per


def whole(result: dict[str, Any]) -> dict[str, Any]:
    return result


def refuse(result: dict[str, Any]) -> None:
    raise InputError("it is too blue", where=result["name"], allowed="green", hint="try green")


def refuse_twice(result: dict[str, Any]) -> None:
    raise one_sentence_per([InputError("too blue", where="a"), InputError("too red", where="b")])


def break_down(result: dict[str, Any]) -> None:
    raise InvariantBroken("two is three", where=result["name"])


def die(result: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
