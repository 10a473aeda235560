"""Server keys: read from the environment, sent in a request header, and written nowhere else.

Servers echo what they were sent, above all in errors. So everything that a command writes or prints
goes through `redact`, which removes every key that the run knows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_bounded

DEFAULT_ENV = "OPENAI_API_KEY"
INSTEAD = "[key]"
SHORTEST_SECRET = 8
"""Shorter keys (`EMPTY`, `none`) are placeholders; removing them would garble replies."""

LARGEST_TOKEN_FILE = 64 << 10


class Keys:
    """The keys of a run, by the environment variable of each."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._headers = {name: f"Bearer {key}" for name, key in keys.items()}
        written = {key for key in keys.values() if len(key) >= SHORTEST_SECRET}
        # Verbatim, and as escaped in a JSON string. Longest first: a form may contain another.
        forms = written | {msgspec.json.encode(key).decode()[1:-1] for key in written}
        self._texts = sorted(forms, key=lambda form: (-len(form), form))
        self._bytes = [form.encode() for form in self._texts]

    def header(self, name: str) -> str:
        """The value of the authorization header; empty without a key."""
        return self._headers.get(name, "")

    def redact(self, json: bytes) -> bytes:
        """Removes keys from a JSON text; the result is still JSON, in most cases unchanged."""
        if not any(form in json for form in self._bytes):
            return json
        cleaned = msgspec.json.encode(self._clean(msgspec.json.decode(json)))
        for form in self._bytes:  # a key that is itself a piece of JSON
            cleaned = cleaned.replace(form, INSTEAD.encode())
        return cleaned

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {self.redact_text(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._clean(inner) for inner in value]
        is_key = any(form in str(value) for form in self._texts)
        return INSTEAD if is_key else value

    def redact_text(self, text: str) -> str:
        for form in self._texts:
            text = text.replace(form, INSTEAD)
        return text

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._headers)})"


def read_token(path: Path, subject: str = "the token") -> str:
    """Reads the token in a file; `subject` begins the error messages."""
    return checked_token(read_bounded(path, LARGEST_TOKEN_FILE, subject=subject), subject)


def checked_token(content: bytes, subject: str = "the token") -> str:
    """Returns a token without surrounding whitespace; it must be valid in a header."""
    token = content.decode(errors="replace").strip()
    if not _visible(token):
        raise InputError(f"{subject} has a character that no token has")
    return token


def _visible(key: str) -> bool:
    return all("!" <= letter <= "~" for letter in key)


def named_key(named: str | None, environment: Mapping[str, str]) -> str:
    """The variable that holds the key: the named one, or the default where that is set."""
    return named or (DEFAULT_ENV if environment.get(DEFAULT_ENV, "").strip() else "")


def read_keys(
    names: Sequence[str], environment: Mapping[str, str], where: str = "--key-env"
) -> Keys:
    """Reads the keys in these variables; raises InputError, located at `where`, if one is unset."""
    keys = {}
    for name in dict.fromkeys(names):
        key = environment.get(name, "").strip()
        if not key:
            raise InputError(
                f"the environment variable {name} is not set",
                where=where,
                hint=f"export {name}=...",
            )
        if not _visible(key):
            raise InputError(
                f"the key in {name} has a character that no key has",
                where=where,
                allowed="visible ASCII characters without spaces",
            )
        keys[name] = key
    return Keys(keys)
