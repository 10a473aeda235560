"""Runs `windtunnel batch` for tests: here in this process, or in one that can be killed."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli.main import main

PATIENCE_S = 120.0


class Done:
    """What a run left."""

    def __init__(self, code: int, said: str, folder: Path) -> None:
        self.code = code
        self.said = said
        self.folder = folder

    def __repr__(self) -> str:
        return f"Done({self.code}, {self.said[-200:]!r})"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read(self.folder / "out.jsonl")

    @property
    def errors(self) -> list[dict[str, Any]]:
        path = self.folder / "out.errors.jsonl"
        return read(path) if path.exists() else []

    @property
    def answers(self) -> dict[str, Any]:
        """The content of each finished row by its id."""
        return {line["custom_id"]: content(line) for line in self.lines}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def content(line: dict[str, Any]) -> str:
    choice = line["response"]["body"]["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def write_rows(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts(number: int) -> list[dict[str, Any]]:
    return [{"id": f"r{row}", "prompt": f"say {row}"} for row in range(number)]


def batch(folder: Path, *args: object, rows: str = "in.jsonl") -> Done:
    """In this process; the output is out.jsonl in the folder, and the input is there too."""
    said = io.StringIO()
    words = [str(folder / rows), *map(str, args), "-o", str(folder / "out.jsonl")]
    with redirect_stderr(said), redirect_stdout(said), pytest.raises(SystemExit) as left:
        main(["batch", *words])
    assert isinstance(left.value.code, int)
    return Done(left.value.code, said.getvalue(), folder)


def start(folder: Path, *args: object, **variables: str) -> "subprocess.Popen[str]":
    """In a process of its own."""
    command = [sys.executable, "-m", "windtunnel", "batch", str(folder / "in.jsonl")]
    words = [str(arg) for arg in args]
    return subprocess.Popen(
        [*command, *words, "-o", str(folder / "out.jsonl")],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
