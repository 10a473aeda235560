"""Loads a scenario: text, overrides, checks, plan. Any fault in it is an InputError."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.routing.build import POLICIES
from windtunnel.settings.document import Document, parse_document, read_text
from windtunnel.settings.faults import Fault, checker_faults, dotted, input_error, notes_of
from windtunnel.settings.fields import LONGEST_NAME
from windtunnel.settings.overrides import apply_override
from windtunnel.settings.section import digest_data, located
from windtunnel.twin.infrastructure.settings import GangManifests
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.scenario.rules import rule_faults
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.servers.pools import KeyPath, hardware_faults
from windtunnel.workload.empirical import read_lengths
from windtunnel.workload.settings.sources import (
    BUILT_IN_PRIORITIES,
    ReplaySettings,
    SloClass,
    WorkloadEntry,
    priority_of,
)
from windtunnel.workload.traces.reading import at_its_rate

__all__ = ["load", "load_document", "load_text", "document_of", "json_schema"]

LONGEST_BARE_S = {"ttft": 60.0, "tpot": 5.0}
"""The largest targets without a unit that are taken as seconds without a note."""

HARDWARE = (
    "model",
    "accelerator",
    "tensor_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_parallel",
    "all2all_backend",
    "step_time",
    "engine",
)


def load(path: str | Path, sets: Sequence[str] = (), seed: int | None = None) -> ScenarioPlan:
    """Loads the plan of a scenario file; `sets` are overrides such as `serving.pools.0.replicas=8`.

    Names in the file are looked up too: models, accelerators, profiles, tables, traces, and whether
    the model fits.
    """
    return load_document(document_of(read_text(path), str(path), sets, seed))


def load_document(document: Document) -> ScenarioPlan:
    """Loads the plan of a document whose values may have been changed since it was read."""
    plan = _plan(document, name_faults(document.data))
    found = hardware_faults(plan) + file_faults(plan.workload)
    if found:
        raise input_error(document, [_fault(place, error) for place, error in found])
    return plan


def load_text(
    text: str, file: str = "scenario.yaml", sets: Sequence[str] = (), seed: int | None = None
) -> ScenarioPlan:
    """Loads the plan of a text; faults and relative paths treat it as if it were in `file`.

    Names are looked up when the plan is run.
    """
    return _plan(document_of(text, file, sets, seed))


def document_of(text: str, file: str, sets: Sequence[str], seed: int | None) -> Document:
    """Parses a scenario with its overrides, unchecked."""
    document = parse_document(text, file)
    if sets:
        from windtunnel.search.settings import choice_of, drop_unused_prices

        written = choice_of(document.data)
        for override in sets:
            apply_override(document, override)
        drop_unused_prices(document.data, written, sets)
    if seed is not None:
        document.data["seed"] = seed
        document.put_place(("seed",), f"--seed {seed}")
    return document


def name_faults(data: Mapping[str, Any]) -> list[Fault]:
    """Reports models and accelerators that no catalog has, even if the scenario has other faults.

    A name that may be a path is looked up with the plan.
    """
    serving = data.get("serving")
    listed = serving.get("pools") if isinstance(serving, dict) else None
    asked: list[tuple[KeyPath, Any, Callable[[str], object]]] = [
        (("model",), data.get("model"), resolve_model)
    ]
    for number, pool in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(pool, dict):
            here: KeyPath = ("serving", "pools", number)
            asked.append(((*here, "model"), pool.get("model"), resolve_model))
            asked.append(((*here, "accelerator"), pool.get("accelerator"), resolve_accelerator))
    faults: dict[str, Fault] = {}
    for path, name, resolve_name in asked:
        if isinstance(name, str) and "/" not in name and not name.endswith(".json"):
            try:
                resolve_name(name)
            except InputError as fault:
                faults.setdefault(name, Fault(path, fault.what, fault.allowed, fault.hint))
    return list(faults.values())


def _plan(document: Document, beside: Sequence[Fault] = ()) -> ScenarioPlan:
    """Checks a document and resolves its plan; `beside` are faults reported along with others."""
    try:
        spec = Scenario.read(document.data)
    except ValidationError as error:
        raise input_error(document, [*checker_faults(error, Scenario), *beside]) from None
    file = Path(document.file)
    if spec.gangs is None:
        found = rule_faults(spec, file.parent)
    else:
        from windtunnel.twin.scenario.infrastructure import as_manifests_say, gang_faults

        spec = as_manifests_say(spec, file)
        found = rule_faults(spec, file.parent) + gang_faults(spec, file)
    faults = [fault for fault in found if not fault.is_note]
    if faults:
        raise input_error(document, [*faults, *beside])
    place = None
    if spec.serving.router.policy not in POLICIES:
        policy: KeyPath = ("serving", "router", "policy")
        place = f"{document.place(policy)}: {dotted(policy)}"
    notes = notes_of(document, [*found, *_doubtful_seconds(document.data)])
    return msgspec.structs.replace(
        _resolve(spec, file),
        router_place=place,
        notes=notes,
        overrides=tuple(document.overrides),
    )


def _doubtful_seconds(data: Mapping[str, Any]) -> Iterator[Fault]:
    """Notes about targets without a unit that are so large that milliseconds may be meant."""
    for name, targets in (data.get("slo") or {}).items():
        for key, longest_s in LONGEST_BARE_S.items():
            value = (targets or {}).get(key)
            if isinstance(value, int | float) and value > longest_s:
                what = f"{key} of {value:g} s: a bare number is seconds"
                hint = f"{value:g}ms? Write {value:g}s if seconds are meant"
                yield Fault(("slo", name, key), what, hint=hint, is_note=True)


def file_faults(entries: Sequence[WorkloadEntry]) -> list[tuple[KeyPath, InputError]]:
    """Reports faults of the files that a workload names, as far as opening them shows."""
    faults: list[tuple[KeyPath, InputError]] = []
    for index, entry in enumerate(entries):
        for path, opened in _files(("workload", index), entry):
            try:
                opened()
            except InputError as fault:
                faults.append((path, fault))
    return faults


def _files(path: KeyPath, entry: WorkloadEntry) -> list[tuple[KeyPath, Callable[[], object]]]:
    """The files of one entry, each with a function that opens it."""
    if isinstance(entry, ReplaySettings):
        from windtunnel.workload.traces.formats.registry import named

        return [
            ((*path, "trace", "path"), partial(named, entry.trace.format, Path(entry.trace.path)))
        ]
    return [
        ((*path, *where.split("."), "path"), partial(read_lengths, lengths.path))
        for where, lengths in entry.lengths().items()
        if lengths.path is not None
    ]


def _fault(path: KeyPath, error: InputError) -> Fault:
    """A catalog error as a fault at its place; an override involved in it becomes the place."""
    what = f"{error.where}: {error.what}" if error.where else error.what
    whole_pool = path[:2] == ("serving", "pools") and path[-1] not in ("accelerator", "model")
    parts = [("model",), *((*path, name) for name in HARDWARE)] if whole_pool else [path]
    return Fault(path, what, error.allowed, error.hint, because_of=tuple(parts))


def _resolve(spec: Scenario, file: Path) -> ScenarioPlan:
    """Resolves a scenario without faults; its paths are relative to the file's folder."""
    folder = file.parent
    slos = _slos(spec)
    written, spec = spec, located(spec, folder)
    scaling, manifests = spec.scaling, GangManifests()
    if spec.gangs is not None:
        from windtunnel.twin.scenario.infrastructure import gang_manifests

        manifests = gang_manifests(spec, file)
    setup = None
    if scaling is not None:
        from windtunnel.scaling.build import setup_of

        setup = setup_of(scaling, spec.serving.pools, folder)
    pools = [pool.with_defaults_of(spec.model) for pool in spec.serving.pools]
    serving = spec.serving.model_copy(update={"pools": pools, "disaggregation": spec.serving.split})
    workload = [
        at_its_rate(entry.model_copy(update={"model": entry.model or spec.model}))
        for entry in spec.workload
    ]
    filled = {
        "name": spec.name or _name_of(file),
        "workload": workload,
        "slo": slos,
        "serving": serving,
    }
    return ScenarioPlan(
        sections=spec.model_copy(update=filled),
        sha256=_digest(written, slos, folder),
        folder=folder,
        scaling=setup,
        manifests=manifests,
    )


def _digest(spec: Scenario, slos: dict[str, SloClass], folder: Path) -> str:
    """The digest of the values in force, independent of how they were written or set.

    The choices of `plan` are excluded: no run depends on them. The bytes of manifests are included:
    they matter as much as the scenario.
    """
    values = digest_data(spec)
    del values["plan"]
    for section in ("scaling", "gangs"):
        named = getattr(getattr(spec, section), "manifests", ())
        if named:
            values[section]["manifests"] = [
                [path, hashlib.sha256((folder / path).read_bytes()).hexdigest()] for path in named
            ]
    values["slo"] = {
        name: [slo.priority, slo.ttft_s, slo.tpot_s, slo.e2e_s] for name, slo in slos.items()
    }
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _name_of(file: Path) -> str:
    """The file's name without its extension, as a valid scenario name."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).lstrip("._-")
    return word[:LONGEST_NAME] or "scenario"


def _slos(spec: Scenario) -> dict[str, SloClass]:
    slos = {}
    for name in sorted({*BUILT_IN_PRIORITIES, *spec.slo}):
        slo = spec.slo.get(name, SloClass())
        slos[name] = slo.model_copy(update={"priority": priority_of(name, slo)})
    return slos


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of scenario files, for editors and other programs."""
    schema = Scenario.schema_of_files()
    _drop_titles(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windtunnel scenario",
        **schema,
    }


def _drop_titles(node: Any) -> None:
    """Removes the titles that only repeat a key."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for below in node.values():
            _drop_titles(below)
    elif isinstance(node, list):
        for below in node:
            _drop_titles(below)
