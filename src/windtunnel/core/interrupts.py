"""Lets signals through: compiled code never looks for them, a call of plain Python does."""


def breathe() -> None:
    """Runs what signals have asked for: loops of compiled code that may be long call it.

    This module is not compiled: the interpreter looks for signals when a function of its own
    begins. Ctrl-C then raises here.
    """
