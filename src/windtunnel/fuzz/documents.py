"""Scenarios as files: written as a person would, whole or not at all, and read again."""

import os
from pathlib import Path
from typing import Any

from windtunnel.core.errors import OutputError
from windtunnel.core.spec.yaml_source import parse_document, read_text
from windtunnel.fuzz.drawing.dice import Section

ENDING = ".yaml"
SHORTEST_FLOW = 2


def text_of(document: Section) -> str:
    """The scenario as YAML, in the order of its keys."""
    import yaml

    fast: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=fast, sort_keys=False, width=100)
    return text


def write_document(path: Path, document: Section, note: str) -> None:
    """Puts a scenario at its place with a note above it; a torn file is never there."""
    lines = "".join(f"# {line}".rstrip() + "\n" for line in note.splitlines())
    draft = path.with_name(f".draft-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(lines + text_of(document), encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write a failure: {reason}", where=str(path)) from error


def read_document(path: Path) -> Section:
    """What a file has, unchecked; what is no scenario at all is an InputError."""
    return parse_document(read_text(path), str(path)).data


def files_in(folder: Path) -> list[Path]:
    """The scenarios of a folder by name; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix == ENDING and path.is_file())
