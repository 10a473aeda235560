"""The scenario that a search starts from, its plans at other settings, and their cache
addresses."""

import copy
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from windtunnel._forms import PACKAGE, digest_of
from windtunnel.core.errors import one_line
from windtunnel.settings.document import Plain, read_text
from windtunnel.settings.overrides import put_value
from windtunnel.twin.scenario.load import document_of, load_document
from windtunnel.twin.scenario.plan import ScenarioPlan

LONGEST_PLACE = 80
MOST_FILES = 64
"""Limit on the files that are digested in a folder that a scenario names, or beside a file."""

Settings = tuple[tuple[str, Plain], ...]
"""Paths and their values, in the order in which they are set."""


class Origin:
    """The scenario that all points of a search start from, as written."""

    def __init__(self, text: str, file: str, sets: Sequence[str] = ()) -> None:
        """`sets` apply to all points and are written as for `--set`."""
        self.file = file
        self.document = document_of(text, file, sets, None)

    @classmethod
    def read(cls, path: str | Path, sets: Sequence[str] = ()) -> "Origin":
        return cls(read_text(path), str(path), sets)

    def plan(
        self, settings: Settings = (), seed: int | None = None, option: str = "--vary"
    ) -> ScenarioPlan:
        """The plan at some settings. Errors in them are reported at `option`, not at a line."""
        plan = load_document(self.changed(settings, option).document)
        return plan if seed is None else plan.changed(seed=seed)

    def changed(self, settings: Settings, option: str = "--vary") -> "Origin":
        """The scenario with other values, not validated."""
        changed = copy.copy(self)
        changed.document = copy.deepcopy(self.document)
        for path, value in settings:
            place = f"{option} {one_line(f'{path}={written(value)}', LONGEST_PLACE)}"
            # A copy, so that later changes of the value do not affect the plan.
            put_value(changed.document, path, copy.deepcopy(value), place)
        return changed

    def data(self) -> dict[str, Plain]:
        """A copy of the scenario's data, as written."""
        return copy.deepcopy(self.document.data)


def written(value: Plain) -> str:
    """A value as a person would write it: text without quotes, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# The cache address of a point


def address_of(plan: ScenarioPlan) -> str:
    """A key that is the same for identical runs and different for all others.

    It is a digest of everything that a run depends on: the plan with its seed, the bytes of the
    files that the plan names, and the code. Names do not count: neither the scenario's name, nor
    the paths of its files, nor the choices under `plan`.
    """
    values = plan.data()
    for name in ("name", "sha256", "planning"):
        del values[name]
    values["serving"]["router"]["code"] = _policy_digest(plan)
    text = json.dumps([code_digest(), _with_contents(values)], sort_keys=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _with_contents(value: Any, key: str = "") -> Any:
    """Plain data with file paths replaced by digests of the contents."""
    if isinstance(value, dict):
        return {name: _with_contents(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_contents(item) for item in value]
    if isinstance(value, str) and key in ("path", "profile"):
        return _content(Path(value)) or value
    if isinstance(value, str) and key == "model":
        folder = Path(value) / "config.json"  # the weights are beside it
        return _content(folder if folder.is_file() else Path(value)) or value
    return value


def _content(path: Path) -> list[str]:
    """Digests of a file and its siblings of the same stem, or of a folder's files.

    A trace may consist of two files, of which one is named; a table may be a folder.
    """
    if path.is_dir():
        found: Iterable[Path] = path.iterdir()
    elif path.is_file():
        stem = path.name.partition(".")[0]
        found = (file for file in path.parent.iterdir() if file.name.partition(".")[0] == stem)
    else:
        return []
    files = sorted(file for file in found if file.is_file())[:MOST_FILES]
    return [_file_digest(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


@lru_cache(maxsize=1024)
def _file_digest(path: Path, size: int, changed_ns: int) -> str:  # noqa: ARG001 - both detect changes
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _policy_digest(plan: ScenarioPlan) -> str | None:
    """Digest of the module of a custom router, without its imports."""
    import inspect

    from windtunnel.routing.build import POLICIES
    from windtunnel.routing.custom import policy_class

    if plan.router.policy in POLICIES:
        return None
    return digest_of(Path(inspect.getfile(policy_class(plan.router.policy, plan.folder))))


ROOMS = (
    "core",
    "settings",
    "analysis",
    "workload",
    "models",
    "engine",
    "routing",
    "admission",
    "scaling",
    "gangs",
    "fleet",
    "twin",
)
"""Packages that a run may import; the others cannot change a result."""
LIBRARIES = ("numpy", "scipy", "msgspec")


@cache
def code_digest() -> str:
    """A digest of the code that produces results, and of the data files shipped with it."""
    digest = hashlib.sha256()
    files = [
        path
        for room in ROOMS
        for path in sorted((PACKAGE / room).rglob("*"))
        if path.suffix in (".py", ".json")
    ]
    for path in (*files, PACKAGE / "search" / "measure.py"):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()} {digest_of(path)}\n".encode())
    for name in LIBRARIES:
        digest.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    return digest.hexdigest()
