"""The file of `windtunnel operate --fleet`: the sections `fleet` and `live.fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.fleet.settings import FleetPool
from windtunnel.models.catalog.accelerators import catalog_price
from windtunnel.settings.checking import section_of
from windtunnel.settings.document import parse_document, read_text

NOUN: Final = "fleet"


def read_fleet_file(path: Path) -> FleetFile:
    """Reads a fleet file; the error lists everything that is wrong with it."""
    document = parse_document(read_text(path, NOUN), str(path), NOUN, "fleet and live")
    return section_of(document, FleetFile, path.parent)


def prices_of(file: FleetFile) -> dict[str, float]:
    """Dollars per machine-hour of each pool, from the file or the catalog; otherwise 0."""
    return {pool.name: _price_of(pool) or 0.0 for pool in file.fleet.pools}


def unpriced(file: FleetFile) -> list[str]:
    """A sentence for each pool whose machines count as free because no price is known."""
    return [
        f"fleet.pools.{pool.name}: the catalog has no price of {pool.accelerator!r}, so its "
        "machines count as free (price_per_hour sets their price)"
        for pool in file.fleet.pools
        if _price_of(pool) is None
    ]


def _price_of(pool: FleetPool) -> float | None:
    if pool.price_per_hour is not None:
        return pool.price_per_hour
    return catalog_price(pool.accelerator, pool.accelerators)
