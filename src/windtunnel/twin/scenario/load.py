"""Loads a scenario: text, overrides, checks, plan. Any fault in it is an InputError."""

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError, one_sentence_per
from windtunnel.models.catalog.models import resolve_model
from windtunnel.routing.build import POLICIES
from windtunnel.settings.checking import checked
from windtunnel.settings.document import Document, parse_document, read_text
from windtunnel.settings.faults import Fault, dotted, faults_at, input_error, notes_of
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
from windtunnel.workload.traces.reading import at_its_rate, check_rows

if TYPE_CHECKING:
    from windtunnel.twin.scenario.infrastructure import ReadSets

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


NAMES = (("name",), ("slo",), ("model",))
"""Keys of a workload entry on which nothing else in it depends."""


def load(path: str | Path, sets: Sequence[str] = (), seed: int | None = None) -> ScenarioPlan:
    """Loads the plan of a scenario file; `sets` are overrides such as `serving.pools.0.replicas=8`.

    Names in the file are looked up too: models, accelerators, profiles, tables, traces, and whether
    the model fits.
    """
    return load_document(document_of(read_text(path), str(path), sets, seed))


def load_document(document: Document) -> ScenarioPlan:
    """Loads the plan of a document whose values may have been changed since it was read."""
    return _plan(document, look_up=True)


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
    written = None
    if sets and "plan" in document.data:  # else what it needs is not imported: every autoscaler
        from windtunnel.search.settings import choice_of, drop_unused_prices

        written = choice_of(document.data)
    for override in sets:
        apply_override(document, override)
    if written is not None:
        drop_unused_prices(document.data, written, sets)
    if seed is not None:
        document.data["seed"] = seed
        document.put_place(("seed",), f"--seed {seed}")
    return document


def _plan(document: Document, *, look_up: bool = False) -> ScenarioPlan:
    """Checks a document and resolves its plan; names are looked up on demand."""
    file = Path(document.file)
    read: ReadSets | None = None

    def faults(spec: Scenario) -> list[Fault]:
        nonlocal read
        found: list[Fault] = []
        if spec.gangs is not None:
            from windtunnel.twin.scenario import infrastructure

            read = infrastructure.read_sets(spec, file.parent)
            spec = infrastructure.as_manifests_say(spec, read.sets)
            found += [*read.faults, *infrastructure.backing_faults(spec, read)]
        found += rule_faults(spec, file.parent)
        found += _scaling_faults(spec, file.parent, found)
        return found + (_name_faults(spec, file, found) if look_up else [])

    def trace_faults(spec: Scenario, found: Sequence[Fault]) -> list[Fault]:
        return _trace_faults(spec, file, found)

    spec, notes = checked(document, Scenario, faults, trace_faults if look_up else None)
    place = None
    if spec.serving.router.policy not in POLICIES:
        policy: KeyPath = ("serving", "router", "policy")
        place = f"{document.place(policy)}: {dotted(policy)}"
    manifests = GangManifests()
    if read is not None:
        from windtunnel.twin.scenario.infrastructure import as_manifests_say, gang_manifests

        spec = as_manifests_say(spec, read.sets)
        manifests = gang_manifests(spec, read)
    filled = _filled(spec, file)
    workload, wrong = _at_rates(filled.workload)
    if wrong:
        raise input_error(document, wrong)
    setup = None
    if filled.scaling is not None:
        from windtunnel.scaling.build import setup_of

        setup = setup_of(filled.scaling, filled.serving.pools, file.parent)
    return ScenarioPlan(
        sections=filled.model_copy(update={"workload": workload}),
        sha256=_digest(spec, filled.slo, file.parent),
        folder=file.parent,
        scaling=setup,
        manifests=manifests,
        router_place=place,
        notes=notes_of(document, [*notes, *_doubtful_seconds(document.data)]),
        overrides=tuple(document.overrides),
    )


def _scaling_faults(spec: Scenario, folder: Path, found: Sequence[Fault]) -> list[Fault]:
    """Reports faults of the manifests of an autoscaler."""
    if spec.scaling is None:
        return []
    from windtunnel.scaling.build import setup_of
    from windtunnel.scaling.manifests.settings import ManifestSettings

    if not isinstance(spec.scaling, ManifestSettings):
        return []
    path: KeyPath = ("scaling", "manifests")
    if any(one.path[:1] == ("scaling",) for one in found if not one.is_note):
        wrong = spec.scaling.faults_of_files(folder)
        return faults_at(path, one_sentence_per(wrong)) if wrong else []
    try:
        setup_of(spec.scaling, spec.serving.pools, folder)
    except InputError as error:
        return faults_at(path, error)
    return []


def _name_faults(spec: Scenario, file: Path, found: Sequence[Fault]) -> list[Fault]:
    """Reports names and files that do not exist, and pools that their hardware cannot hold."""
    broken = [one.path for one in found if not one.is_note]
    contradictory = {
        number
        for number in range(len(spec.serving.pools))
        for path in broken
        if path == ("model",)
        or (path[:3] == ("serving", "pools", number) and (len(path) == 3 or path[3] in HARDWARE))
    }
    plan = ScenarioPlan(sections=_filled(spec, file), sha256="", folder=file.parent)
    unsound = {path[1] for path in broken if path[0] == "workload" and path[2:] not in NAMES}
    names = hardware_faults(plan, frozenset(contradictory))
    if broken and spec.model is not None and all(pool.model != spec.model for pool in plan.pools):
        try:
            resolve_model(spec.model)
        except InputError as error:
            names.append((("model",), error))
    names += file_faults(plan.workload, unsound)
    return [_fault(place, error) for place, error in names if place not in broken]


def _trace_faults(spec: Scenario, file: Path, found: Sequence[Fault]) -> list[Fault]:
    """Reports rates and rows of traces that a run would refuse, except of files in `found`."""
    entries = _filled(spec, file).workload
    return [*_at_rates(entries)[1], *_row_faults(entries, {one.path for one in found})]


def _at_rates(entries: Sequence[WorkloadEntry]) -> tuple[list[WorkloadEntry], list[Fault]]:
    """The workload with the speedups that give replays their rates, and rates without one."""
    found: list[WorkloadEntry] = []
    faults: list[Fault] = []
    for index, entry in enumerate(entries):
        try:
            found.append(at_its_rate(entry))
        except InputError as error:
            faults += _of_trace(index, "rate", error)
    return found, faults


def _row_faults(entries: Sequence[WorkloadEntry], wrong: Container[KeyPath]) -> Iterator[Fault]:
    """Reports malformed rows of traces, except of those whose path is `wrong`."""
    for index, entry in enumerate(entries):
        trace: KeyPath = ("workload", index, "trace")
        if not isinstance(entry, ReplaySettings) or (*trace, "path") in wrong:
            continue
        try:
            check_rows(entry)
        except InputError as error:
            yield from _of_trace(index, "path", error)


def _of_trace(index: int, key: str, error: InputError) -> Iterator[Fault]:
    """What reading a trace to its end shows, which depends on how it is read."""
    entry: KeyPath = ("workload", index)
    reading = ("path", "format", "sort", "start", "skip_bad")
    because = ((*entry, "count"), *((*entry, "trace", name) for name in reading))
    for fault in faults_at((*entry, "trace", key), error):
        yield fault._replace(because_of=because)


def _doubtful_seconds(data: Mapping[str, Any]) -> Iterator[Fault]:
    """Notes about targets without a unit that are so large that milliseconds may be meant."""
    for name, targets in (data.get("slo") or {}).items():
        for key, longest_s in LONGEST_BARE_S.items():
            value = (targets or {}).get(key)
            if isinstance(value, int | float) and value > longest_s:
                what = f"{key} of {value:g} s: a bare number is seconds"
                hint = f"{value:g}ms? Write {value:g}s if seconds are meant"
                yield Fault(("slo", name, key), what, hint=hint, is_note=True)


def file_faults(
    entries: Sequence[WorkloadEntry], unsound: Container[int | str]
) -> list[tuple[KeyPath, InputError]]:
    """Reports faults of the files that a workload names, as far as opening them shows.

    Sources in `unsound`, whose values break rules, are left out.
    """
    faults: list[tuple[KeyPath, InputError]] = []
    for index, entry in enumerate(entries):
        if index in unsound and not isinstance(entry, ReplaySettings):
            continue
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


def _filled(spec: Scenario, file: Path) -> Scenario:
    """The scenario with its defaults filled in, and paths relative to the file's folder."""
    spec = located(spec, file.parent)
    pools = [pool.with_defaults_of(spec.model) for pool in spec.serving.pools]
    workload = [
        entry.model_copy(update={"model": entry.model or spec.model}) for entry in spec.workload
    ]
    filled = {
        "name": spec.name or _name_of(file),
        "workload": workload,
        "slo": _slos(spec),
        "serving": spec.serving.model_copy(
            update={"pools": pools, "disaggregation": spec.serving.split}
        ),
    }
    return spec.model_copy(update=filled)


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
