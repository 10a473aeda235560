"""A prompt as an emulated server sees it: a number of tokens, and blocks that it may share.

There is no tokenizer. Four bytes of UTF-8 are a token, each chat message has a frame of four tokens
before its text, and token ids count as one token each. Two prompts with the same leading bytes
share the full blocks of that prefix, and a prompt that continues an answer finds the answer's
blocks.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from windtunnel.live.filler import BYTES_PER_TOKEN
from windtunnel.workload.request import PrefixChain

FRAME_TOKENS = 4
"""The frame that gives the role, before each message of a chat and before the answer."""
MOST_ANSWERS = 65_536
"""Answers remembered, in case a prompt continues from one."""
ASSISTANT = "assistant"
_KEY_MASK = 2**62 - 1


def chat_prompt(messages: Sequence[tuple[str, str]]) -> bytes:
    """The bytes of a chat, given as (role, text) pairs."""
    parts = []
    for role, text in messages:
        parts.append(_frame(role))
        parts.append(text_prompt(text))
    parts.append(_frame(ASSISTANT))
    return b"".join(parts)


def _frame(role: str) -> bytes:
    size = FRAME_TOKENS * BYTES_PER_TOKEN
    return text_prompt(role)[:size].ljust(size, b"\0")


def text_prompt(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def token_prompt(tokens: Sequence[int]) -> bytes:
    """The bytes of token ids; raises OverflowError for an invalid id."""
    return array("I", tokens).tobytes()


def token_count(prompt: bytes) -> int:
    return -(-len(prompt) // BYTES_PER_TOKEN)


class PrefixSharing:
    """Names the blocks that prompts share, each by everything up to its end.

    The engine knows an answer as one segment, which starts at the first block that its prompt does
    not fill. So a prompt that contains the answer must name those blocks as one, too.
    """

    def __init__(self, block_size: int) -> None:
        self._tokens = block_size
        self._bytes = block_size * BYTES_PER_TOKEN
        self._answers: dict[int, int] = {}  # the key of each, and its first block

    def chain(
        self, prompt: bytes, answer: bytes, adapter: int = -1
    ) -> tuple[PrefixChain | None, int]:
        """The shared prefix of a prompt, and the key of its answer; -1 if the answer has none."""
        size = self._bytes
        blocks = len(prompt) // size
        # The same tokens have different KV with another adapter.
        digest = blake2b(b"%d" % adapter, digest_size=8)
        keys: list[int] = []
        ends: list[int] = []
        for block in range(blocks):
            digest.update(prompt[block * size : (block + 1) * size])
            key = _key(digest.digest())
            first = self._answers.get(key, block)
            while ends and ends[-1] > first * self._tokens:
                keys.pop()
                ends.pop()
            keys.append(key)
            ends.append((block + 1) * self._tokens)
        # The last token of an answer is never fed back.
        whole = prompt + answer[:-BYTES_PER_TOKEN]
        last = len(whole) // size
        answer_key = -1
        if last > blocks:
            digest.update(whole[blocks * size : last * size])
            answer_key = _key(digest.digest())
            self._remember(answer_key, blocks)
        return (PrefixChain(keys, ends) if keys else None), answer_key

    def _remember(self, key: int, first: int) -> None:
        self._answers.setdefault(key, first)
        if len(self._answers) > MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]


def _key(digest: bytes) -> int:
    return int.from_bytes(digest, "big") & _KEY_MASK
