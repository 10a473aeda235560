"""Converts values given from Python to those that a scenario may have."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.settings.document import Plain
from windtunnel.settings.fields import shown

Sets = Mapping[str, Plain] | Sequence[str]
"""Overrides: values by path, or texts in the form of `--set`."""
SETS_ALLOWED = '{"serving.pools.0.replicas": 2} or ["serving.pools.0.replicas=2"]'


def set_texts(sets: Sets | None) -> list[str]:
    """Overrides as texts in the form of `--set`."""
    if isinstance(sets, Sequence) and not isinstance(sets, str):
        for text in sets:
            if not isinstance(text, str):
                raise InputError(f"{shown(text)} is not text", where="sets", allowed="PATH=VALUE")
        return list(sets)
    given = mapping_of(sets or {}, "sets", SETS_ALLOWED)
    return [
        f"{path}={json.dumps(plain_of(value, f'sets {path}'))}" for path, value in given.items()
    ]


def file_of(given: Any, where: str, allowed: str = "the path of a file") -> Path:
    """The path of a file or a folder; an InputError for anything else."""
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise InputError(f"{shown(given)} is not a path", where=where, allowed=allowed)
    if "\n" in str(given):
        hint = "a text in YAML becomes a dictionary by yaml.safe_load"
        raise InputError(f"{shown(given)} is not a path", where=where, allowed=allowed, hint=hint)
    return Path(given)


def mapping_of(given: Any, where: str, allowed: str) -> Mapping[str, Any]:
    """Settings by path; an InputError for anything else."""
    if not isinstance(given, Mapping):
        what = f"{shown(given)} is not a dictionary of values by path"
        raise InputError(what, where=where, allowed=allowed)
    for path in given:
        if not isinstance(path, str):
            raise InputError(f"{shown(path)} is not a path", where=where, allowed=allowed)
    return given


def plain_of(value: Any, where: str) -> Plain:
    """A value in the form that a scenario may have; NumPy values become Python's."""
    try:
        found: Plain = json.loads(json.dumps(value, default=_of_numpy, allow_nan=False))
    except (TypeError, ValueError):
        what = f"a scenario cannot have the value {shown(value)}"
        allowed = "text, numbers, true and false, and lists and mappings of them"
        raise InputError(what, where=where, allowed=allowed) from None
    return found


def _of_numpy(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError
