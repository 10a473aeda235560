"""Prompts as prefix chains and token counts, without a tokenizer."""

import hashlib
from typing import Final

import xxhash

LARGEST_TOKENS: Final = 10_000_000
FIRST_BLOCK_BYTES: Final = 512
LATER_BLOCK_BYTES: Final = 4096
FIRST_BLOCKS: Final = 64
MOST_BLOCKS: Final = 256
"""Of a prompt: 64 blocks of 512 bytes and 192 of 4 KiB; what follows is not compared."""

BYTES_PER_TOKEN: Final = 4
"""To begin with; what servers report as usage corrects it."""
RATE_OF_LEARNING: Final = 0.02
MOST_KEYS: Final = 100_000


class PromptReader:
    """Reads prompts as they were written.

    Blocks of a prompt's bytes are hashed in a chain with a secret of this process, so that files
    may have the keys without telling prompts. Model, adapter and salt are part of the first hash:
    equal text shares nothing across them. The number of tokens is estimated from the number of
    bytes, by a ratio that is learned from the usage that servers report.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret: Final = secret
        self._bytes_per_token: Final[dict[str, float]] = {}
        self._keys: Final[dict[int, int]] = {}  # by the state of the chain: prompts start alike

    def tokens(self, model: str, size: int) -> int:
        """About how many tokens so many bytes of a prompt are."""
        return max(1, round(size / self._bytes_per_token.get(model, BYTES_PER_TOKEN)))

    def learn(self, model: str, size: int, tokens: int) -> None:
        """A server reported the usage of a prompt of this size."""
        if size > 0 and 0 < tokens <= LARGEST_TOKENS:
            known = self._bytes_per_token.get(model, BYTES_PER_TOKEN)
            seen = min(max(size / tokens, 0.25), 64.0)
            self._bytes_per_token[model] = known + RATE_OF_LEARNING * (seen - known)

    def chain(self, model: str, salt: str, prompt: bytes) -> tuple[list[int], list[int]]:
        """Keys of the prompt's blocks, and the token at which each ends.

        Ends go by the first estimate for ever: a prefix has the same ends in every prompt.
        """
        keys: list[int] = []
        ends: list[int] = []
        size = len(prompt)
        if size < FIRST_BLOCK_BYTES:
            return keys, ends
        known = self._keys
        if len(known) >= MOST_KEYS:
            known.clear()
        state: int = xxhash.xxh3_64_intdigest(f"{model}\0{salt}".encode())
        hashed = xxhash.xxh3_64_intdigest
        place, block = 0, FIRST_BLOCK_BYTES
        for number in range(MOST_BLOCKS):
            if number == FIRST_BLOCKS:
                block = LATER_BLOCK_BYTES
            until = place + block
            if until > size:
                break
            state = hashed(prompt[place:until], state)
            key = known.get(state)
            if key is None:
                key = known[state] = self.key(state)
            keys.append(key)
            ends.append(until // BYTES_PER_TOKEN)
            place = until
        return keys, ends

    def key(self, state: int) -> int:
        """The state of a chain, under the secret: it says nothing about the text."""
        data = state.to_bytes(8, "little")
        digest = hashlib.blake2b(data, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") >> 1
