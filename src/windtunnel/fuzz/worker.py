"""Bounds what one task may take of its worker process, and runs scenarios that end processes.

A run that takes too much CPU time is interrupted, and is a finding like others. Compiled code hears
no signal: the system then ends the process, and the scenario is looked at again in processes of
its own, one for each run, where it can be made small.
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
"""CPU time of one run; drawn scenarios take less than one."""
KILLED_AFTER = 2.0
"""Times as long: then the system ends a process that did not hear."""
HUNG_AFTER = 20.0
"""Times as long on the clock: then the system ends a process that waits, and uses no CPU time."""
MOST_MEMORY = 4 << 30
"""Bytes that a worker may add to its address space: a run that wants more gets a MemoryError."""
COLLECT_EVERY = 64
"""Runs after which a worker looks for cycles. Python would look while objects of a run are alive,
and among all that is imported: a tenth of the time."""

CAN_FORK = hasattr(os, "fork")

_runs = itertools.count(1)


def bound_memory() -> None:
    """From now on this process gets no more than `MOST_MEMORY`; one that is bounded stays so.

    Only `collect_cycles` looks for cycles in it.
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
    """So much CPU time, or `TookTooLong`; where nothing hears that, the process ends."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    heard = signal.signal(signal.SIGPROF, _too_long)
    before = signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_VIRTUAL, KILLED_AFTER * limit_s)
    signal.setitimer(signal.ITIMER_REAL, HUNG_AFTER * limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.setitimer(signal.ITIMER_PROF, *before)
        signal.signal(signal.SIGPROF, heard)


def _too_long(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals have it
    raise TookTooLong


def collect_cycles() -> None:
    """Called between runs: frees what they left, and never looks again at what is left then."""
    if next(_runs) % COLLECT_EVERY == 0:
        gc.collect()
        gc.freeze()


def attempt_in_time(
    document: Values, *, twice: bool = False, as_text: bool = True
) -> Breach | None:
    """Runs a scenario within its time."""
    with bounded_time():
        return attempt(document, twice=twice, as_text=as_text)


def attempt_apart(document: Values, *, twice: bool = False) -> Breach | None:
    """Runs a scenario in a process of its own, whose end is a finding."""
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
    """A process ended in the middle of a run: an exit status, or a signal below 0."""
    why = f"status {status}" if status >= 0 else f"signal {-status}"
    if status < 0:
        with suppress(ValueError):
            why = signal.Signals(-status).name
    if sys.platform != "win32" and status == -signal.SIGVTALRM:
        why = f"a run took {KILLED_AFTER * LONGEST_TRIAL_S:g} s of CPU time, and was ended"
    if sys.platform != "win32" and status == -signal.SIGALRM:
        why = f"a run took {HUNG_AFTER * LONGEST_TRIAL_S:g} s, most of them waiting, and was ended"
    return Breach(DIED, why, f"the process died: {why}")
