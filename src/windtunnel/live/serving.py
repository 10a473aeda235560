"""Serves an application on a port until it is asked to stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

from windtunnel.core.errors import InputError, os_reason
from windtunnel.live.system import run_until_stopped

LONGEST_GOODBYE_S = 2.0
"""How long responses may continue after a stop signal; then they end with an error."""
HANG_UP_S = 0.1
"""The wait until closed connections have been noticed."""
LAST_WRITES_S = 0.5
"""How long clients may then take to read the error before their connections are closed."""
LAST_RESORT_S = 4.0
"""When uvicorn abandons what is left, and reports it."""
BACKLOG = 4096
MOST_CONNECTIONS = 65_536
IDLE_CONNECTION_S = 75.0

Build = Callable[[asyncio.AbstractEventLoop], Any]
"""Builds the application for the loop that will run it."""


def listen(host: str, port: int) -> socket.socket:
    """Returns a bound socket; port 0 takes any free port."""
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError("this is not an address of this machine", where=where) from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        what = f"cannot listen there: {os_reason(error)}"
        hint = "choose another port; 0 takes a free one"
        raise InputError(what, where=where, hint=hint) from error
    bound.setblocking(False)  # noqa: FBT003 - it takes no name
    return bound


EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing listens there
"""Addresses that stand for all of a machine, and those by which the machine itself reaches them."""


def url_of(bound: socket.socket) -> str:
    """The URL of a listening socket, as the machine itself can reach it."""
    host, port = bound.getsockname()[:2]
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    build: Build,
    bound: socket.socket,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    connections: int = MOST_CONNECTIONS,
    kill: asyncio.Event | None = None,
) -> None:
    """Serves until `stop` is set, or ends at once with all its connections when `kill` is set.

    `ready` receives the address once connections are accepted.
    """
    import uvicorn

    from windtunnel.live.emulate.connections import BoundedConnection, bounded

    config = uvicorn.Config(
        build(asyncio.get_running_loop()),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http=bounded(connections),
        backlog=BACKLOG,
        timeout_graceful_shutdown=LAST_RESORT_S,  # type: ignore[arg-type]
        timeout_keep_alive=IDLE_CONNECTION_S,  # type: ignore[arg-type]  # it only adds them up
        server_header=False,
        date_header=False,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(url_of(bound))

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the caller of `serve` handles them

    server = Server(config)

    async def leave() -> None:
        await stop.wait()
        server.should_exit = True
        await asyncio.sleep(LONGEST_GOODBYE_S)
        hang_up(only_stalled=True)  # an error would not reach them
        await asyncio.sleep(HANG_UP_S)
        for task in server.server_state.tasks:
            task.cancel()
        await asyncio.sleep(LAST_WRITES_S)
        hang_up(only_stalled=False)

    async def die(kill: asyncio.Event) -> None:
        await kill.wait()
        server.should_exit = server.force_exit = True
        hang_up(only_stalled=False)

    def hang_up(*, only_stalled: bool) -> None:
        for connection in list(server.server_state.connections):
            assert isinstance(connection, BoundedConnection)
            if connection.flow.write_paused or not only_stalled:
                connection.hang_up()

    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(leave())]
        if kill is not None:
            ends.append(tasks.create_task(die(kill)))
        await server.serve([bound])
        for end in ends:
            end.cancel()


def run(
    build: Build,
    bound: socket.socket,
    ready: Callable[[str], None],
    connections: int = MOST_CONNECTIONS,
) -> None:
    """Serves until Ctrl-C or SIGTERM; a second signal ends it at once."""
    run_until_stopped(lambda stop: serve(build, bound, ready, stop, connections))
