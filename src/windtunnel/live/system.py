"""What live commands need of the system: a fast event loop, and enough open files."""

import asyncio

SPARE = 64
"""Files that are open beside the connections."""


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where that is installed, else the one of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def connections_allowed(wanted: int) -> int:
    """Raises the system's limit if it must and can; how many connections there may be."""
    try:
        import resource
    except ImportError:
        return wanted  # a system that has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):
        raised = soft
    return min(wanted, raised - SPARE)
