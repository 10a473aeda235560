"""Stores the figures of finished points in a folder, each under the address of its run.

Entries are written to a draft and renamed, so that readers never see a partial one, even with
several writers. A digest detects entries that were corrupted or edited; their points run again.
"""

import hashlib
from pathlib import Path

import msgspec

from windtunnel.core.system.files import write_whole, writing
from windtunnel.search.measure import Metrics

FOLDED = 2
"""Leading characters of an address that name a subfolder: a folder of 100,000 files is slow."""


class CachedPoint(msgspec.Struct, frozen=True):
    """The contents of a cache file."""

    address: str
    sha256: str
    """Digest of the figures as JSON."""
    metrics: Metrics


class Cache:
    """A folder of entries, created when the first one is stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, address: str) -> Metrics | None:
        """The figures of a run; None if missing or corrupted."""
        try:
            entry = msgspec.json.decode(self._file(address).read_bytes(), type=CachedPoint)
        except (OSError, msgspec.DecodeError):
            return None
        sound = entry.address == address and entry.sha256 == _digest(entry.metrics)
        return entry.metrics if sound else None

    def keep(self, address: str, metrics: Metrics) -> None:
        """Stores the figures of a run."""
        file = self._file(address)
        content = msgspec.json.encode(CachedPoint(address, _digest(metrics), metrics))
        hint = "choose another folder with --cache or -o"
        with writing(self.folder, hint, "a finished point cannot be stored"):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, content, drafts=self.folder)

    def _file(self, address: str) -> Path:
        return self.folder / address[:FOLDED] / f"{address[FOLDED:]}.json"


def _digest(metrics: Metrics) -> str:
    return hashlib.sha256(msgspec.json.encode(metrics)).hexdigest()
