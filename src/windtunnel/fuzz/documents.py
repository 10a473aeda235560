"""Scenarios as files: written in readable form, complete or not at all, and read back.

A scenario may name files beside it: manifests and traces. Here everything is one document: the
content of those files is under `files`, which is not a key of a scenario.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.core.system.files import write_whole, writing
from windtunnel.settings.document import parse_document, parse_documents, read_text
from windtunnel.settings.drawing import Values

ENDING = ".yaml"
FILES = "files"
"""Key under which a document has the files beside the scenario: manifests or text by name."""
BESIDE = ".yml"
"""Suffix of files that are not scenarios, so that they can be in a folder of scenarios."""


def text_of(document: Values) -> str:
    """The scenario as YAML, in the order of its keys, without the files beside it."""
    return _text([{key: value for key, value in document.items() if key != FILES}])


def _text(documents: list[Any]) -> str:
    import yaml

    fast: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump_all(documents, Dumper=fast, sort_keys=False, width=100)
    return text


Put = Callable[[Path, bytes], object]
"""Writes a file. It need not be atomic in a folder that no other process reads."""


def write_document(path: Path, document: Values, note: str = "", *, put: Put = write_whole) -> None:
    """Writes a scenario with a note at its top, and the files it names beside it."""
    write_beside(path, document, put=put)
    lines = "".join(f"# {line}".rstrip() + "\n" for line in note.splitlines())
    _write(path, lines + text_of(document), put)


def write_beside(path: Path, document: Values, *, put: Put = write_whole) -> None:
    """Writes the files that a scenario at `path` names, beside it."""
    beside = document.get(FILES)
    if isinstance(beside, dict):
        for name, manifests in beside.items():
            listed = manifests if isinstance(manifests, list) else [manifests]
            text = manifests if isinstance(manifests, str) else _text(listed)
            _write(path.with_name(Path(name).name), text, put)


def _write(place: Path, text: str, put: Put) -> None:
    with writing(place, what="cannot write a failure"):
        put(place, text.encode())


def read_document(path: Path) -> Values:
    """Reads a file and those it names, unchecked; an InputError if it is not a scenario."""
    document: Values = parse_document(read_text(path), str(path)).data
    files: Values = {}
    for section in ("gangs", "scaling"):
        manifests = _list(_below(document, section, "manifests"))
        for name in (one for one in manifests if isinstance(one, str)):
            files[name] = _manifests(path.with_name(name))
    for entry in _list(document.get("workload")):
        name = _below(entry, "trace", "path")
        if isinstance(name, str):
            files[name] = read_text(path.with_name(name))
    if files:
        document[FILES] = files
    return document


def _below(value: Any, *keys: str) -> Any:
    """The value under these keys; None if one of them does not lead to a mapping."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    """The value if it is a list; else an empty list."""
    return value if isinstance(value, list) else []


def _manifests(path: Path) -> list[Values]:
    documents = parse_documents(read_text(path), str(path), "manifest", "kind and others")
    return [document.data for document in documents]


def files_in(folder: Path) -> list[Path]:
    """The scenarios of a folder, sorted by name; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix == ENDING and path.is_file())
