"""Asks servers how they are, for those who decide on it."""

from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server


def look_at(servers: list[Server], signals: Signals, now_s: float) -> None:
    """Fills the signals with what is true now of every server that gets requests."""
    waiting = signals.waiting
    running = signals.running
    kv_used = signals.kv_used
    for server in servers:
        number = server.index
        waiting[number] = server.queued
        running[number] = server.running.count
        kv_used[number] = server.kv_used(now_s)
        if server.slots is not None:
            signals.adapters[number] = server.slots.loaded()
    signals.took(now_s)
