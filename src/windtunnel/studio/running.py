"""Runs in progress: each is a process, watched by any number of pages."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.studio.worker import RunRequest

MOST_AT_ONCE = 2
MOST_REMEMBERED = 20
MOST_LINE_BYTES = 8 << 20
FAILED, STOPPED, DONE, AT = "failed", "stopped", "done", "at"


class StudioRun:
    """One run: all lines that it has written so far, and a way to wait for more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self.process: asyncio.subprocess.Process | None = None
        self.is_stopped = False
        self._more = asyncio.Condition()

    @property
    def has_ended(self) -> bool:
        return bool(self.lines) and AT not in self.lines[-1]

    async def say(self, line: dict[str, Any]) -> None:
        async with self._more:
            self.lines.append(line)
            self._more.notify_all()

    async def watch(self) -> AsyncIterator[dict[str, Any]]:
        """Yields all lines so far, then new ones, until the last."""
        place = 0
        while True:
            async with self._more:
                while len(self.lines) <= place:
                    await self._more.wait()
                fresh = self.lines[place:]
            place += len(fresh)
            for line in fresh:
                yield line
            if self.has_ended and place == len(self.lines):
                return


class LiveRuns:
    """Starts and stops runs, and remembers the latest of those that have ended."""

    def __init__(self) -> None:
        self._runs: dict[str, StudioRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def named(self, name: str) -> StudioRun:
        if name not in self._runs:
            raise InputError(f"no run {name[:80]!r} was started here")
        return self._runs[name]

    async def start(self, text: str, file: Path, folder: Path) -> StudioRun:
        if sum(not run.has_ended for run in self._runs.values()) >= MOST_AT_ONCE:
            what = f"{MOST_AT_ONCE} runs are under way"
            raise InputError(what, hint="wait for one to end, or stop one")
        ended = [name for name, run in self._runs.items() if run.has_ended]
        for name in ended[:-MOST_REMEMBERED]:
            del self._runs[name]
        run = self._runs[folder.name] = StudioRun(folder.name)
        request = msgspec.json.encode(RunRequest(text, str(file), str(folder)))
        task = asyncio.create_task(self._follow(run, request, folder))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def _follow(self, run: StudioRun, request: bytes, folder: Path) -> None:
        """Follows a run's process to its end; any error ends the run."""
        try:
            status = await self._read(run, request)
            failed = f"the process of the run ended with status {status}"
        except (OSError, ValueError, msgspec.DecodeError) as error:
            failed = f"the process of the run cannot be followed: {error}"
            if run.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    run.process.kill()
                await run.process.wait()
        if not run.has_ended:
            if run.is_stopped:
                failed = "the run was stopped before it had begun; nothing is kept"
            await run.say({FAILED: failed, STOPPED: run.is_stopped})
        if FAILED in run.lines[-1]:
            with contextlib.suppress(OSError):
                folder.rmdir()  # it was made for this run

    async def _read(self, run: StudioRun, request: bytes) -> int:
        """Reads the lines of a run's process; returns its exit status."""
        run.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "windtunnel.studio.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=MOST_LINE_BYTES,
        )
        assert run.process.stdin is not None
        assert run.process.stdout is not None
        with contextlib.suppress(ConnectionError):
            run.process.stdin.write(request)
            await run.process.stdin.drain()
        run.process.stdin.close()
        async for line in run.process.stdout:
            await run.say(msgspec.json.decode(line))
        return await run.process.wait()

    def stop(self, name: str) -> None:
        """Asks a run to end early, once; its results so far are kept."""
        run = self.named(name)
        if run.process is not None and run.process.returncode is None and not run.is_stopped:
            run.is_stopped = True
            run.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kills all runs in progress."""
        for run in self._runs.values():
            if run.process is not None and run.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    run.process.kill()
