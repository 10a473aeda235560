"""Chooses between the compiled and the interpreted form of the hot modules.

Python prefers a binary beside a source file whatever their ages, so an edited module would silently
run as it was before the edit. Building writes a manifest with a digest of every source; here, before
any of those modules is imported, the digests are compared. When one differs, the whole package runs
interpreted (the binaries share one library, so they are fresh or stale together) and says so once.

The variable WINDTUNNEL_FORM overrides: `interpreted` ignores the binaries, `compiled` insists on them.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent
FORMS = ("auto", "interpreted", "compiled")


class SourceOnly(MetaPathFinder):
    """Finds our modules as source files, never as binaries."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith("windtunnel."):
            return None
        for folder in path:
            source = Path(folder, fullname.rpartition(".")[2] + ".py")
            if source.is_file():
                return spec_from_file_location(fullname, source)
        return None


def manifest_path(package: Path = PACKAGE) -> Path:
    """Where a build for this Python leaves the digests of what it compiled."""
    suffix: str = sysconfig.get_config_var("EXT_SUFFIX")
    return package / f"compiled{suffix.rpartition('.')[0]}.json"


def manifest(package: Path = PACKAGE) -> dict[str, str]:
    """Module name -> digest of the source it was compiled from; empty when nothing was compiled."""
    try:
        digests = json.loads(manifest_path(package).read_bytes())
    except (OSError, ValueError):
        return {}
    return digests if isinstance(digests, dict) else {}


def stale_modules(package: Path = PACKAGE) -> list[str]:
    """The compiled modules whose source is no longer what was compiled."""
    return [
        name
        for name, digest in manifest(package).items()
        if _digest(package.parent / (name.replace(".", "/") + ".py")) != digest
    ]


def _digest(source: Path) -> str:
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError:
        return ""


def settle() -> str:
    """Decides the form for this process, before any hot module is imported; returns its name."""
    wanted = os.environ.get("WINDTUNNEL_FORM", "auto")
    if wanted not in FORMS:
        raise ImportError(f"WINDTUNNEL_FORM is {wanted!r}; allowed: {', '.join(FORMS)}")
    if wanted != "interpreted":
        stale = stale_modules()
        if manifest() and not stale:
            return "compiled"
        if wanted == "compiled":
            why = f"{', '.join(stale)} changed since" if stale else "nothing was compiled"
            raise ImportError(f"WINDTUNNEL_FORM=compiled, but {why}; `make compile` builds them")
        if stale:
            sys.stderr.write(
                f"windtunnel: {', '.join(stale)} changed since compiled; running interpreted "
                "(slower, same results). `make compile` builds them again.\n"
            )
    sys.meta_path.insert(0, SourceOnly())
    return "interpreted"
