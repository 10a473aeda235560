"""Operating-system support for live commands: event loop, stop signals, open-file limit."""

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

SPARE = 64
"""Open files allowed for besides the connections."""


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


COLLECT_AFTER = 20_000
"""Allocations before the garbage collector looks for cycles; Python's default is 700."""


def settle_memory() -> None:
    """Exempts all existing objects from garbage collection, for a program that has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raises the first error of an exception group on its own."""
    try:
        yield
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group


Handlers = dict[signal.Signals, Any]


@contextmanager
def stop_signals(on_signal: Callable[[signal.Signals], None]) -> Iterator[Handlers]:
    """Calls `on_signal` in the event loop on Ctrl-C and SIGTERM; yields the handlers before, which
    come back at the end. Outside the main thread, which alone gets signals, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield before
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def run_until_stopped(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Runs `work`; Ctrl-C or SIGTERM sets its event, and a second signal ends it at once."""

    async def main() -> None:
        stop = asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            if not stop.is_set():
                stop.set()
                return
            # Here and not in a signal handler: that may be called while an object is
            # deleted, where exceptions are printed but not propagated.
            loop = asyncio.get_running_loop()
            for other in before:
                loop.remove_signal_handler(other)
            handler = before[number]
            if callable(handler):
                handler(number, None)

        try:
            with stop_signals(on_signal) as before:
                await work(stop)
        finally:
            if stop.is_set():
                for number in before:
                    signal.signal(number, signal.SIG_DFL)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def connections_allowed(wanted: int) -> int:
    """Raises the open-file limit if necessary and possible; returns the connections allowed."""
    try:
        import resource
    except ImportError:
        return wanted  # a system without this limit
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
