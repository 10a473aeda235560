"""What the tests of `batch` share: servers that are gone afterwards, no key, and short rests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.live.server import Reply, Server, answer


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts a server that replies as it is told."""
    with ExitStack() as stack:

        def start(reply: Reply = answer, models: tuple[str, ...] | None = ("m",)) -> Server:
            return stack.enter_context(Server(reply, models).running())

        yield start


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that failed are tried again after a hundredth of the usual time."""
    monkeypatch.setattr("windtunnel.admission.requests.headers.FIRST_RETRY_S", 0.02)
