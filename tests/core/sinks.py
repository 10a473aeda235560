"""A sink that remembers, for tests."""

from windtunnel.core.telemetry import Event


class MemorySink:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wants(self, kind: str) -> bool:
        return True

    def record(self, event: Event) -> None:
        self.events.append(event)
