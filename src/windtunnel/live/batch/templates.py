"""Prompts with places for fields: `Summarise: {{ text }}`, in the language of Jinja.

What a template names is known before any row is read, so that columns can be put in order. A
field that is not there is a fault, never an empty place; `{{ text | default("") }}` allows for it.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from windtunnel.core.errors import InputError, WindtunnelError

LONGEST_PROMPT = 1 << 24
"""Characters; templates can multiply what they are given."""


class Unfilled(WindtunnelError):
    """A template that cannot be filled from a row."""


class Template:
    """A text with named places."""

    def __init__(self, text: str, where: str) -> None:
        from jinja2 import TemplateSyntaxError, meta

        self.where = where
        environment = _environment()
        try:
            tree = environment.parse(text)
            self._filled = environment.from_string(text)
        except TemplateSyntaxError as error:
            what = f"this is no template: {error.message} (line {error.lineno} of it)"
            raise InputError(what, where=where) from None
        self.names = tuple(sorted(meta.find_undeclared_variables(tree)))
        self._plain = "" if self.names or "{" in text else text

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text for these values, or `Unfilled` with the reason."""
        if self._plain:
            return self._plain
        try:
            text: str = self._filled.render(values)
        except Exception as error:
            raise Unfilled(f"{self.where}: {error}") from error
        if len(text) > LONGEST_PROMPT:
            raise Unfilled(f"{self.where}: the prompt has {len(text)} characters")
        return text

    def lacks(self, values: Mapping[str, Any], later: Mapping[str, Any]) -> str:
        """The fault of a row for this template, or nothing; `later` are columns yet to come."""
        from jinja2 import UndefinedError

        missing = [name for name in self.names if name not in values and name not in later]
        if not missing:
            return ""
        try:
            self._filled.render({**values, **later})
        except UndefinedError:
            return f"{self.where} needs {missing[0]!r}, which the row does not have"
        except Exception:  # noqa: BLE001 - what columns will hold is not known yet
            return ""
        return ""


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Prompts are plain text: escaping for HTML would change them.
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
