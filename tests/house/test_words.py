"""Plain technical English: house-made phrases stay out of the code, its messages and its docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    *("src", "docs", "examples", "benchmarks", "deploy"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
)
KINDS = {".md", ".py", ".yaml", ".json"}
NO_SUFFIX = {"Dockerfile"}
KEEPS = "(keep|kept|break|broke|hold|held)(s|ing|n)?"

BANNED = {
    r"whoever": "name it: the request, the client, the server",
    r"those who": "name them: requests, callers, users",
    r"what stands (before|between|in the way|on)": "evidence, limits, or what it is",
    r"(stands?|stood) behind": "evidence, or measured",
    rf"{KEEPS} [^.;:|]{{0,40}}promises?": "SLO attainment",
    rf"promises? [^.;:|]{{0,20}}{KEEPS}": "SLO attainment",
    r"within the promise": "within the SLO",
    r"nobody reads": "ignored",
    r"everybody keeps|is outbid": "name it: the need, the request",
    r"c(a|o)me to nothing": "was lost, failed",
    r"alone it is well": "passes when run alone",
    r"share of late": "recent refusal share",
    r"is the weather": "is noise",
    r"nothing beats": "Pareto front",
    r"on one side of none": "the 95 % confidence interval excludes zero",
    r"scale of ratios": "log scale",
    r"is there already": "already exists",
    r"(wait|stand|stay|keep|next|time)s? in line": "queued",
    r"mishaps?": "fault",
    r"nobody|somebody|everybody|everyone|anybody": "name it: no request, another program, all pods",
}

IN_PAGES = {
    r"whereabouts|footing|mishap": "the field's word",
    r"the line (grows|of requests)|stands? in (one|the) line": "queue",
    r"(is|are|be) told|told (when|to)": "notified, ordered",
    r"what came( of it)?": "what happened",
    r"made small": "shrunk",
    r"for ever": "permanently, endlessly",
    r"(holds?|held) ([^.;|]{0,40} )?against": "compares with",
    r"dear(est|er)|too dear": "most expensive",
    r"left out: ": "default: ",
    r"nothing of (the|it|this)": "none of, no",
    r"so many (times|more|seeds|calls|streams)": "the number, or this many",
    r"wrong by chance|lies a little|made to measure": "random, false, matching",
    r"as many as pay": "by load and cores",
}
"""The same for what users read: pages and examples, and settings, whose sentences are on a page."""
ELSEWHERE = {"CHANGELOG.md", "decisions", "src", "deploy", "benchmarks"}


def files() -> list[Path]:
    found = [path for place in PLACES for path in sorted((ROOT / place).rglob("*"))]
    found += [ROOT / place for place in PLACES if (ROOT / place).is_file()]
    return [
        path
        for path in found
        if (path.suffix in KINDS or path.name in NO_SUFFIX) and "_build" not in path.parts
    ]


def pages() -> list[Path]:
    """What users read, but for what tells of the past."""
    read = [path for path in files() if path.suffix in (".md", ".yaml")]
    return [path for path in read if not ELSEWHERE & set(path.relative_to(ROOT).parts)]


def test_every_place_is_read_and_a_promise_is_found_in_any_order() -> None:
    looked = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"CHANGELOG.md", "deploy/gateway.yaml", "deploy/Dockerfile"} <= looked
    for sentence in ("keeps 95 % of promises", "promises that are kept", "broke its promise"):
        assert any(re.search(rf"\b({words})\b", sentence) for words in BANNED)


@pytest.mark.parametrize(("words", "instead"), [*BANNED.items(), *IN_PAGES.items()])
def test_a_reader_needs_no_key(words: str, instead: str) -> None:
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in (files() if words in BANNED else pages())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"say {instead!r}: " + "; ".join(found[:10])
