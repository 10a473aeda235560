"""The `windtunnel` program, from its first line on."""

from windtunnel import _start


def program() -> None:
    """Runs the command line; Ctrl-C is silent until its command is imported."""
    _start.leave_silently()
    from windtunnel.cli import main

    main.program()
