"""The two sides of a check: the files of each, and the plan built from them.

A side is a scenario, or a file applied on top of one: sections, as in a gateway's configuration, or
Kubernetes manifests.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.gangs.api.load import KINDS as GANG_KINDS
from windtunnel.scaling.kubernetes.autoscaler import AUTOSCALER, autoscaler_plan
from windtunnel.scaling.kubernetes.plan import InvalidPlan
from windtunnel.scaling.manifests.load import KINDS as SCALING_KINDS
from windtunnel.search.check.revisions import SHORT, Revisions
from windtunnel.settings.document import Document, Plain, parse_document, parse_documents, read_text
from windtunnel.settings.manifests import KEYS, NOUN
from windtunnel.settings.overrides import apply_override
from windtunnel.twin.scenario.load import load_document
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.traces.gateway_folder import one_trace

BASE, HEAD, TRACE, LAST, ON = "--base", "--head", "--trace", "--last", "--scenario"
LIVE = "live"
"""The section of a gateway's configuration that sets where it listens; not part of a scenario."""
MERGED = ("serving", "slo")
"""Sections in which a side replaces single keys: naming a router keeps the pools."""
WORKING_TREE = "working tree"


class CheckInput(NamedTuple):
    """The files, revisions and options of a check."""

    files: Sequence[Path]
    """Base and changed; or a single file, with `base`."""
    base: str | None = None
    """The Git revision whose file is the base."""
    head: str | None = None
    """The Git revision of the changed file; None: the working tree."""
    scenario: Path | None = None
    trace: Path | None = None
    sets: Sequence[str] = ()
    seed: int | None = None
    last_s: float | None = None
    """How much of the end of a gateway's trace is replayed; None: all of it."""


class CheckSide(NamedTuple):
    """A plan with its display name."""

    name: str
    plan: ScenarioPlan


class _SideFiles(NamedTuple):
    name: str
    file: Path
    scenario: Path | None
    tree: Path | None = None
    """The folder into which the revision was unpacked."""


def sides_of(given: CheckInput, stack: ExitStack) -> tuple[CheckSide, CheckSide]:
    """Base and changed; `stack` holds the temporary files that their runs need."""
    base, changed = _files(given, stack)
    if given.last_s is not None and given.trace is None:
        raise InputError("there is no recorded traffic to cut", where=LAST, hint=f"add {TRACE}")
    trace = None if given.trace is None else one_trace(given.trace, stack, given.last_s)
    plan = _plan(base, given, trace, given.seed)
    # One seed for both sides, or they would get different traffic.
    other = _plan(changed, given, trace, plan.seed)
    return CheckSide(base.name, plan), CheckSide(changed.name, other)


def _files(given: CheckInput, stack: ExitStack) -> tuple[_SideFiles, _SideFiles]:
    if given.base is None:
        if given.head is not None:
            raise InputError("there is no revision to compare with", where=HEAD, hint="add --base")
        if len(given.files) != 2:
            what = f"there {'is one file' if len(given.files) == 1 else 'are too many files'}"
            hint = "give BASE and CHANGED, or one file and --base REVISION"
            raise InputError(what if given.files else "there is nothing to check", hint=hint)
        one, other = given.files
        same = one.name == other.name
        return (
            _SideFiles(str(one) if same else one.stem, one, given.scenario),
            _SideFiles(str(other) if same else other.stem, other, given.scenario),
        )
    if len(given.files) != 1:
        what = f"there are {len(given.files)} files"
        raise InputError(
            what, where=BASE, allowed="one file, compared with itself at this revision"
        )
    (file,) = given.files
    revisions = stack.enter_context(Revisions(file))
    return (
        _at(revisions, given.base, BASE, file, given.scenario),
        _SideFiles(WORKING_TREE, file, given.scenario)
        if given.head is None
        else _at(revisions, given.head, HEAD, file, given.scenario),
    )


def _at(
    revisions: Revisions, revision: str, option: str, file: Path, scenario: Path | None
) -> _SideFiles:
    """A side at a revision; a scenario missing there is read from the working tree."""
    commit = revisions.commit(revision, f"{option} {revision}")
    name = revision if commit.startswith(revision) else f"{revision} ({commit[:SHORT]})"
    there = revisions.file(commit, file, f"{option} {revision}")
    if scenario is not None:
        scenario = revisions.find(commit, scenario) or scenario
    return _SideFiles(name, there, scenario, revisions.tree(commit))


def _plan(
    side: _SideFiles, given: CheckInput, trace: Path | None, seed: int | None
) -> ScenarioPlan:
    try:
        document = _document(side)
        if trace is not None:
            _replay(document, trace, f"{TRACE} {given.trace}")
        for override in given.sets:
            apply_override(document, override)
        if seed is not None:
            document.data["seed"] = seed
            document.put_place(("seed",), f"--seed {seed}")
        return load_document(document)
    except InputError as error:
        if side.tree is not None:
            _leave_out(f"{side.tree}/", error)
        if side.tree is not None or side.file != given.files[-1]:
            error.say_of(side.name)
        raise


def _leave_out(folder: str, error: InputError) -> None:
    """Makes paths within the folder relative in an error's text."""
    for one in (error, *error.faults):
        one.what = one.what.replace(folder, "")
        one.where = one.where and one.where.replace(folder, "")


def _document(side: _SideFiles) -> Document:
    text = read_text(side.file)
    kinds = _kinds(text, str(side.file))
    if side.scenario is None:
        if kinds:
            what = "these are Kubernetes manifests: a check needs the servers and the traffic that "
            what += "they act on"
            raise InputError(what, where=str(side.file), hint=f"{ON} names a scenario with them")
        return parse_document(text, str(side.file))
    whole = parse_document(read_text(side.scenario), str(side.scenario))
    if kinds:
        own = AUTOSCALER in kinds
        if own:
            _lay_autoscaler(whole, parse_documents(text, str(side.file), NOUN, KEYS), side.file)
        if not own or any(kind in GANG_KINDS for kind in kinds):
            _lay_manifests(whole, side.file, kinds)
    else:
        _lay_sections(whole, parse_document(text, str(side.file), "configuration", "serving"))
    return whole


def _kinds(text: str, file: str) -> list[str]:
    """The kinds of the Kubernetes objects in a file; empty if it is not a manifest file."""
    if "apiVersion" not in text:
        return []
    documents = parse_documents(text, file, NOUN, KEYS)
    return [str(one.data.get("kind")) for one in documents if "apiVersion" in one.data]


def _lay_manifests(whole: Document, file: Path, kinds: Sequence[str]) -> None:
    """Replaces the manifests that a scenario names with those of a file."""
    place = os.path.abspath(file)
    known = {"scaling": SCALING_KINDS, "gangs": GANG_KINDS}
    found = [name for name, table in known.items() if any(kind in table for kind in kinds)]
    if not found:
        what = f"no manifest in it scales or groups pods: {', '.join(dict.fromkeys(kinds))}"
        allowed = ", ".join((*SCALING_KINDS, *GANG_KINDS))
        raise InputError(what, where=str(file), allowed=allowed)
    for name in found:
        old = whole.data.get(name)
        kept = old if isinstance(old, dict) and "manifests" in old else {}
        whole.data[name] = {**kept, "manifests": [place]}
        whole.put_place((name,), str(file))


def _lay_autoscaler(whole: Document, documents: Sequence[Document], file: Path) -> None:
    """Replaces the scenario's `scaling` section with that of our own kind of manifest."""
    found = [one for one in documents if one.data.get("kind") in (AUTOSCALER, *SCALING_KINDS)]
    if len(found) > 1:
        kinds = ", ".join(str(one.data["kind"]) for one in found)
        what = f"it has {len(found)} manifests that scale: {kinds}"
        raise InputError(what, where=str(file), allowed=f"one {AUTOSCALER}, and nothing beside it")
    spec = found[0].data.get("spec")
    try:
        autoscaler_plan("default", "checked", spec if isinstance(spec, dict) else {})
    except InvalidPlan as error:
        raise InputError(str(error), where=str(file)) from None
    assert isinstance(spec, dict)
    whole.data["scaling"] = spec["scaling"]
    whole.put_place(("scaling",), found[0].place(("spec", "scaling")))
    start_within_bounds(whole.data)


def _lay_sections(whole: Document, part: Document) -> None:
    """Replaces the scenario's sections with those of a file; in `serving` and `slo`, single
    keys."""
    for name, value in part.data.items():
        if name == LIVE:
            continue
        old = whole.data.get(name)
        if name in MERGED and isinstance(value, dict) and isinstance(old, dict):
            for key, below in value.items():
                old[key] = below
                whole.put_place((name, key), part.place((name, key)))
        else:
            whole.data[name] = value
            whole.put_place((name,), part.place((name,)))
    start_within_bounds(whole.data)


def start_within_bounds(data: dict[str, Plain]) -> None:
    """Clamps the initial replicas of each pool to the bounds under `scaling`."""
    match data:
        case {"serving": {"pools": list(pools)}, "scaling": {"pools": dict(bounds)}}:
            for pool in pools:
                if isinstance(pool, dict):
                    match pool, bounds.get(str(pool.get("name"))):
                        case {"replicas": int(size)}, {"min": int(least), "max": int(most)}:
                            pool["replicas"] = min(max(size, least), most)


def _replay(document: Document, trace: Path, place: str) -> None:
    """Replaces the scenario's traffic with the whole trace.

    Trace options and request attributes of the scenario's own trace apply to this one too. So do
    the model and the SLO class of generated traffic where all entries agree: without them requests
    would have no latency targets, and an outage would pass.
    """
    old = document.data.get("workload")
    entries = [one for one in old if isinstance(one, dict)] if isinstance(old, list) else []
    entry: dict[str, Plain] = {}
    if entries and isinstance(entries[0].get("trace"), dict):
        entry = dict(entries[0])
    elif entries:
        for key, inherited in (("slo", "default_slo"), ("model", "model")):
            first = entries[0].get(key)
            if first is not None and all(one.get(key) == first for one in entries):
                entry[inherited] = first
    options = entry.get("trace")
    read = options if isinstance(options, dict) else {}
    entry["trace"] = {**read, "path": os.path.abspath(trace)}
    document.data["workload"] = [entry]
    document.put_place(("workload",), place)
    if document.data.pop("duration", None) is not None:
        document.put_place(("duration",), place)
