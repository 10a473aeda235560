"""Compiled templates are kept where Python may keep its own, and pages do not depend on them."""

import shutil
import sys
from pathlib import Path

import pytest

from windtunnel.report.page import document as module


def page() -> str:
    return module.document("base.html", {"kind": "page"}, styles=(), filters={})


def test_a_compiled_template_is_kept_and_a_damaged_one_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(module, "TEMPLATES", shutil.copytree(module.TEMPLATES, tmp_path / "t"))
    shutil.rmtree(module.TEMPLATES / "__pycache__", ignore_errors=True)
    first = page()
    (kept,) = (module.TEMPLATES / "__pycache__").iterdir()
    content = kept.read_bytes()
    assert page() == first
    kept.write_bytes(content[:-40])
    assert page() == first
    assert kept.read_bytes() == content


def test_templates_in_a_folder_that_cannot_be_written_to_are_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(module, "TEMPLATES", shutil.copytree(module.TEMPLATES, tmp_path / "t"))
    shutil.rmtree(module.TEMPLATES / "__pycache__", ignore_errors=True)
    (module.TEMPLATES / "__pycache__").write_text("no folder")
    assert "<html" in page()


def test_what_is_between_backticks_is_code() -> None:
    assert str(module.code_spans("a `count` & <b>")) == "a <code>count</code> &amp; &lt;b&gt;"
    assert str(module.code_spans("it's `<i>")) == "it&#39;s `&lt;i&gt;"
