"""The file of `windtunnel operate --fleet`: the sections `fleet` and `live.fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.fleet.settings import FleetPool
from windtunnel.models.catalog.accelerators import catalog_price
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import checker_faults, input_error
from windtunnel.settings.section import Context, faults_of

NOUN: Final = "fleet"


def read_fleet_file(path: Path) -> FleetFile:
    """Reads a fleet file; the error lists everything that is wrong with it."""
    from pydantic import ValidationError

    document = parse_document(read_text(path, NOUN), str(path), NOUN, "fleet and live")
    try:
        found = FleetFile.read(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, FleetFile)) from None
    faults = [one for one in faults_of(found, Context(found, path.parent)) if not one.is_note]
    if faults:
        raise input_error(document, faults)
    return found


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
