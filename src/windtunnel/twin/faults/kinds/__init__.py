"""All kinds of faults: every class with a `kind` in a module of this folder.

They are sorted by that word, which does not depend on what else was imported. To add a kind, add a
class here, in a module of its own or beside related ones.
"""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, Union

from windtunnel.settings.fields import chosen_by, variant
from windtunnel.twin.faults.kind import InjectedFault


def _kinds() -> dict[str, type[InjectedFault]]:
    found: dict[str, type[InjectedFault]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        for one in vars(module).values():
            own = isinstance(one, type) and one.__module__ == module.__name__
            if own and issubclass(one, InjectedFault) and "kind" in one.model_fields:
                found[one.word()] = one
    return dict(sorted(found.items()))


KINDS: Final = _kinds()
"""The classes by the word that selects them in a file."""

if TYPE_CHECKING:
    AnyFault = InjectedFault
else:
    AnyFault = Annotated[
        Union[tuple(Annotated[kind, variant(word)] for word, kind in KINDS.items())],  # noqa: UP007
        chosen_by("kind", *KINDS),
    ]
