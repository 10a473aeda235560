"""The `windtunnel` command: finds the named command, and turns errors into sentences.

Commands are imported when they run. Their names and one-line help texts are in the table below, so
that `windtunnel --help` imports none of them.
"""

import atexit
import importlib
import io
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

import windtunnel
from windtunnel import _start
from windtunnel._forms import FormRefused
from windtunnel._start import EXIT_INTERRUPTED

NO_MEMORY = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "failed to launch worker thread",
)
"""Messages of the system and of libraries when memory is short, in exceptions of many types."""

NOT_A_NUMBER = re.compile(r"is not a valid (integer|float)(?: range)?\b")
"""Click's message about a value that is not a number."""

EXIT_USAGE = 2
EXIT_EARLY = 3
EXIT_TERMINATED = 143


SECTIONS = {
    "Simulation": {
        "simulate": "Run a scenario and show what happened.",
        "compare": "Compare designs on the same traffic, with confidence intervals.",
        "check": "Try a changed configuration on recorded traffic before it is applied.",
        "sweep": "Run a scenario at many settings, and show which are best.",
        "sensitivity": "Rank the settings that a figure depends on.",
        "plan": "Find the cheapest deployment that attains an SLO, or the load that one can carry.",
        "capacity": "Show how a GPU's memory is divided, and how many tokens of KV it holds.",
        "report": "Regenerate the report of a run.",
        "explain": "Explain a slow request or a scaling decision.",
        "studio": "Edit scenarios, watch runs and compare them in a browser.",
        "trace": "Describe, convert and fit traces of requests.",
    },
    "Live": {
        "batch": "Send a file of prompts to OpenAI-compatible servers.",
        "gateway": "Put admission and routing in front of OpenAI-compatible servers.",
        "operate": "Run gangs, placement, autoscaling and machines on Kubernetes.",
        "rehearse": "Run a scenario on a real API server, and compare with its simulation.",
        "audit": "Replay an event log and check every decision in it.",
        "incident": "Extract a time range of a gateway's log and trace, as a folder that replays.",
        "shadow": "Forecast the next minutes of a running gateway, with a twin.",
        "emulate": "Serve OpenAI's interface with the timing of a simulated server.",
        "observe": "Send a scenario's traffic to a real server, and measure it.",
    },
    "Controllers": {
        "gangs": "Check and explain gang manifests, and show how their pods are placed.",
        "fleet": "Measure the decision cycle of the fleet controller.",
        "fuzz": "Run random scenarios and check every invariant.",
    },
    "Set-up and measurement": {
        "calibrate": "Fit the step-time model to measurements, or check it against them.",
        "profile": "Measure the step times of this machine's GPU.",
        "schema": "Print the JSON Schema of scenario files.",
        "doctor": "Show which packages are installed, and which modules run compiled.",
    },
}
"""One-line help by command; a command is the function of its name in the module of its name."""
COMMANDS = {name: says for section in SECTIONS.values() for name, says in section.items()}
PACKAGES = {"Simulation": "simulation.", "Live": "live.", "Controllers": "controllers."}
MODULES = {
    name: f"windtunnel.cli.{PACKAGES.get(title, '')}{name}"
    for title, section in SECTIONS.items()
    for name in section
}


class LazyGroup(click.Group):
    """A group that lists its commands by name, and imports one only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(MODULES[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)
        _start.listen()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from windtunnel.core.errors import InputError, nearest

            hint = nearest(args[0], COMMANDS) or "`windtunnel --help` explains them"
            what = f"there is no command {args[0]!r}"
            raise InputError(what, allowed=", ".join(COMMANDS), hint=hint)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(windtunnel.__version__, message="windtunnel %(version)s")
def cli() -> None:
    """Test the controllers of LLM inference fleets in simulated time, and run them live."""


def program() -> NoReturn:
    """The `windtunnel` program: like `main`, but it exits without freeing memory.

    Otherwise the interpreter would first destroy millions of objects one by one.
    """
    try:
        main()
    except SystemExit as left:  # what led to it, and so all that it had in memory, stays alive here
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to run them
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # a reader that has left; a stream that is closed
                stream.flush()
        os._exit(status)
    raise AssertionError("main exits")


def main(args: Sequence[str] | None = None) -> None:
    """Runs a command line and exits: 0 done, 2 bad input, 130 interrupted, 143 terminated.

    Exit status 3 means that an invariant broke, or that a run ended early.
    """
    try:
        from windtunnel.core.errors import InputFaults, WindtunnelError, os_reason
    except FormRefused as refused:
        click.echo(f"windtunnel: {refused}", err=True)
        sys.exit(EXIT_USAGE)
    _tolerate_streams()
    _spare_address_space()
    try:
        with _orderly_termination():
            code = cli.main(args, prog_name="windtunnel", standalone_mode=False)
    except WindtunnelError as error:
        _say(*map(str, error.faults if isinstance(error, InputFaults) else [error]))
        sys.exit(error.exit_code)
    except click.Abort:
        _say("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
        sys.exit(EXIT_USAGE)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "windtunnel"
        said = NOT_A_NUMBER.sub(_plain_number, error.format_message())
        _say(f"{said} (`{command} --help` lists what it takes)")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(error.exit_code)
    except Exception as error:
        if _is_short_of_memory(error):
            lost = "the command stopped early, and results that were not written yet are lost"
            _say(f"there is not enough memory: {lost} (`ulimit -v` may be too low)")
            sys.exit(EXIT_EARLY)
        if "KeyboardInterrupt" in str(error):  # pydantic makes an error of its own of one
            _say("interrupted")
            sys.exit(EXIT_INTERRUPTED)
        if not isinstance(error, OSError):
            raise
        _say(f"the system refused: {os_reason(error)}")
        sys.exit(EXIT_USAGE)
    sys.exit(code if isinstance(code, int) else 0)


def _plain_number(found: re.Match[str]) -> str:
    return "is not a whole number" if found[1] == "integer" else "is not a number"


def _is_short_of_memory(error: Exception) -> bool:
    """Whether memory or address space ran out, whatever the exception's type."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in said for sign in NO_MEMORY)


def _spare_address_space() -> None:
    """Stops libraries from reserving hundreds of megabytes if `ulimit -v` is set.

    Otherwise they would fail or end the process.
    """
    try:
        import resource
    except ImportError:
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "ARROW_IO_THREADS"):
            os.environ.setdefault(name, "1")


class _PatientFile(io.FileIO):
    """Discards output once its reader has gone, as with `head`.

    The command then runs to its end, with the same exit status as without a pipe.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def _tolerate_streams() -> None:
    """Tolerates characters that a terminal cannot show, readers that have gone, and streams that
    are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w")))
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.reconfigure(errors="replace")
        raw = getattr(stream.buffer, "raw", stream.buffer)
        if type(raw) is io.FileIO and stat.S_ISFIFO(os.fstat(raw.fileno()).st_mode):
            stream.flush()
            patient = _PatientFile(raw.fileno(), "w", closefd=False)
            text = io.TextIOWrapper(
                io.BufferedWriter(patient),
                encoding=stream.encoding,
                errors="replace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, text)


@contextmanager
def _orderly_termination() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP unwind like Ctrl-C, so that no half-written file is left behind.

    SIGHUP stays ignored if it was, as under `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(one, _terminate) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def _terminate(*_: object) -> NoReturn:
    sys.exit(EXIT_TERMINATED)


def _say(*sentences: str) -> None:
    from windtunnel.core.errors import message

    for sentence in sentences:
        click.echo(f"windtunnel: {message(sentence)}", err=True)
