"""The system's limit on open files, and signals that stop a program."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("resource")

SCRIPT = """
import resource
from windtunnel.live.system import connections_allowed
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1024))
print([connections_allowed(wanted) for wanted in (10, 500, 5000)])
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_limit_is_raised_as_far_as_it_goes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "[10, 500, 960]\n(1024, 1024)\n"


TWICE = """
import os, signal, sys, weakref
from windtunnel.live import system

class Thing:
    pass

def again(*_):
    # A handler of signals that raises here would be printed, and go no further.
    os.kill(os.getpid(), signal.SIGTERM)

async def work(stop):
    thing = Thing()
    kept = weakref.ref(thing, again)
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    del thing
    await system.asyncio.sleep(30)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if sys.argv[1] == "asyncio":
    system.new_loop = system.asyncio.new_event_loop
system.run_until_stopped(work)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_second_signal_ends_a_program_at_once_and_silently(loop: str) -> None:
    command = [sys.executable, "-c", TWICE, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
