"""Prompts as prefix chains and token counts, without a tokenizer."""

import hashlib
from typing import Final

import xxhash

LARGEST_TOKENS: Final = 10_000_000
FIRST_BLOCK_BYTES: Final = 512
LATER_BLOCK_BYTES: Final = 4096
FIRST_BLOCKS: Final = 64
MOST_BLOCKS: Final = 256
"""In a prompt: 64 blocks of 512 bytes and 192 of 4 KiB; the rest is not compared."""

BYTES_PER_TOKEN: Final = 4
"""The initial ratio; the usage that servers report corrects it."""
RATE_OF_LEARNING: Final = 0.02
KEPT_STREAMS: Final = 0.9
"""The weight of earlier streams beside the latest."""
MOST_KEYS: Final = 100_000


class PromptReader:
    """Turns raw prompts into prefix keys and token counts.

    Blocks of a prompt's bytes are hashed in a chain with a secret of this process, so that files
    may contain the keys without revealing prompts. Model, adapter and salt are part of the first
    hash: equal text shares nothing across them. Token counts are estimated from bytes, by a ratio
    learned from the usage that servers report.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret: Final = secret
        self._bytes_per_token: Final[dict[str, float]] = {}
        self._streams: Final[dict[str, tuple[float, float]]] = {}  # recent tokens and events
        self._keys: Final[dict[int, int]] = {}  # by chain state, since prompts share prefixes

    def tokens(self, model: str, size: int) -> int:
        """The estimated number of tokens in this many bytes of a prompt."""
        return max(1, round(size / self._bytes_per_token.get(model, BYTES_PER_TOKEN)))

    def learn(self, model: str, size: int, tokens: int) -> None:
        """Learns from the usage that a server reported for a prompt of this size."""
        if size > 0 and 0 < tokens <= LARGEST_TOKENS:
            known = self._bytes_per_token.get(model, BYTES_PER_TOKEN)
            seen = min(max(size / tokens, 0.25), 64.0)
            self._bytes_per_token[model] = known + RATE_OF_LEARNING * (seen - known)

    def streamed(self, model: str, events: int) -> int:
        """The estimated number of tokens in this many events of a stream: busy servers send several
        in an event, and an event without any (a role, a finish reason) is taken for one."""
        tokens, seen = self._streams.get(model, (0.0, 0.0))
        return round(events * tokens / seen) if tokens > seen else events

    def learn_stream(self, model: str, events: int, tokens: int) -> None:
        """Learns from the usage that a server reported for a stream of this many events."""
        if events > 0 and 0 < tokens <= LARGEST_TOKENS:
            known, seen = self._streams.get(model, (0.0, 0.0))
            self._streams[model] = (KEPT_STREAMS * known + tokens, KEPT_STREAMS * seen + events)

    def chain(self, model: str, salt: str, prompt: bytes) -> tuple[list[int], list[int]]:
        """The keys of the prompt's blocks, and the token at which each ends.

        Ends always use the initial ratio, so that a prefix has the same ends in every prompt.
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
        """A chain state under the secret, which reveals nothing about the text."""
        data = state.to_bytes(8, "little")
        digest = hashlib.blake2b(data, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") >> 1
