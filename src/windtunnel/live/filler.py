"""Harmless text of an exact size: words of three letters after a space, a token each.

Four bytes are a token to an emulated server, which is about what English text has; common words
of three letters are one token each to the tokenizers of most models too.
"""

BYTES_PER_TOKEN = 4

ROUND = (
    " act add age air all and any arm art ask bag bed big bit box bus"
    " can car cat cup day dog dry ear eat egg end eye far few fit fly"
    " for fun get had hat her his hot how ice job key law let lot map"
    " may new not now off oil old one our out own pay put red run sea"
)
WORDS = len(ROUND) // BYTES_PER_TOKEN

_SOME = ROUND * 64
_TOKENS = len(_SOME) // BYTES_PER_TOKEN


def filler(tokens: int, start: int = 0) -> str:
    """Text of so many tokens; `start` is where in the endless round of words it begins."""
    start %= WORDS
    if start + tokens > _TOKENS:
        rounds = (start + tokens) // _TOKENS + 1
        return (_SOME * rounds)[BYTES_PER_TOKEN * start : BYTES_PER_TOKEN * (start + tokens)]
    return _SOME[BYTES_PER_TOKEN * start : BYTES_PER_TOKEN * (start + tokens)]
