"""The memory ceiling of a run: a run that grows beyond it ends with the results so far."""

from windtunnel.core.clock import monotonic_s
from windtunnel.core.system.memory import available_bytes, used_bytes
from windtunnel.core.units import format_duration, format_size
from windtunnel.twin.simulation import Simulation

BY_MEMORY = "memory"
USUAL_SHARE = 0.8
"""Share of the available memory; the rest is for writing results and for other programs."""
WRITING_BYTES = 160 << 20
"""The least memory left for writing results, where little is available."""
EVERY_S = 0.01
"""Time between two checks. What is allocated in between is far less than what is left."""


class MemoryCeiling:
    """Ends a run whose process uses more than `most_bytes`; None: no ceiling."""

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes = most_bytes
        self._looked_s = 0.0
        self._before_bytes = used_bytes()

    @classmethod
    def of(cls, asked_bytes: int | None, processes: int = 1) -> "MemoryCeiling":
        """The requested ceiling, or most of the available memory, divided among processes."""
        if asked_bytes is not None:
            return cls(asked_bytes // processes)
        available = available_bytes()
        if available is None:
            return cls(None)
        free = min(USUAL_SHARE * available, available - WRITING_BYTES)
        return cls(used_bytes() + max(0, int(free / processes)))

    def look(self, simulation: Simulation) -> None:
        """Ends the run if it has grown too large; cheap enough to call after every event."""
        now_s = monotonic_s()
        if self.most_bytes is None or now_s - self._looked_s < EVERY_S:
            return
        self._looked_s = now_s
        if used_bytes() <= self.most_bytes:
            return
        recorder = simulation.recorder
        inside = recorder.arrived - recorder.ended
        at = format_duration(simulation.now_s)
        what = f"the memory ceiling of {format_size(self.most_bytes)} was reached at {at}, "
        what += f"with {inside:,} requests queued or running and {recorder.ended:,} ended"
        if self._before_bytes > self.most_bytes:
            what += f"; {format_size(self._before_bytes)} were in use before it began"
        elif inside > recorder.ended:
            what += "; they arrive faster than they are served"
        simulation.end_early(BY_MEMORY, what)
