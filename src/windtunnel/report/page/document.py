"""Renders one HTML file from a template: it loads nothing, and escapes names given by users."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

TEMPLATES = Path(__file__).with_name("templates")


class _TemplateCache(FileSystemBytecodeCache):
    """Caches compiled templates beside their sources, as Python does for modules, if it can."""

    def __init__(self) -> None:
        folder = TEMPLATES / "__pycache__"
        super().__init__(str(folder), f"%s.{sys.implementation.cache_tag}.jinja")
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                folder.mkdir(exist_ok=True)

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)


def code_spans(text: str) -> Markup:
    """A sentence, in which what is between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def document(
    template: str,
    values: Mapping[str, Any],
    *,
    styles: Sequence[str],
    filters: Mapping[str, Callable[..., Any]],
    script: str | None = None,
    hover: Any = None,
    asks_itself: bool = False,
) -> str:
    """Renders a page. Styles and the script are files beside the template; the script reads
    `hover`.

    A page with `asks_itself` is served by a program, from which it may fetch more.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_TemplateCache(),
    )
    environment.filters |= {"code_spans": code_spans, **filters}
    style = "".join(_text(name) for name in styles)
    code = _text(script) if script is not None else ""
    return environment.get_template(template).render(
        **values,
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(code),  # noqa: S704 - our own file
        policy=_policy(style, code) + ("; connect-src 'self'" if asks_itself else ""),
        hover=Markup(_json_in_html(hover)),  # noqa: S704 - escaped there
    )


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _json_in_html(value: Any) -> str:
    """JSON that cannot close the element it is embedded in."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(style: str, script: str) -> str:
    """The content security policy: run this script, use this style, load nothing."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    code = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{code}'"
