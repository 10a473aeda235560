"""Chooses between the compiled and the interpreted form of the hot modules.

Python prefers a binary beside a source file whatever their ages, so an edited module would silently
run as it was before the edit. Three rules prevent that:

- A build leaves a manifest: the modules it compiled, and a digest of each of our sources that the
  compiler read (constants and layouts of imported modules also end up in the binaries). The digests
  are compared before any other module of ours is imported, unless a file's size and time are still
  those of the build; one difference makes all modules interpreted, because the binaries share one
  library and are fresh or stale together.
- All modules are in one library, which is named after those digests: only the library that the
  manifest names is ever found, even if the path has others.
- A binary that the manifest does not name is never loaded; without a manifest, none is.

The variable WINDTUNNEL_FORM overrides this: `interpreted` ignores the binaries, `compiled` requires
them.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent
FORMS = ("auto", "interpreted", "compiled")
BINARY_SUFFIX = EXTENSION_SUFFIXES[0]
"""Contains the Python version and the platform, so binaries for another Python are other files."""
LIBRARY_PREFIX = "windtunnel_"
LIBRARY_SUFFIX = "__mypyc"
_SPEAKS_FOR_ITSELF = (
    "windtunnel.cli",
    "windtunnel.cli.main",
    "windtunnel.cli.program",
    "windtunnel.__main__",
)


class FormRefused(ImportError):
    """The form that WINDTUNNEL_FORM demands is unavailable; `str()` is a sentence for people."""


class BuildManifest:
    """What a build compiled, and its sources, relative to the folder that has the package."""

    def __init__(
        self,
        modules: Sequence[str],
        sources: dict[str, str],
        stamps: dict[str, list[int]] | None = None,
    ) -> None:
        self.modules = tuple(modules)
        self.sources = sources
        self.stamps = stamps or {}
        """The results of `stamp_of` for the sources when they were compiled."""

    @property
    def library(self) -> str:
        """The module name of the shared library, which identifies what it was built from."""
        text = json.dumps([self.modules, sorted(self.sources.items())])
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"{LIBRARY_PREFIX}{digest[:16]}{LIBRARY_SUFFIX}"

    @property
    def binary(self) -> str:
        """The file name of the shared library that a complete build leaves."""
        return self.library + BINARY_SUFFIX

    def faults(self, root: Path) -> list[str]:
        """Why the binaries under `root` cannot be used; empty if they are fresh and complete."""
        changed = [
            f"{source} changed after it was compiled"
            for source, digest in self.sources.items()
            if not self._as_it_was(f"{root}/{source}", source)
            and digest_of(root / source) != digest
        ]
        if not changed and not (root / self.binary).is_file():
            return [f"{self.binary} is missing"]
        return changed

    def _as_it_was(self, file: str, source: str) -> bool:
        stamp = self.stamps.get(source)
        return stamp is not None and stamp_of(file) == stamp

    def to_json(self, root: Path) -> str:
        stamps = {source: stamp_of(root / source) for source in self.sources}
        content = {"modules": self.modules, "sources": self.sources, "stamps": stamps}
        return json.dumps(content, indent=1) + "\n"


def digest_of(source: Path) -> str:
    """The digest of a file; empty, and so equal to none, if it cannot be read."""
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError:
        return ""


def stamp_of(source: str | Path) -> list[int]:
    """Size and modification time of a file, which an edit changes; empty if there is none."""
    try:
        found = os.stat(source)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def manifest_path(package: Path = PACKAGE) -> Path:
    """Path of the manifest of a build for this Python and platform."""
    return package / f"compiled{BINARY_SUFFIX.rpartition('.')[0]}.json"


def read_manifest(package: Path = PACKAGE) -> BuildManifest | None:
    """The build for this Python; None if nothing was compiled or the manifest is invalid."""
    try:
        content = json.loads(manifest_path(package).read_bytes())
        modules = [str(name) for name in content["modules"]]
        sources = {str(path): str(digest) for path, digest in content["sources"].items()}
        return BuildManifest(modules, sources, dict(content.get("stamps", {})))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def entry_of(module: str) -> str:
    """The name by which a library exports a module, whose own name has dots in it."""
    return module.replace(".", "___")


class LibraryLoader(ExtensionFileLoader):
    """Loads one of the modules that share a library."""

    def __init__(self, name: str, path: str, library: str) -> None:
        super().__init__(name, path)
        self._library = library

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import_module(self._library)  # modules look for it when they begin
        entry = spec_from_file_location(entry_of(spec.name), self.path)
        assert entry is not None
        module: ModuleType = super().create_module(entry)
        sys.modules.pop(entry.name, None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module has already run when it is created."""


class FormFinder:
    """Finds our modules in the chosen form, and nowhere else.

    It has the interface of a finder without its base class, whose import alone takes twenty
    milliseconds.
    """

    def __init__(self, root: Path, manifest: BuildManifest | None, refusal: str | None) -> None:
        self._root = root
        self._compiled = frozenset(manifest.modules) if manifest else frozenset()
        self._library = manifest.library if manifest else None
        self._refusal = refusal
        self.form = "refused" if refusal else "compiled" if manifest else "interpreted"

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - what a finder is asked with
    ) -> ModuleSpec | None:
        if fullname == self._library:
            return spec_from_file_location(fullname, self._root / (fullname + BINARY_SUFFIX))
        if fullname.startswith(LIBRARY_PREFIX) and fullname.endswith(LIBRARY_SUFFIX):
            raise ModuleNotFoundError(f"{fullname} belongs to another build", name=fullname)
        if path is None or not fullname.startswith("windtunnel."):
            return None
        if self._refusal and fullname not in _SPEAKS_FOR_ITSELF:
            raise FormRefused(self._refusal)
        if fullname in self._compiled and self._library is not None:
            file = str(self._root / (self._library + BINARY_SUFFIX))
            loader = LibraryLoader(fullname, file, self._library)
            return spec_from_file_location(fullname, file, loader=loader)
        return _source_spec(fullname, path)


def _source_spec(fullname: str, path: Sequence[str]) -> ModuleSpec | None:
    tail = fullname.rpartition(".")[2]
    for folder in path:
        for file in (f"{folder}/{tail}.py", f"{folder}/{tail}/__init__.py"):
            if os.path.isfile(file):
                loader = SourceFileLoader(fullname, file)
                inside = [f"{folder}/{tail}"] if file.endswith("__init__.py") else None
                return spec_from_file_location(
                    fullname, file, loader=loader, submodule_search_locations=inside
                )
    if any(
        Path(folder, tail + suffix).is_file() for folder in path for suffix in EXTENSION_SUFFIXES
    ):
        raise ModuleNotFoundError(
            f"{fullname} is a left-over binary without a source", name=fullname
        )
    return None


def settle() -> str:
    """Chooses the form for this process, before any other module is imported; returns its name."""
    wanted = os.environ.get("WINDTUNNEL_FORM") or "auto"
    manifest = read_manifest() if wanted != "interpreted" else None
    faults = manifest.faults(PACKAGE.parent) if manifest else []
    refusal = None
    if wanted not in FORMS:
        refusal = f"WINDTUNNEL_FORM is {wanted!r}; allowed: {', '.join(FORMS)}"
    elif wanted == "compiled" and (faults or manifest is None):
        why = _some(faults) or "nothing was compiled for this Python"
        refusal = (
            f"WINDTUNNEL_FORM asks for the compiled form, but {why} (`make compile` builds it)"
        )
    elif faults:
        sys.stderr.write(
            f"windtunnel: {_some(faults)}: running interpreted, slower with the same results "
            "(`make compile` builds it again)\n"
        )
    usable = None if faults or refusal else manifest
    sys.meta_path.insert(0, FormFinder(PACKAGE.parent, usable, refusal))
    return form()


def form() -> str:
    """The form chosen for this process."""
    return next(finder.form for finder in sys.meta_path if isinstance(finder, FormFinder))


def _some(faults: Sequence[str]) -> str:
    """The first few faults, so that a fresh checkout does not fill the screen."""
    more = f" and {len(faults) - 2} more" if len(faults) > 2 else ""
    return ", ".join(faults[:2]) + more
