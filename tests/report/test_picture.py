"""The pictures of the documentation show what commands print today."""

import runpy
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def words_in(picture: Path) -> list[str]:
    """The lines of text in a picture, spaces made one."""
    lines: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for text in ElementTree.parse(picture).iter(f"{SVG}text"):
        if text.get("clip-path"):
            lines[float(text.attrib["y"])].append((float(text.attrib["x"]), text.text or ""))
    joined = (" ".join(part for _, part in sorted(parts)) for _, parts in sorted(lines.items()))
    return [" ".join(line.split()) for line in joined if line.strip()]


@pytest.mark.parametrize(
    ("screen", "picture"), [("screen", "PICTURE"), ("gangs_screen", "GANGS_PICTURE")]
)
def test_a_picture_is_of_the_present_output(screen: str, picture: str) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "picture.py"))
    shown = script[screen]().export_text().splitlines()
    expected = [" ".join(line.split()) for line in shown if line.strip()]
    assert words_in(script[picture]) == expected, "run python docs/picture.py"


@pytest.mark.parametrize("name", ["first", "gangs"])
def test_a_picture_fetches_nothing(name: str) -> None:
    text = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert text.count("http") == text.count("http://www.w3.org/2000/svg")


def test_the_readme_has_it() -> None:
    assert "](docs/images/first.svg)" in (ROOT / "README.md").read_text()
