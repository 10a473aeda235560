"""From the names in manifests to pools, and the policies that scale them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from windtunnel.core.errors import nearest
from windtunnel.scaling.settings import PolicySettings
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault


class Assignment(NamedTuple):
    """A policy, and what asks for it; the policy names the pools that it scales."""

    source: str
    """Kind and name of the manifest."""
    policy: PolicySettings


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

    def find(self, target: str, path: KeyPath, role: str = "") -> str | Fault:
        """The pool, or what to say at this path."""
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
        return Fault(path, what, ", ".join(self.names), f"{close} {hint}" if close else hint)

    def unused(self) -> list[str]:
        """Names that were written for targets which no manifest has."""
        return [name for name in self._targets if name not in self.used]
