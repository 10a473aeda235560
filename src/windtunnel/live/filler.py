"""Harmless text of an exact size: three-letter words after a space, one token each.

An emulated server counts four bytes as a token, about the average of English text; common
three-letter words are also one token each to most models' tokenizers.
"""

BYTES_PER_TOKEN = 4

ROUND = (
    " act add age air all and any arm art ask bag bed big bit box bus"
    " can car cat cup day dog dry ear eat egg end eye far few fit fly"
    " for fun get had hat her his hot how ice job key law let lot map"
    " may new not now off oil old one our out own pay put red run sea"
)
WORDS = len(ROUND) // BYTES_PER_TOKEN
TOKENS = [ROUND[at : at + BYTES_PER_TOKEN].encode() for at in range(0, len(ROUND), BYTES_PER_TOKEN)]
"""Each word of the list as bytes."""

_SOME = ROUND * 64
_TOKENS = len(_SOME) // BYTES_PER_TOKEN


def filler(tokens: int, start: int = 0) -> str:
    """Text of this many tokens, starting at word `start` of the repeating word list."""
    start %= WORDS
    if start + tokens > _TOKENS:
        rounds = (start + tokens) // _TOKENS + 1
        return (_SOME * rounds)[BYTES_PER_TOKEN * start : BYTES_PER_TOKEN * (start + tokens)]
    return _SOME[BYTES_PER_TOKEN * start : BYTES_PER_TOKEN * (start + tokens)]
