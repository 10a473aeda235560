"""What every test shares: a time limit, how hard hypothesis tries, the form under test."""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import engine

import windtunnel

settings.register_profile("quick", max_examples=20, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
engine.MAX_SHRINKING_SECONDS = 20  # so that what failed is shown before the test's time is up
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Whatever a test starts runs in the form that is under test.
os.environ["WINDTUNNEL_FORM"] = windtunnel.FORM

CPU_LIMIT_S = 60
"""Of one test. A test that needs longer does not end, or belongs into benchmarks/."""
KILL_AFTER_S = 90
"""Compiled code that spins hears no signal: the kernel ends its process; xdist names the test."""
WALL_LIMIT_S = 900


class OutOfTime(BaseException):
    """No `Exception`, so that hypothesis does not try to shrink a test that never ends."""


def _out_of_time(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime(f"the test took more than {CPU_LIMIT_S} s of CPU or {WALL_LIMIT_S} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Ends a test that does not end by itself."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + KILL_AFTER_S
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, _out_of_time)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_report_header() -> str:
    return f"windtunnel: {windtunnel.FORM} form"


HERE = Path(__file__).parent
FORMLESS = [
    HERE / folder
    for folder in (
        "analysis",
        "cli",
        "live",
        "report",
        "scaling/manifests",
        "search",
        "twin/scenario",
    )
]
"""Drivers and files around the compiled modules, which have tests of their own: once is enough."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in FORMLESS):
            item.add_marker(pytest.mark.once)
