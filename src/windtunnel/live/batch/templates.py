"""Prompt templates with fields, in Jinja syntax: `Summarise: {{ text }}`.

The names in a template are known before any row is read, so that columns can be ordered. A missing
field is an error, never an empty string, unless `{{ text | default("") }}` allows for it.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from windtunnel.core.errors import InputError, WindtunnelError

LONGEST_PROMPT = 1 << 24
"""In characters; templates can multiply the length of their input."""
TOO_LONG = f"the prompt would have more than {LONGEST_PROMPT:,} characters"
PADDING = ("center", "expandtabs", "ljust", "rjust", "zfill")
"""String methods that pad a text to a given length."""
_LONG_WIDTH = re.compile(r"\d{7,}")


class Unfilled(WindtunnelError):
    """A template that cannot be filled from a row."""


class PromptTemplate:
    """A prompt template."""

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
        """The text for these values; raises `Unfilled` with the reason if there is none."""
        if self._plain:
            return self._plain
        try:
            return self._render(values)
        except Unfilled:
            raise
        except Exception as error:
            raise Unfilled(f"{self.where}: {error}") from error

    def _render(self, values: Mapping[str, Any]) -> str:
        """Renders piece by piece, so that a text that is too long is never held as a whole."""
        pieces, length = [], 0
        for piece in self._filled.generate(values):
            length += len(piece)
            if length > LONGEST_PROMPT:
                raise Unfilled(f"{self.where}: {TOO_LONG}")
            pieces.append(piece)
        return "".join(pieces)

    def lacks(self, values: Mapping[str, Any], later: Mapping[str, Any]) -> str:
        """What the row lacks for this template; empty if nothing. `later`: columns still to
        come."""
        from jinja2 import UndefinedError

        missing = [name for name in self.names if name not in values and name not in later]
        if not missing:
            return ""
        try:
            self._render({**values, **later})
        except UndefinedError:
            return f"{self.where} needs {missing[0]!r}, which the row does not have"
        except Exception:  # noqa: BLE001 - the columns' content is not known yet
            return ""
        return ""


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        """Refuses to build a text longer than any prompt, before memory runs out."""

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
    """The size of an operator's result, where it can far exceed its operands."""
    if operator == "%":
        return LONGEST_PROMPT + 1 if isinstance(left, str) and _LONG_WIDTH.search(left) else 0
    if operator == "**":
        is_whole = isinstance(left, int) and isinstance(right, int)
        return left.bit_length() * max(0, right) if is_whole else 0
    for many, times in ((left, right), (right, left)):
        if isinstance(many, str | list | tuple) and isinstance(times, int):
            return len(many) * max(0, times)
    return 0
