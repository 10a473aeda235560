"""How long requests had waited for their first tokens, over the time at which these came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

STRETCHES = 120
"""Of the run, each with a mean and a slowest; more would show chance instead of load."""


class FirstTokens:
    """Sums up batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        import numpy as np

        self._end_s: float = result["simulated_seconds"]
        self._counts: Floats = np.zeros(STRETCHES)
        self._sums: Floats = np.zeros(STRETCHES)
        self._slowest: Floats = np.zeros(STRETCHES)

    def add(self, batch: Any) -> None:
        import numpy as np
        import pyarrow as pa

        arrived, first = (
            np.asarray(batch[name].cast(pa.float64()), dtype=np.float64)
            for name in ("arrived", "first_token")
        )
        there = ~np.isnan(first)
        if not there.any() or self._end_s <= 0.0:
            return
        waited = (first - arrived)[there]
        share = first[there] / self._end_s
        stretch = np.minimum((share * STRETCHES).astype(np.int64), STRETCHES - 1)
        self._counts += np.bincount(stretch, minlength=STRETCHES)
        self._sums += np.bincount(stretch, weights=waited, minlength=STRETCHES)
        np.maximum.at(self._slowest, stretch, waited)

    def lines(self) -> tuple[Floats, dict[str, Floats]]:
        """The middles of stretches in which some came, and their means and slowest."""
        import numpy as np

        seen = np.flatnonzero(self._counts)
        middles: Floats = (seen + 0.5) * np.float64(self._end_s / STRETCHES)
        mean = self._sums[seen] / self._counts[seen]
        return middles, {"slowest": self._slowest[seen], "mean": mean}
