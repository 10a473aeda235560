"""What the numbers in requests stand for: sources, classes, tenants, adapters, models."""

from typing import Final

from mypy_extensions import i64

LARGEST_KEY: Final = 2**62
"""Prefix keys stay below it, so that compiled code never needs more than a word for one."""


NAMELESS: Final = ""
"""Stands for the model of a scenario that names none."""


class NameList:
    """Names by number, in the order in which they were first met; none ever leaves."""

    def __init__(self) -> None:
        self.names: Final[list[str]] = []
        self._numbers: Final[dict[str, int]] = {}

    def number(self, name: str) -> int:
        """The number of a name, which is given one if it is new."""
        number = self._numbers.get(name, -1)
        if number < 0:
            number = len(self.names)
            self._numbers[name] = number
            self.names.append(name)
        return number

    def find(self, name: str) -> int:
        """The number of a name; -1 when it has none."""
        return self._numbers.get(name, -1)


class Register:
    """The names of one run. Classes of service are all known beforehand, with their priorities."""

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
        """A number that no other entry of the workload has for anything; needs no memory.

        Hashes of more than 62 bits are folded to that: of a million, two meet once in a million
        runs.
        """
        return number % self._largest * self._entries + entry
