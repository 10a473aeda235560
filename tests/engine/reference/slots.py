"""The LoRA adapters of the reference engine: which are on the accelerator, and when last used."""

from collections import Counter

from windtunnel.engine.settings import LoraSettings
from windtunnel.workload.request import Request


class ReferenceSlots:
    """LoRA adapters on the accelerator, and in which plan each was last in use."""

    def __init__(self, lora: LoraSettings) -> None:
        self.lora = lora
        self.last_used: dict[int, int] = {}
        self.loads: Counter[int] = Counter()
        self.evictions: Counter[int] = Counter()
        self.plans = 0
        self.begun = 0

    def in_use(self, running: list[Request]) -> set[int]:
        """Adapters of requests that have something left to compute."""
        return {int(r.adapter) for r in running if r.adapter >= 0 and r.computed < r.last}

    def begin(self) -> None:
        """A step will be planned."""
        self.plans += 1
        self.begun = 0

    def look(self, running: list[Request]) -> None:
        """A step is planned for these."""
        for adapter in self.in_use(running):
            self.last_used[adapter] = self.plans

    def has_room(self, request: Request, running: list[Request]) -> bool:
        used = self.in_use(running)
        return request.adapter < 0 or request.adapter in used or len(used) < self.lora.slots

    def enter(self, request: Request, running: list[Request]) -> None:
        adapter = int(request.adapter)
        if adapter < 0:
            return
        if adapter not in self.last_used:
            if len(self.last_used) == self.lora.slots:
                unused = [a for a in self.last_used if a not in self.in_use(running)]
                victim = min(unused, key=lambda a: (self.last_used[a], a))
                del self.last_used[victim]
                self.evictions[victim] += 1
            self.loads[adapter] += 1
            self.begun += 1
        self.last_used[adapter] = self.plans

    def time_s(self, step_s: float, used: int) -> float:
        return step_s * (1 + self.lora.step_cost * used) + self.lora.load_s * self.begun
