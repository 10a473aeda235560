"""The cases: what is scheduled, and the results of a well-known scheduler of this kind.

The first 22 are those of that scheduler's own suite. Columns come in pairs, a slow one and a quick
one that depends on it, `fan` pairs per row; or two models, the first of which another user holds
for a while. The others have no counterpart in that suite: refusals, failures, cancellations,
tenants.
"""

from math import inf
from typing import Final

import msgspec

PIPELINE: Final = "pipeline"
PRESSURE: Final = "pressure"


class Reported(msgspec.Struct, frozen=True):
    """The other scheduler's figures: shares of the capacity, and generations per second."""

    utilisation: float
    starved: float
    horizon: float
    per_s: float
    """As reported by its authors, in real time."""
    policy_per_s: float
    """Of its policy alone, in simulated time."""
    latest_per_s: float
    """Of its latest version, in real time."""


class Case(msgspec.Struct, frozen=True):
    """Rows in groups on a number of slots; times are in seconds."""

    name: str
    rows: int = 512
    group_rows: int = 64
    groups: int = 4
    tasks: int = 8
    """Most tasks of any kind that may run."""
    slots: int = 4
    """Most tasks that may wait for a model: the capacity that is busy or idle."""
    fan: int = 4
    slow_s: float = 0.003
    quick_s: float = 0.0003
    weight: int = 0
    """Weight of each column; 0 means the number of slots."""
    adaptive: bool = False
    advisory: bool = False
    shape: str = PIPELINE
    held_s: float = 0.0
    """Time for which another user holds the first model."""
    serves: int = 0
    """Most concurrent calls that the provider accepts; 0 for no limit."""
    fails_every: int = 0
    """Every call with a multiple of this number fails; 0 for none."""
    cancelled_s: float = 0.0
    """Time at which everything in flight is cancelled once; 0 for never."""
    tenants: tuple[int, ...] = (1,)
    """Weights of the tenants."""
    reported: Reported | None = None

    @property
    def generations(self) -> int:
        return self.rows * 2 * (self.fan if self.shape == PIPELINE else 1)

    @property
    def service_s(self) -> float:
        """Mean duration of one generation."""
        return (self.slow_s + self.quick_s) / 2

    @property
    def is_wide(self) -> bool:
        """Whether far more work is ready than there are slots."""
        ready = self.groups * self.group_rows * self.fan
        return self.shape == PIPELINE and ready >= 4 * self.slots

    @property
    def most_per_s(self) -> float:
        """Upper bound on generations per second: every slot or every chain always busy."""
        if self.shape != PIPELINE:
            return inf
        chains = self.groups * self.group_rows * self.fan
        return min(self.slots, chains) / self.service_s

    def stretched(self, times: int) -> "Case":
        """The same with longer calls, without the others' figures, which are for shorter ones."""
        if times == 1:
            return self
        return msgspec.structs.replace(
            self,
            slow_s=times * self.slow_s,
            quick_s=times * self.quick_s,
            held_s=times * self.held_s,
            reported=None,
        )

    def shorter(self, times: int) -> "Case":
        """The same with fewer rows, at least 128 unless the case has fewer."""
        rows = max(min(self.rows, 128), self.rows // times)
        return msgspec.structs.replace(self, rows=rows)


def _one_by_one(name: str, figures: Reported, **differs: object) -> Case:
    """Groups of one row with one pair of columns: as many chains are ready as there are groups."""
    return _case(name, figures, **({"group_rows": 1, "fan": 1} | differs))


def _case(name: str, figures: Reported, **differs: object) -> Case:
    return msgspec.convert({"name": name, "reported": figures, **differs}, Case)


def _pressed(name: str, figures: Reported, **differs: object) -> Case:
    fixed = {"shape": PRESSURE, "held_s": 0.05, "slow_s": 0.001, "quick_s": 0.001}
    return _case(name, figures, **(fixed | differs))


_NARROW: Final = {"groups": 1, "tasks": 16, "slots": 8, "slow_s": 0.006}
_HIGH: Final = _NARROW | {"groups": 8}
_ONE: Final = {"rows": 32, "group_rows": 32, "groups": 1, "tasks": 1, "slots": 1}
_MANY: Final = {"rows": 128, "group_rows": 1, "groups": 8, "tasks": 4, "slots": 4, "adaptive": True}

CASES: Final = (
    _case("rows-64", Reported(0.796, 0.194, 0.011, 859, 2424, 242), rows=64),
    _case("rows-128", Reported(0.795, 0.203, 0.003, 578, 2424, 284), rows=128),
    _case("rows-256", Reported(0.662, 0.337, 0.001, 332, 2424, 247), rows=256),
    _one_by_one("row-groups-1", Reported(0.178, 0.145, 0.678, 356, 606, 136), groups=1),
    _one_by_one("row-groups-2", Reported(0.314, 0.230, 0.456, 525, 1212, 171), groups=2),
    _one_by_one("row-groups-4", Reported(0.588, 0.228, 0.184, 867, 2424, 177)),
    _case("buffer-1", Reported(0.826, 0.174, 0.0, 379, 2424, 230), group_rows=1),
    _case("buffer-16", Reported(0.805, 0.194, 0.0, 204, 2424, 374), group_rows=16),
    _case("buffer-64", Reported(0.790, 0.209, 0.0, 195, 2424, 238)),
    _one_by_one("capacity-4", Reported(0.868, 0.130, 0.002, 596, 1212, 289), tasks=4, slots=2),
    _one_by_one("capacity-8", Reported(0.545, 0.246, 0.209, 768, 2424, 177)),
    _case("weight-1", Reported(0.758, 0.242, 0.0, 192, 2424, 368), weight=1),
    _case("weight-capacity", Reported(0.839, 0.161, 0.0, 185, 2424, 349), weight=4),
    _one_by_one(
        "narrow-frontier", Reported(0.089, 0.160, 0.751, 193, 318, 130), rows=1024, **_NARROW
    ),
    _case(
        "wide-frontier",
        Reported(0.794, 0.206, 0.0, 88, 2539, 368),
        rows=1024,
        **(_NARROW | {"groups": 16}),
    ),
    _one_by_one("fixed-low", Reported(0.105, 0.082, 0.813, 229, 318, 142), **_NARROW),
    _one_by_one("adaptive", Reported(0.677, 0.176, 0.147, 1108, 2540, 364), adaptive=True, **_HIGH),
    _one_by_one("fixed-high", Reported(0.624, 0.173, 0.204, 1062, 2540, 310), **_HIGH),
    _pressed("pressure-control", Reported(0.930, 0.056, 0.014, 422, 561, 230), **_ONE),
    _pressed(
        "pressure-advisory", Reported(0.853, 0.132, 0.014, 478, 780, 261), advisory=True, **_ONE
    ),
    _pressed("adaptive-control", Reported(0.824, 0.157, 0.017, 723, 1438, 170), **_MANY),
    _pressed(
        "adaptive-advisory",
        Reported(0.844, 0.145, 0.011, 689, 1438, 171),
        advisory=True,
        **_MANY,
    ),
)
"""The cases of its authors' suite, in their order."""

_SECONDS: Final = {"slow_s": 1.0, "quick_s": 1.0, "tasks": 8, "slots": 8, "shape": PRESSURE}
BEYOND: Final = tuple(
    msgspec.convert({"name": name, "rows": 256, **_SECONDS, **differs}, Case)
    for name, differs in (
        ("refusals", {"serves": 3}),
        ("failures", {"fails_every": 20}),
        ("cancelled", {"cancelled_s": 30.0}),
        ("tenants-3-to-1", {"tenants": [3, 1]}),
    )
)
"""Cases that the other suite lacks: a second of service, two models of four slots."""
