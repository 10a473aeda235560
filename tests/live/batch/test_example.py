"""The example of a batch runs, and does what its paragraph says."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.live.batch.running import batch
from tests.live.server import Server

EXAMPLE = Path(__file__).parents[3] / "examples" / "batch"


def test_columns_of_the_articles(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    (tmp_path / "in.jsonl").write_bytes((EXAMPLE / "articles.jsonl").read_bytes())
    columns = ("--columns", EXAMPLE / "columns.yaml", "--endpoint", f"local={server.url}")
    done = batch(tmp_path, *columns, "--tenant-field", "paper")
    assert done.code == 0, done.said
    assert len(server.asked) == 4 * len(done.lines) == 24
    page = next(line for line in done.lines if line["custom_id"] == "tide")
    assert next(iter(page["columns"])) == "summary"
    assert "MORNING PAPER" in page["columns"]["page"]
    assert page["columns"]["title"] in page["columns"]["page"]


def test_requests_in_openais_format(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve(models=("llama-3.1-8b",))
    (tmp_path / "in.jsonl").write_bytes((EXAMPLE / "requests.jsonl").read_bytes())
    assert batch(tmp_path, "--endpoint", server.url).code == 0
    assert len(server.asked) == 3


def test_the_commands_at_its_top_name_files_that_are_there() -> None:
    words = re.findall(r"examples/batch/\S+", (EXAMPLE / "columns.yaml").read_text())
    assert len(words) == 2
    assert all((EXAMPLE.parents[1] / word).is_file() for word in words)
