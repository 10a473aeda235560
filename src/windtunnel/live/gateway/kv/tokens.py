"""Prompts as chains of hashed tokens, using the models' tokenizers (extra `tokenizers`).

A key identifies all tokens up to a boundary: every 64 tokens at first, later every 512. A server's
cache and a client's prompt have the same keys if they have the same tokens.
"""

import array
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import xxhash

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_bounded

UNIT: Final = 16
FIRST_STRIDE: Final = 64
LATER_STRIDE: Final = 512
FIRST_TOKENS: Final = 4096
MOST_KEYED: Final = 131_072
"""In tokens of a prompt; the rest is not compared."""
MOST_TOKENIZED: Final = 64 << 10
"""In characters of a prompt; the rest is estimated. A tokenizer takes about 10 ms for this many."""
LARGEST_CONFIG: Final = 16 << 20
MOST_READ: Final = 1 << 20
"""Bytes of a prompt that the chat template is applied to; larger prompts are only estimated."""
UNSURE: Final = 32
"""Tokens before a cut that may differ from those of the whole text."""


class TokenChain(NamedTuple):
    """Tokens so far: the hash of whole units, their number, and the tokens of the last unit."""

    state: int
    tokens: int
    rest: tuple[int, ...]

    @staticmethod
    def start(model: str, salt: str) -> "TokenChain":
        return TokenChain(xxhash.xxh3_64_intdigest(f"{model}\0{salt}".encode()), 0, ())

    def marked(self, mark: str) -> "TokenChain":
        """The chain with a marker for something that is not a token."""
        return self._replace(state=xxhash.xxh3_64_intdigest(mark.encode(), self.state))

    def extended(self, more: Any) -> tuple["TokenChain", list[tuple[int, int]]]:
        """The chain with more tokens, and the state and end of each boundary reached."""
        state, count = self.state, self.tokens
        data = array.array("q", (*self.rest, *more))
        whole = len(data) - len(data) % UNIT
        found = []
        for place in range(0, whole, UNIT):
            state = xxhash.xxh3_64_intdigest(data[place : place + UNIT].tobytes(), state)
            count += UNIT
            if count % (FIRST_STRIDE if count <= FIRST_TOKENS else LATER_STRIDE) == 0:
                found.append((state, count))
        return TokenChain(state, count, tuple(data[whole:])), found


class TokenizedPrompt(NamedTuple):
    tokens: int
    boundaries: list[tuple[int, int]]
    """The chain's state at each boundary, and the boundary's token position."""


class SpecialToken(msgspec.Struct):
    content: str


class NamedTemplate(msgspec.Struct):
    name: str
    template: str


class TokenizerConfig(msgspec.Struct):
    """The fields that are read from tokenizer_config.json."""

    bos_token: str | SpecialToken | None = None
    eos_token: str | SpecialToken | None = None
    chat_template: str | list[NamedTemplate] | None = None


class ModelTokenizer:
    """The tokenizer and chat template of one model."""

    def __init__(self, folder: Path) -> None:
        import jinja2.sandbox
        import tokenizers

        file = folder / "tokenizer.json" if folder.is_dir() else folder
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001 - the library raises Exception itself
            raise InputError(f"no tokenizer can be loaded: {error}", where=str(file)) from None
        settings = file.parent / "tokenizer_config.json"
        try:
            data = read_bounded(settings, LARGEST_CONFIG) if settings.is_file() else b"{}"
            config = msgspec.json.decode(data, type=TokenizerConfig)
            self._names: Final = {
                "bos_token": _content(config.bos_token),
                "eos_token": _content(config.eos_token),
            }
            written = config.chat_template
            if isinstance(written, list):
                written = next((one.template for one in written if one.name == "default"), "")
            self._template: Any = None
            if written:
                world = jinja2.sandbox.ImmutableSandboxedEnvironment(
                    trim_blocks=True, lstrip_blocks=True
                )
                world.globals["raise_exception"] = _refuse
                self._template = world.from_string(written)
        except (OSError, UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"this cannot be read: {error}", where=str(settings)) from None
        except jinja2.TemplateError as error:
            what = f"the chat template cannot be used: {error}"
            raise InputError(what, where=str(settings)) from None

    def read(self, body: dict[str, Any], model: str, salt: str) -> TokenizedPrompt | None:
        """The tokens of a request; None if they depend on something unknown here."""
        prompt = body.get("prompt")
        if isinstance(prompt, list) and prompt and all(isinstance(one, int) for one in prompt):
            return self._chained(prompt, len(prompt), model, salt)
        if isinstance(prompt, str):
            text, is_chat = prompt, False
        else:
            rendered = self._rendered(body)
            if rendered is None:
                return None
            text, is_chat = rendered, True
        ids = self._tokenizer.encode(text[:MOST_TOKENIZED], add_special_tokens=not is_chat).ids
        count = len(ids)
        if len(text) > MOST_TOKENIZED:
            count = round(count * len(text) / MOST_TOKENIZED)
            ids = ids[:-UNSURE]
        return self._chained(ids, count, model, salt)

    def _rendered(self, body: dict[str, Any]) -> str | None:
        messages = body.get("messages")
        if self._template is None or not isinstance(messages, list):
            return None
        more = body.get("chat_template_kwargs")
        try:
            rendered = self._template.render(
                messages=messages,
                tools=body.get("tools"),
                add_generation_prompt=body.get("add_generation_prompt", True),
                **self._names,
                **(more if isinstance(more, dict) else {}),
            )
        except Exception:  # noqa: BLE001 - a template may fail in any way on a client's input
            return None
        return str(rendered)

    @staticmethod
    def _chained(ids: list[int], count: int, model: str, salt: str) -> TokenizedPrompt:
        try:
            _, found = TokenChain.start(model, salt).extended(ids[:MOST_KEYED])
        except OverflowError:
            found = []
        return TokenizedPrompt(max(1, count), [one for one in found if one[1] < count])


def _content(token: str | SpecialToken | None) -> str:
    return token.content if isinstance(token, SpecialToken) else token or ""


def _refuse(message: str) -> None:
    raise ValueError(message)
