"""Faults that others' drivers of batches had, by their names; none may appear here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.batch.running import batch, prompts, write_rows
from tests.live.server import Server
from windtunnel.core.errors import OutputError
from windtunnel.live.batch.store import Store

Serve = Callable[..., Server]


def test_a_finalise_failure_loses_a_row_group_with_only_a_log_line(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written ends the run, is counted, and is asked for again; the rest is kept."""
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(30))
    finish = Store.finish_row
    failed: list[str] = []

    def fails_once(store: Store, line: dict[str, Any]) -> None:
        if line["custom_id"] == "r7" and not failed:
            failed.append(line["custom_id"])
            raise OutputError("cannot write: input/output error", where="out.jsonl")
        finish(store, line)

    monkeypatch.setattr(Store, "finish_row", fails_once)
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 4)
    assert (done.code, failed) == (2, ["r7"])
    assert "out.jsonl: cannot write: input/output error" in done.said
    assert "1 answer could not be written; it is asked for again." in done.said
    kept = set(done.answers)
    assert "r7" not in kept
    assert len(kept) == len(server.asked) - 1
    again = batch(tmp_path, "--endpoint", server.url, "--resume")
    assert (again.code, len(again.answers)) == (0, 30)
    assert server.prompts.count("say 7") == 2
    assert len(server.prompts) == 31


def test_1_rows_are_left(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is one, in every sentence."""

    def fails(store: Store, line: dict[str, Any]) -> None:
        raise OutputError("cannot write: no space left on device", where="out.jsonl")

    monkeypatch.setattr(Store, "finish_row", fails)
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", serve().url)
    assert "0 of 1 row is in " in done.said
    assert "1 row is left; this continues with it:" in done.said
