"""Writes prompts of a given length that share prefixes as the scenario says.

The text of a prompt segment follows from its key: equal keys have equal words, and a shorter
segment has the first of them. The answers in a conversation are the server's own.
"""

from array import array
from hashlib import shake_128
from typing import Any, NamedTuple

from windtunnel.live.filler import BYTES_PER_TOKEN, ROUND
from windtunnel.live.wire.addresses import Api
from windtunnel.workload.request import Request

COMPLETIONS, TOKENS, CHAT = "completions", "tokens", "chat"
APIS = {COMPLETIONS: Api.COMPLETIONS, TOKENS: Api.COMPLETIONS, CHAT: Api.CHAT}
"""How prompts can be sent: as text, as token ids, as messages."""

LOWEST_TOKEN_ID = 1000
"""Lower ids are the special tokens of many models, and single bytes."""
_ID_MASK = 0x3FFF
_WORDS = [
    ROUND[at : at + BYTES_PER_TOKEN] for at in range(0, len(ROUND), BYTES_PER_TOKEN)
] * (256 * BYTES_PER_TOKEN // len(ROUND))  # fmt: skip


class PromptWriter:
    """Writes prompts. `salt` prevents a server from recognizing prompts of an earlier run."""

    def __init__(self, api: str, salt: str) -> None:
        assert api in APIS
        self._api = api
        self._salt = salt
        self._answers: dict[int, str] = {}  # the server's answers, by answer key

    @property
    def api(self) -> Api:
        """The API for its prompts."""
        return APIS[self._api]

    def answered(self, request: Request, text: str) -> None:
        """Stores the server's answer, if a later prompt may continue from it."""
        if request.answer_key >= 0 and self._api != TOKENS:
            self._answers[request.answer_key] = text

    def over(self, request: Request) -> None:
        """Forgets a conversation that has ended."""
        if request.prefix is not None:
            for key in request.prefix.keys:
                self._answers.pop(key, None)

    def fields(self, request: Request) -> dict[str, Any]:
        """The prompt fields of a request's body."""
        parts = self._parts(request)
        if self._api == TOKENS:
            return {"prompt": [token for part in parts for token in _token_ids(part)]}
        if self._api == COMPLETIONS:
            texts = (self._answers.get(part.key) or _text(part) for part in parts)
            return {"prompt": "".join(texts)}
        messages: list[dict[str, str]] = []
        for part in parts:
            answer = self._answers.get(part.key)
            if answer is not None:
                messages.append({"role": "assistant", "content": answer})
            elif messages and messages[-1]["role"] == "user":
                messages[-1]["content"] += _text(part)
            else:
                messages.append({"role": "user", "content": _text(part)})
        return {"messages": messages}

    def _parts(self, request: Request) -> list["PromptSegment"]:
        parts: list[PromptSegment] = []
        start = 0
        if request.prefix is not None:
            for key, end in zip(request.prefix.keys, request.prefix.ends, strict=True):
                parts.append(PromptSegment(key, f"{self._salt}/{key}", end - start))
                start = end
        tokens = int(request.prompt_tokens)
        if tokens > start:
            parts.append(PromptSegment(NO_KEY, f"{self._salt}/own/{request.id}", tokens - start))
        return parts


NO_KEY = -1


class PromptSegment(NamedTuple):
    """A segment of a prompt: its key, the seed of its words, and their number."""

    key: int
    name: str
    tokens: int


def _text(part: PromptSegment) -> str:
    noise = shake_128(part.name.encode()).digest(part.tokens)
    return "".join([_WORDS[byte] for byte in noise])


def _token_ids(part: PromptSegment) -> list[int]:
    noise = array("H", shake_128(part.name.encode()).digest(2 * part.tokens))
    return [LOWEST_TOKEN_ID + (value & _ID_MASK) for value in noise]
