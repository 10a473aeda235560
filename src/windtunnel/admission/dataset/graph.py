"""Dependencies between columns: a small acyclic graph."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from windtunnel.core.errors import InputError, nearest


class ColumnGraph:
    """Columns by number, in the order in which they were named, with their dependencies."""

    def __init__(self, needs: Mapping[str, Iterable[str]]) -> None:
        """Builds the graph; `needs` maps each column to the columns that must be done before it."""
        if not needs:
            raise InputError("there are no columns", allowed="one or more")
        self.names: Final = tuple(needs)
        numbers = {name: number for number, name in enumerate(self.names)}
        parents: list[tuple[int, ...]] = []
        for name, wanted in needs.items():
            for other in wanted:
                if other not in numbers:
                    raise InputError(
                        f"needs {other!r}, which is not a column",
                        where=f"column {name}",
                        allowed=", ".join(self.names),
                        hint=nearest(other, self.names),
                    )
            parents.append(tuple(sorted({numbers[other] for other in wanted})))
        self.parents: Final = tuple(parents)
        self.children: Final = tuple(
            tuple(child for child, above in enumerate(parents) if number in above)
            for number in range(len(parents))
        )
        self.roots: Final = tuple(number for number, above in enumerate(parents) if not above)
        self._refuse_cycles()

    def __len__(self) -> int:
        return len(self.names)

    def _refuse_cycles(self) -> None:
        missing = [len(above) for above in self.parents]
        ready = list(self.roots)
        reached = 0
        while ready:
            reached += 1
            for child in self.children[ready.pop()]:
                missing[child] -= 1
                if missing[child] == 0:
                    ready.append(child)
        if reached < len(self.names):
            cycle = self._cycle(next(n for n, left in enumerate(missing) if left > 0), missing)
            raise InputError(
                "columns need each other in a cycle: "
                + ", ".join(f"{one} needs {other}" for one, other in pairwise(cycle)),
                hint="one of them must do without another",
            )

    def _cycle(self, start: int, missing: list[int]) -> list[str]:
        """Returns the names along one cycle, from a column back to itself."""
        path = [start]
        while True:
            above = next(n for n in self.parents[path[-1]] if missing[n] > 0)
            if above in path:
                return [self.names[number] for number in [*path[path.index(above) :], above]]
            path.append(above)
