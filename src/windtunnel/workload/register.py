"""Maps the numbers in requests to names: sources, classes, tenants, adapters, models."""

from typing import Final

from mypy_extensions import i64

LARGEST_KEY: Final = 2**62
"""Upper bound of prefix keys, so that a key fits in a machine word in compiled code."""


NAMELESS: Final = ""
"""The model of a scenario that names none."""


class NameList:
    """Names numbered in the order in which they were first seen; names are never removed."""

    def __init__(self) -> None:
        self.names: Final[list[str]] = []
        self._numbers: Final[dict[str, int]] = {}

    def number(self, name: str) -> int:
        """The number of a name; a new name gets the next free number."""
        number = self._numbers.get(name, -1)
        if number < 0:
            number = len(self.names)
            self._numbers[name] = number
            self.names.append(name)
        return number

    def find(self, name: str) -> int:
        """The number of a name; -1 if it has none."""
        return self._numbers.get(name, -1)


class Register:
    """The names of one run. Classes of service and their priorities are known from the start."""

    def __init__(self, priorities: dict[str, int], entries: int) -> None:
        self.sources: Final = NameList()
        self.classes: Final = NameList()
        self.tenants: Final = NameList()
        self.adapters: Final = NameList()
        self.models: Final = NameList()
        self.priorities: Final[list[int]] = []
        self._entries: Final[i64] = entries
        self._largest: Final[i64] = LARGEST_KEY // entries
        for name, priority in priorities.items():
            self.classes.number(name)
            self.priorities.append(priority)

    def own(self, entry: i64, number: i64) -> i64:
        """Makes a number of one workload entry unique among all entries, without keeping a table.

        Numbers of more than 62 bits are folded to 62: among a million hashes, a collision happens
        in one of a million runs.
        """
        return number % self._largest * self._entries + entry
