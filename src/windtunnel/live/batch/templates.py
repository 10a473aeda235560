"""Prompts with places for fields: `Summarise: {{ text }}`, in the language of Jinja.

What a template names is known before any row is read, so that columns can be put in order. A
field that is not there is a fault, never an empty place; `{{ text | default("") }}` allows for it.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from windtunnel.core.errors import InputError, WindtunnelError

LONGEST_PROMPT = 1 << 24
"""Characters; templates can multiply what they are given."""
TOO_LONG = f"the prompt would have more than {LONGEST_PROMPT:,} characters"
PADDING = ("center", "expandtabs", "ljust", "rjust", "zfill")
"""Methods that make a text as long as they are told."""
_LONG_WIDTH = re.compile(r"\d{7,}")


class Unfilled(WindtunnelError):
    """A template that cannot be filled from a row."""


class PromptTemplate:
    """A text with named places."""

    def __init__(self, text: str, where: str) -> None:
        from jinja2 import TemplateSyntaxError, meta

        self.where = where
        environment = _environment()
        try:
            tree = environment.parse(text)
            self._filled = environment.from_string(text)
        except TemplateSyntaxError as error:
            what = f"this is not a template: {error.message} (line {error.lineno} of it)"
            raise InputError(what, where=where) from None
        self.names = tuple(sorted(meta.find_undeclared_variables(tree)))
        self._plain = "" if self.names or "{" in text else text

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text for these values, or `Unfilled` with the reason."""
        if self._plain:
            return self._plain
        try:
            return self._render(values)
        except Unfilled:
            raise
        except Exception as error:
            raise Unfilled(f"{self.where}: {error}") from error

    def _render(self, values: Mapping[str, Any]) -> str:
        """Piece by piece: what would be too long is never there as a whole."""
        pieces, length = [], 0
        for piece in self._filled.generate(values):
            length += len(piece)
            if length > LONGEST_PROMPT:
                raise Unfilled(f"{self.where}: {TOO_LONG}")
            pieces.append(piece)
        return "".join(pieces)

    def lacks(self, values: Mapping[str, Any], later: Mapping[str, Any]) -> str:
        """The fault of a row for this template, or nothing; `later` are columns yet to come."""
        from jinja2 import UndefinedError

        missing = [name for name in self.names if name not in values and name not in later]
        if not missing:
            return ""
        try:
            self._render({**values, **later})
        except UndefinedError:
            return f"{self.where} needs {missing[0]!r}, which the row does not have"
        except Exception:  # noqa: BLE001 - what columns will hold is not known yet
            return ""
        return ""


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        """Refuses to make a text that is longer than any prompt, before the memory is gone."""

        intercepted_binops = frozenset(["*", "**", "%"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if _size(operator, left, right) > LONGEST_PROMPT:
                raise Unfilled(TOO_LONG)
            return super().call_binop(context, operator, left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return attr not in PADDING and super().is_safe_attribute(obj, attr, value)

    # Prompts are plain text: escaping for HTML would change them.
    bounded = Bounded(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    centred = bounded.filters["center"]

    def center(value: str, width: int = 80) -> Any:
        if width > LONGEST_PROMPT:
            raise Unfilled(TOO_LONG)
        return centred(value, width)

    bounded.filters["center"] = center
    return bounded


def _size(operator: str, left: Any, right: Any) -> int:
    """How large what an operator makes would be, where it can be far larger than what it takes."""
    if operator == "%":
        return LONGEST_PROMPT + 1 if isinstance(left, str) and _LONG_WIDTH.search(left) else 0
    if operator == "**":
        is_whole = isinstance(left, int) and isinstance(right, int)
        return left.bit_length() * max(0, right) if is_whole else 0
    for many, times in ((left, right), (right, left)):
        if isinstance(many, str | list | tuple) and isinstance(times, int):
            return len(many) * max(0, times)
    return 0
