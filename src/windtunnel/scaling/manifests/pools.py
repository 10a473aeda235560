"""From the names in manifests to pools of the scenario."""

from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.core.errors import InputError, nearest


class PoolNames:
    """The pools of a scenario, as manifests find them.

    A target is the pool of its name. A role of a target is the pool `TARGET-ROLE`, or the pool of
    the role's name. `targets` has what is called otherwise: from `TARGET` or `TARGET/ROLE` to a
    pool.
    """

    def __init__(self, names: Sequence[str], targets: Mapping[str, str] | None = None) -> None:
        self.names: Final = dict.fromkeys(names)  # in their order, and found at once
        self._targets: Final = dict(targets or {})
        self.used: Final[set[str]] = set()  # of the targets that were written, those found in use

    def find(self, target: str, role: str = "") -> str:
        """The pool; an InputError says which there are."""
        key = f"{target}/{role}" if role else target
        if key in self._targets:
            self.used.add(key)
            return self._targets[key]
        wanted = [f"{target}-{role}", role] if role else [target]
        for name in wanted:
            if name in self.names:
                return name
        hint = f"or write scaling.targets: {{{key}: POOL}}"
        close = nearest(wanted[0], self.names)
        what = f"no pool is called {' or '.join(repr(name) for name in wanted)}"
        allowed = ", ".join(self.names)
        raise InputError(what, allowed=allowed, hint=f"{close} {hint}" if close else hint)

    def unused(self) -> list[str]:
        """Names that were written for targets which no manifest has."""
        return [name for name in self._targets if name not in self.used]
