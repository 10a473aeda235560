"""The documentation builds, without a warning, and its pages lead somewhere."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import windtunnel
from windtunnel.models.catalog.accelerators import ACCELERATORS
from windtunnel.models.catalog.models import MODELS

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "examples"
"""Pages that a build writes and git ignores; tests/house/test_gallery.py looks at them."""
WRITTEN = [page for page in (ROOT / "docs").rglob("*.md") if GENERATED not in page.parents]
PAGES = sorted([*ROOT.glob("*.md"), *WRITTEN, ROOT / "examples/README.md"])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the documentation tools are not installed")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-D", "run_examples=0"]
    folders = ["-d", str(tmp_path / "doctrees"), str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "examples/index.html" in (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "html" / "search.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors_of(page: Path) -> set[str]:
    """What GitHub and MyST both make of the headings of a page."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_into_pages_lead_to_a_heading(page: Path) -> None:
    links = ANCHOR.findall(page.read_text(encoding="utf-8"))
    lost = [
        f"{path}#{anchor}"
        for path, anchor in links
        if anchor not in anchors_of(page.parent / path if path else page)
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_nothing_on_a_page_is_for_sphinx_alone(page: Path) -> None:
    """GitHub shows a directive as it is written; only the front page has one, its contents."""
    directives = re.findall(r"^`{3,}\{(\w+)\}", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(directives) <= ({"toctree"} if page == ROOT / "docs" / "index.md" else set())


@pytest.mark.parametrize(("example", "start"), [("first", "workload:"), ("physics", "serving:")])
def test_the_tutorial_shows_the_examples_as_they_are(example: str, start: str) -> None:
    whole = (ROOT / "examples" / f"{example}.yaml").read_text(encoding="utf-8")
    tutorial = (ROOT / "docs" / "tutorial" / "first-run.md").read_text(encoding="utf-8")
    assert f"```yaml\n{whole[whole.index(start) :]}```\n" in tutorial


@pytest.mark.parametrize("target", ["make demo", "make test"])
def test_the_readme_shows_the_two_commands(target: str) -> None:
    assert f"    {target}" in (ROOT / "README.md").read_text()


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert max(len(re.sub(r"\]\([^)]*\)", "]", cell)) for cell in cells) <= 100  # two lines


def test_every_make_target_that_is_spoken_of_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    spoken = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert spoken
    assert spoken <= targets


def test_the_catalog_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "catalog_reference.py"))["page"]()
    written = (ROOT / "docs" / "reference" / "catalog.md").read_text(encoding="utf-8")
    assert written == page, "run `python docs/catalog_reference.py`"


def test_the_readme_counts_the_catalog_right() -> None:
    counts = f"{len(MODELS)} models and {len(ACCELERATORS)} accelerators"
    assert counts in (ROOT / "README.md").read_text()


WALK = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_the_walks_through_the_code_name_what_is_there() -> None:
    """CONTRIBUTING.md follows a request, a pod and a machine, in at most 15 steps each."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = WALK.findall(text)
    assert len(steps) > 30
    for file, function in steps:
        source = (ROOT / "src" / "windtunnel" / file).read_text(encoding="utf-8")
        assert re.search(rf"^\s*def {function}\(", source, re.MULTILINE), f"{file}::{function}"
    walks = text.split("### ")[1:4]
    assert [walk.splitlines()[0] for walk in walks] == ["A request", "A pod", "A machine"]
    assert all(1 < len(WALK.findall(walk)) <= 15 for walk in walks)


def test_a_citation_names_the_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == windtunnel.__version__
