"""Calls a function for many tasks in worker processes; a dead worker is reported, the rest go on.

A worker is a fresh Python that imports the function: a script needs no guard around its main part,
and the worker shares no state with this process. Tasks and answers go through its pipes. A worker
whose parent is gone reads end-of-file and exits.

Answers arrive as they become ready: callers put them in order.
"""

import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Generic, NamedTuple, Self, TypeVar

from windtunnel._forms import form
from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import WindtunnelError

Task = TypeVar("Task")
Value = TypeVar("Value")

MOST_AHEAD = 8
"""The most tasks assigned to a worker at a time, so that short tasks do not wait for the parent."""
SHORT_S = 0.02
"""A worker is assigned about as many tasks at once as it completes in this time."""

MOST_FAILED_STARTS = 10
"""How many workers in a row may end before they are ready, once a worker has been ready."""

BEGIN = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from windtunnel.core.system.processes import serve
serve()
"""


class Returned(NamedTuple, Generic[Value]):
    """The value that the function returned for a task."""

    value: Value


class Raised(NamedTuple):
    """The exception that the function raised."""

    error: Exception


class Died(NamedTuple):
    """The worker ended before its task did: its exit status, or the negative signal number."""

    status: int


Answer = Returned[Value] | Raised | Died


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A worker process and its tasks with their numbers, the current one first."""

    def __init__(self, call: Callable[[Any], Any], told: "queue.SimpleQueue[Any]") -> None:
        path = json.dumps([str(folder) for folder in sys.path])
        self.process = subprocess.Popen(  # noqa: S603 - this Python, with a script of ours
            [sys.executable, "-c", BEGIN, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "WINDTUNNEL_FORM": form()},  # as here
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._inbox: BinaryIO = self.process.stdin  # type: ignore[assignment]  # buffered bytes
        self.tasks: deque[tuple[int, Any]] = deque()
        self.ready = False
        self.ahead = 1
        self._thread = threading.Thread(
            target=_listen, args=(self, self.process.stdout, told), daemon=True
        )
        self._thread.start()
        self._send(call)

    def give(self, number: int, task: Any) -> None:
        self.tasks.append((number, task))
        self._send((number, task))

    def _send(self, message: object) -> None:
        with suppress(BrokenPipeError):  # it has died, which its reader reports
            pickle.dump(message, self._inbox)
            self._inbox.flush()

    def end(self) -> int:
        """Kills the process, whatever it is doing, and returns its exit status."""
        self.process.kill()
        status = self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return status


def _listen(worker: _Worker, outbox: Any, told: "queue.SimpleQueue[Any]") -> None:
    """Passes on a worker's messages, then None when its pipe ends."""
    try:
        while True:
            told.put((worker, pickle.load(outbox)))  # noqa: S301 - from a process of our own
    except (EOFError, pickle.UnpicklingError, OSError, ValueError):
        told.put((worker, None))


class Processes(Generic[Task, Value]):
    """Workers that call one function; they start when there are tasks."""

    def __init__(self, call: Callable[[Task], Value], count: int) -> None:
        """`call` must be importable: a function of a module, or a partial of one."""
        assert count >= 1
        self._call = call
        self._count = count
        self._workers: list[_Worker] = []
        self._were_ready = False  # whether a worker ever was ready
        self._failed_starts = 0  # since a worker was ready
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.pop().end()

    def map(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Answer[Value]]]:
        """Yields the answers, each with the number of its task, as they arrive."""
        waiting = _Waiting(tasks)
        try:
            while self._hand_out(waiting):
                worker, message = self._told.get()
                if worker not in self._workers:
                    continue  # it was ended with a task whose answer is no longer wanted
                if message is None:
                    yield from self._bury(worker, waiting)
                elif worker.ready:
                    number, answer, seconds = message
                    worker.tasks.popleft()
                    worker.ahead = 1 + min(int(SHORT_S / max(seconds, 1e-6)), MOST_AHEAD - 1)
                    self._hand_out(waiting)  # before the caller's own work
                    yield number, answer
                else:
                    worker.ready = self._were_ready = True
                    self._failed_starts = 0
        finally:
            for worker in [worker for worker in self._workers if worker.tasks]:
                self._workers.remove(worker)
                worker.end()

    def _hand_out(self, waiting: "_Waiting") -> bool:
        """Assigns tasks to workers, starting missing ones; returns whether any has a task."""
        for depth in range(1, MOST_AHEAD + 1):
            for worker in self._workers:
                if len(worker.tasks) < min(depth, worker.ahead) and waiting:
                    worker.give(*waiting.take())
            while depth == 1 and waiting and len(self._workers) < self._count:
                worker = _Worker(self._call, self._told)
                self._workers.append(worker)
                worker.give(*waiting.take())
        return any(worker.tasks for worker in self._workers)

    def _bury(self, worker: _Worker, waiting: "_Waiting") -> Iterator[tuple[int, Died]]:
        """Removes a dead worker and reports the task it was working on; its other tasks are
        requeued."""
        self._workers.remove(worker)
        status = worker.end()
        if not worker.ready and self._were_ready and self._failed_starts < MOST_FAILED_STARTS:
            self._failed_starts += 1  # the system may be short of resources for a while
            waiting.put_back(worker.tasks)
            return
        if not worker.ready:
            what = f"a worker process could not start (exit status {status})"
            raise WindtunnelError(what, hint="with one worker, everything runs in this process")
        if worker.tasks:
            number, _ = worker.tasks.popleft()
            waiting.put_back(worker.tasks)
            yield number, Died(status)


class _Waiting:
    """Unassigned tasks, each with its number; truthy while any are left."""

    def __init__(self, tasks: Iterable[Any]) -> None:
        self._tasks = enumerate(tasks)
        self._next: deque[tuple[int, Any]] = deque()

    def __bool__(self) -> bool:
        if not self._next:
            self._next.extend([task for task in [next(self._tasks, None)] if task is not None])
        return bool(self._next)

    def take(self) -> tuple[int, Any]:
        return self._next.popleft()

    def put_back(self, tasks: Iterable[tuple[int, Any]]) -> None:
        self._next.extendleft(reversed(list(tasks)))


def serve() -> None:
    """The main loop of a worker: receives the function, then tasks, until its input ends."""
    # Ctrl-C reaches every process of a terminal; the parent handles it and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox = sys.stdin.buffer
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with the answers
    try:
        call = pickle.load(inbox)  # noqa: S301 - from the process that started this one
        _say(outbox, "ready")
        while True:
            number, task = pickle.load(inbox)  # noqa: S301 - as above
            started_s = monotonic_s()
            answer = _answer(call, task)
            _say(outbox, (number, answer, monotonic_s() - started_s))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone, so an error would have no reader


def _say(outbox: BinaryIO, message: object) -> None:
    outbox.write(pickle.dumps(message))
    outbox.flush()


def _answer(call: Callable[[Any], Any], task: Any) -> Returned[Any] | Raised:
    try:
        answer: Returned[Any] | Raised = Returned(call(task))
    except Exception as error:  # noqa: BLE001 - it is raised in the parent
        error.add_note(f"in a worker process:\n{traceback.format_exc().rstrip()}")
        answer = Raised(_passable(error))
    return answer


def _passable(error: Exception) -> Exception:
    """The error itself if it can be pickled; otherwise an error with its message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever a user's class does
        return WindtunnelError(f"{type(error).__name__}: {error}")
    return error
