"""Limits the time and memory of a task in its worker, and runs scenarios that end processes.

A run that takes too much CPU time is interrupted, which is a finding. Compiled code does not react
to the signal: the system then ends the process, and the scenario is run again with a process of its
own for each run, so that it can be shrunk.
"""

import gc
import itertools
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from windtunnel.fuzz.trial import DIED, Breach, TookTooLong, attempt
from windtunnel.settings.drawing import Values

LONGEST_TRIAL_S = 60.0
"""Limit on the CPU seconds of one run; drawn scenarios take less than one."""
KILLED_AFTER = 2.0
"""Multiple of that CPU time after which the system ends a process that did not react."""
HUNG_AFTER = 20.0
"""Multiple of that time on the clock after which the system ends a process that hangs."""
MOST_MEMORY = 4 << 30
"""Bytes that a worker may add to its address space; beyond that, a run gets a MemoryError."""
COLLECT_EVERY = 64
"""Runs between garbage collections of a worker. Python's automatic collection would scan the live
objects of a run and everything imported, and take a tenth of the time."""

CAN_FORK = hasattr(os, "fork")

_runs = itertools.count(1)


def bound_memory() -> None:
    """Limits this process to `MOST_MEMORY` more memory; an existing limit is kept.

    It also disables automatic garbage collection, which `collect_cycles` replaces.
    """
    gc.disable()
    with suppress(ImportError, ValueError, OSError):
        import resource

        import numpy as np  # noqa: F401 - it reserves much for each processor when it is imported

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            return
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


@contextmanager
def bounded_time(limit_s: float = LONGEST_TRIAL_S) -> Iterator[None]:
    """Limits CPU time: raises `TookTooLong`, or ends the process if it does not react."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    handler = signal.signal(signal.SIGPROF, _too_long)
    before = signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_VIRTUAL, KILLED_AFTER * limit_s)
    signal.setitimer(signal.ITIMER_REAL, HUNG_AFTER * limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.setitimer(signal.ITIMER_PROF, *before)
        signal.signal(signal.SIGPROF, handler)


def _too_long(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals have it
    raise TookTooLong


def collect_cycles() -> None:
    """Collects garbage between runs, and exempts the surviving objects from later collections."""
    if next(_runs) % COLLECT_EVERY == 0:
        gc.collect()
        gc.freeze()


def attempt_in_time(
    document: Values, *, twice: bool = False, as_text: bool = True
) -> Breach | None:
    """Runs a scenario within the time limit."""
    with bounded_time():
        return attempt(document, twice=twice, as_text=as_text)


def attempt_apart(document: Values, *, twice: bool = False) -> Breach | None:
    """Runs a scenario in a process of its own; the death of that process is a finding."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.close(reader)
            os.write(writer, pickle.dumps(attempt_in_time(document, twice=twice)))
            os._exit(0)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said:
        found: Breach | None = pickle.loads(said)  # noqa: S301 - from a process of our own
        return found
    return death(os.waitstatus_to_exitcode(status))


def death(status: int) -> Breach:
    """The breach of a process that died during a run: an exit status, or minus a signal."""
    why = f"status {status}" if status >= 0 else f"signal {-status}"
    if status < 0:
        with suppress(ValueError):
            why = signal.Signals(-status).name
    if sys.platform != "win32" and status == -signal.SIGVTALRM:
        why = f"a run took {KILLED_AFTER * LONGEST_TRIAL_S:g} s of CPU time, and was ended"
    if sys.platform != "win32" and status == -signal.SIGALRM:
        why = f"a run took {HUNG_AFTER * LONGEST_TRIAL_S:g} s, most of them waiting, and was ended"
    return Breach(DIED, why, f"the process died: {why}")
