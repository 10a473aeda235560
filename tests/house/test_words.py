"""Plain technical English: house-made phrases stay out of the code, its messages and its docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("src", "docs", "examples", "benchmarks", "README.md", "CONTRIBUTING.md")
KINDS = {".md", ".py", ".yaml"}

BANNED = {
    r"whoever": "name it: the request, the client, the server",
    r"those who": "name them: requests, callers, users",
    r"what stands (behind|before|between|in the way|on)": "evidence, limits, or what it is",
    r"promises? (are |is )?kept|kept promises?": "SLO attainment",
    r"nothing beats": "Pareto front",
    r"on one side of none": "the 95 % confidence interval excludes zero",
    r"scale of ratios": "log scale",
    r"is there already": "already exists",
    r"(wait|stand|stay|keep|next)s? in line": "queued",
    r"mishaps?": "fault",
}


def files() -> list[Path]:
    found = [path for place in PLACES for path in sorted((ROOT / place).rglob("*"))]
    found += [ROOT / place for place in PLACES if (ROOT / place).is_file()]
    return [path for path in found if path.suffix in KINDS and "_build" not in path.parts]


@pytest.mark.parametrize(("words", "instead"), BANNED.items())
def test_a_reader_needs_no_key(words: str, instead: str) -> None:
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"say {instead!r}: " + "; ".join(found[:10])
