"""What a prompt is to an emulated server: a number of tokens, and blocks that others may share.

There is no tokenizer. Four bytes of UTF-8 are a token, a message of a chat has a frame of four
tokens before its text, and token ids count as what they are. Two prompts that begin with the same
bytes share the full blocks of that beginning, and a prompt that goes on from an answer finds that.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from windtunnel.live.filler import BYTES_PER_TOKEN
from windtunnel.workload.request import PrefixChain

FRAME_TOKENS = 4
"""Before each message of a chat, also before the one that is asked for: whose it is."""
MOST_ANSWERS = 65_536
"""Answers that are remembered, in case that a prompt goes on from one."""
ASSISTANT = "assistant"
_KEY_MASK = 2**62 - 1


def chat_prompt(messages: Sequence[tuple[str, str]]) -> bytes:
    """The bytes of a chat, given as (role, text)."""
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
    """The bytes of token ids; OverflowError for one that is none."""
    return array("I", tokens).tobytes()


def token_count(prompt: bytes) -> int:
    return -(-len(prompt) // BYTES_PER_TOKEN)


class PrefixSharing:
    """Names the blocks that prompts share: each by all that comes before its end.

    An answer is known to the engine as one segment, from the first block that its prompt does not
    fill. So a prompt that contains it must name those blocks together, too.
    """

    def __init__(self, block_size: int) -> None:
        self._tokens = block_size
        self._bytes = block_size * BYTES_PER_TOKEN
        self._answers: dict[int, int] = {}  # the key of each, and its first block

    def chain(
        self, prompt: bytes, answer: bytes, adapter: int = -1
    ) -> tuple[PrefixChain | None, int]:
        """The shared start of a prompt, and what its answer will be known by; -1: nothing."""
        size = self._bytes
        blocks = len(prompt) // size
        # What an adapter makes of the same tokens is another cache.
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
