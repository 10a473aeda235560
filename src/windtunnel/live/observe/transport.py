"""How an observer reaches a server: one request, and its answer as it comes in."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Reply(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""


class Broken(Exception):
    """The server could not be reached, or the connection ended before the answer did."""


class Transport(Protocol):
    """A way to one server."""

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[Reply]: ...

    def get(self, path: str) -> AbstractAsyncContextManager[Reply]: ...
