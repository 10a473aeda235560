"""Runs the checks of changed policies: one at a time, in a process with its own limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from windtunnel.core.clock import unix_s
from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration, format_size
from windtunnel.scaling.kubernetes.canary import (
    JSON_FILE,
    MARKDOWN_FILE,
    CanaryAsk,
    CanaryOutcome,
    check_arguments,
    outcome_of_check,
    sides_of_check,
)

COMPLETED: Final = (0, 1, 4)
"""Exit statuses of a check that wrote its results: passed, regression, undecided."""
LARGEST_RESULT: Final = 32 << 20
LARGEST_REPORT: Final = 256 << 10
LONGEST_ERROR: Final = 2000
"""Bytes of a check's standard error that are kept, from its end."""

BEGIN: Final = """\
import json, os, resource, sys
sys.path[:] = json.loads(sys.argv[1])
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
os.nice(10)
from windtunnel.cli.main import main
main(sys.argv[3:])
"""


class CanaryOptions(NamedTuple):
    """Limits and inputs of the checks of changed policies."""

    folder: Path
    """The folder of scenarios and traces."""
    memory_bytes: int = 768 << 20
    timeout_s: float = 600.0


def canary_options(
    folder: Path | None, memory_bytes: float, timeout_s: float, *, autoscale: bool
) -> CanaryOptions | None:
    """The options of a command, checked."""
    if folder is None:
        return None
    if not autoscale:
        raise InputError("without --autoscale there are no policies to check", where="--canary")
    if not folder.is_dir():
        what = f"{folder} is not a folder"
        raise InputError(what, where="--canary", hint="it has scenarios and a gateway's trace")
    return CanaryOptions(folder, int(memory_bytes), timeout_s)


class CanaryChecks:
    """The checks of one operator."""

    def __init__(self, options: CanaryOptions | None) -> None:
        self._options: Final = options
        self._one: Final = asyncio.Semaphore(1)

    async def check(self, ask: CanaryAsk) -> CanaryOutcome:
        """Runs a check once the earlier ones are done; a cancelled one is killed."""
        options = self._options
        if options is None:
            return CanaryOutcome(None, "the operator has no --canary folder with recorded traffic.")
        async with self._one:
            # A file system that hangs must not delay decisions.
            why_not = await asyncio.to_thread(_why_not, ask, options.folder)
            if why_not:
                return CanaryOutcome(None, why_not)
            with tempfile.TemporaryDirectory(prefix="windtunnel-canary-") as work:
                return await _checked(ask, options, Path(work))


def _why_not(ask: CanaryAsk, folder: Path) -> str:
    """Why nothing can be checked, such as traffic that is too old; empty if it can."""
    place = folder / ask.canary.trace
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    try:
        written_s = max((one.stat().st_mtime for one in files), default=0.0)
    except OSError as error:
        return f"canary.trace {ask.canary.trace}: {error.strerror}."
    if not written_s:
        return f"canary.trace {ask.canary.trace}: there is no traffic in it."
    age_s = unix_s() - written_s
    if age_s > ask.canary.last:
        age, last = (format_duration(round(one_s)) for one_s in (age_s, ask.canary.last))
        return f"canary.trace {ask.canary.trace}: its latest traffic is {age} old, beyond {last}."
    return ""


async def _checked(ask: CanaryAsk, options: CanaryOptions, work: Path) -> CanaryOutcome:
    for name, text in sides_of_check(ask).items():
        (work / name).write_bytes(text)
    path = json.dumps([str(one) for one in sys.path])
    arguments = check_arguments(ask, options.folder.absolute(), work)
    environment = {**os.environ, "TMPDIR": str(work), "OPENBLAS_NUM_THREADS": "1"}
    said = work / "stderr"
    with said.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BEGIN, path, str(options.memory_bytes), *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=errors,
            cwd=work, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        async with asyncio.timeout(options.timeout_s):
            await process.wait()
    except TimeoutError:
        took = format_duration(options.timeout_s)
        return CanaryOutcome(None, f"the check took longer than {took} (--canary-timeout).")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return await asyncio.to_thread(_outcome, process.returncode, options, work, said)


def _outcome(status: int | None, options: CanaryOptions, work: Path, said: Path) -> CanaryOutcome:
    """The outcome, from the check's files: Python failures exit with 1 too, like a regression."""
    result = work / JSON_FILE
    if status in COMPLETED and result.is_file() and result.stat().st_size <= LARGEST_RESULT:
        report = (work / MARKDOWN_FILE).read_bytes()[:LARGEST_REPORT].decode("utf-8", "ignore")
        return outcome_of_check(msgspec.json.decode(result.read_bytes()), report)
    text = said.read_bytes()[-LONGEST_ERROR:].decode("utf-8", "replace").strip()
    short = any(
        words in text for words in ("MemoryError", "not enough memory", "Memory allocation")
    )
    if short:
        most = format_size(options.memory_bytes)
        return CanaryOutcome(None, f"the check ran out of its {most} (--canary-memory).")
    if status is not None and status < 0:  # by the kernel, for example, if a container has less
        return CanaryOutcome(None, f"the check was killed by signal {-status}.")
    return CanaryOutcome(None, f"the check failed: {text or f'exit status {status}'}")
