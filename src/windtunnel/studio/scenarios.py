"""Scenario files in a folder, and the faults of a text while it is being edited."""

import re
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.twin.scenario.load import document_of, load_document

MOST_FILES = 500
MOST_TEXT_BYTES = 1 << 20
SERVED = re.compile(rb"^serving:", re.MULTILINE)
LINE = re.compile(r":(\d+)(?::\d+)?$")


class ScenarioFiles:
    """The YAML files in a folder and its subfolders that contain scenarios."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def listed(self) -> list[str]:
        """Paths relative to the folder, sorted; `runs` and hidden folders are left out."""
        found = []
        for path in sorted(self.root.rglob("*.y*ml")):
            parts = path.relative_to(self.root).parts
            hidden = any(part.startswith(".") or part == "runs" for part in parts)
            if not hidden and _is_scenario(path):
                found.append("/".join(parts))
            if len(found) == MOST_FILES:
                break
        return found

    def path_of(self, name: str) -> Path:
        """A file in the folder; a name that leads elsewhere is rejected."""
        path = (self.root / name).resolve()
        if self.root not in path.parents or path.suffix not in (".yaml", ".yml"):
            raise InputError(f"{name[:200]!r} is not a scenario below this folder", where="file")
        return path

    def text_of(self, name: str) -> str:
        path = self.path_of(name)
        if path.exists() and not path.is_file():
            raise InputError("this is not a regular file", where=name)
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(MOST_TEXT_BYTES + 1)
        except (OSError, UnicodeError) as error:
            raise InputError(f"cannot read it: {error}", where=name) from error
        if len(text) > MOST_TEXT_BYTES:
            raise InputError("the file is over a mebibyte", where=name)
        return text


def _is_scenario(path: Path) -> bool:
    """Whether a file looks like a scenario; manifests and other YAML are not offered."""
    try:
        if not path.is_file():
            return False  # reading a pipe would wait for ever
        with path.open("rb") as file:
            return SERVED.search(file.read(MOST_TEXT_BYTES)) is not None
    except OSError:
        return False


def checked(text: str, file: Path) -> dict[str, Any]:
    """The name and seed of a valid text, or all its faults with their lines."""
    try:
        plan = load_document(document_of(text, str(file), (), None))
    except InputError as error:
        return {"faults": [_fault(fault, file) for fault in error.faults], "notes": []}
    return {"faults": [], "notes": list(plan.notes), "name": plan.name, "seed": plan.seed}


def _fault(fault: InputError, file: Path) -> dict[str, Any]:
    where = fault.where or ""
    line = LINE.search(where.split(" ")[0].rstrip(",:"))
    says = re.sub(rf"^{re.escape(str(file))}:( ?)", lambda m: "" if m[1] else "line ", str(fault))
    return {"line": int(line[1]) if line else None, "says": says}
