"""Where a request of a run is: the notes that the loop keeps on it."""

from typing import Final

AT_THE_DOOR: Final = 1  # the gateway has not decided, or lets it wait
ENCODING: Final = 2
ON_THE_WAY: Final = 3  # to a server
SPLIT: Final = 4  # its prompt is computed elsewhere, or its KV moves
AT_SERVER: Final = 5
ENDED: Final = 6
IN_LINE: Final = 7  # let in while no server was ready
TURNED_BACK: Final = 8  # its server answered 429, and it will be sent again
