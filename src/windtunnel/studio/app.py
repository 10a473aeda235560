"""The studio's web application: pages, a JSON API, and event streams."""

import hmac
import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from windtunnel.analysis.run_folder import REPORT
from windtunnel.api.runs import explain
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.report.page.render import report_page
from windtunnel.studio.attached import follow
from windtunnel.studio.history import RunHistory
from windtunnel.studio.running import LiveRuns
from windtunnel.studio.scenarios import MOST_TEXT_BYTES, ScenarioFiles, checked

PAGES = Path(__file__).with_name("pages")
COOKIE = "windtunnel"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
SAFE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}

Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Rejects requests without the token, and requests from pages of other sites.

    Without a token (on loopback), the Host that a browser sends must be this machine: this rejects
    pages of another site whose name was rebound to this address, and the requests that they make.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.query_params.get("token")
        if self._token is not None and given is not None and _same(given, self._token):
            response: ASGIApp = RedirectResponse(request.url.path, status_code=303)
            assert isinstance(response, Response)
            response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        elif (refusal := self._refusal(request)) is not None:
            response = _json({"error": refusal}, 403)
        else:
            response = self._app
        await response(scope, receive, send)

    def _refusal(self, request: Request) -> str | None:
        if self._token is not None:
            if not _same(request.cookies.get(COOKIE, ""), self._token):
                return "open the address that `windtunnel studio` printed: it has the token"
        elif not is_loopback(request.url.hostname or ""):
            return "this name is not one of this machine"
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
            return "this request comes from a page of another site"
        return None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    return os.urandom(24).hex()


def _json(content: Any, status: int = 200) -> Response:
    body = msgspec.json.encode(content)
    return Response(body, status, media_type="application/json", headers=SAFE)


def _answering(handler: Handler) -> Handler:
    """Wraps a handler, so that errors are answered as sentences."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except WindtunnelError as error:
            return _json({"error": str(error)}, 400)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            says = f"a file or a request is damaged, or of another version: {error}"
            return _json({"error": says}, 400)

    return answer


class EditedText(msgspec.Struct):
    """A scenario in the editor, and the file it was opened from."""

    text: str
    file: str = "scenario.yaml"


class Studio:
    """The handlers of the routes."""

    def __init__(self, folder: Path, runs: Path, attached: Sequence[str]) -> None:
        self._files = ScenarioFiles(folder)
        self._history = RunHistory(runs)
        self._live = LiveRuns()
        self._attached = tuple(attached)

    def app(self, token: str | None) -> ASGIApp:
        routes = [
            Route("/", self.page),
            Route("/api/files", _answering(self.files)),
            Route("/api/text", _answering(self.text)),
            Route("/api/check", _answering(self.check), methods=["POST"]),
            Route("/api/runs", _answering(self.runs)),
            Route("/api/runs", _answering(self.start), methods=["POST"]),
            Route("/api/runs/{name}", _answering(self.run)),
            Route("/api/runs/{name}/progress", _answering(self.progress)),
            Route("/api/runs/{name}/stop", _answering(self.stop), methods=["POST"]),
            Route("/api/runs/{name}/explain", _answering(self.explain)),
            Route("/api/compare", _answering(self.compare)),
            Route("/api/attached/{number:int}", _answering(self.watch)),
            Route("/runs/{name}/report", _answering(self.report)),
            Mount("/static", StaticFiles(directory=PAGES)),
        ]
        return Guard(Starlette(routes=routes), token)

    def close(self) -> None:
        """Ends the runs in progress."""
        self._live.kill()

    async def page(self, _: Request) -> Response:
        headers = {**SAFE, "content-security-policy": POLICY, "cache-control": "no-store"}
        return FileResponse(PAGES / "studio.html", headers=headers)

    async def files(self, _: Request) -> Response:
        listed = await run_in_threadpool(self._files.listed)
        return _json({"files": listed, "attached": self._attached})

    async def text(self, request: Request) -> Response:
        name = request.query_params.get("file", "")
        return _json({"text": await run_in_threadpool(self._files.text_of, name)})

    async def check(self, request: Request) -> Response:
        edited = await _edited(request)
        file = self._files.path_of(edited.file)
        return _json(await run_in_threadpool(checked, edited.text, file))

    async def runs(self, _: Request) -> Response:
        return _json(await run_in_threadpool(self._history.listed))

    async def start(self, request: Request) -> Response:
        edited = await _edited(request)
        file = self._files.path_of(edited.file)
        found = await run_in_threadpool(checked, edited.text, file)
        if found["faults"]:
            raise InputError("\n".join(fault["says"] for fault in found["faults"]))
        folder = self._history.new(found["name"], found["seed"])
        try:
            run = await self._live.start(edited.text, file, folder)
        except InputError:
            folder.rmdir()
            raise
        return _json({"id": run.name}, 201)

    async def run(self, request: Request) -> Response:
        return _json(await run_in_threadpool(self._history.shown, request.path_params["name"]))

    async def progress(self, request: Request) -> Response:
        return _stream(self._live.named(request.path_params["name"]).watch())

    async def stop(self, request: Request) -> Response:
        self._live.stop(request.path_params["name"])
        return _json({})

    async def explain(self, request: Request) -> Response:
        folder = self._history.folder_of(request.path_params["name"])
        number, decision = (request.query_params.get(key) for key in ("request", "decision"))
        if number is not None and not number.isdecimal():
            raise InputError(f"{number[:40]!r} is not the number of a request", where="request")
        asked = None if number is None else int(number[:18])
        at = request.query_params.get("at")
        found = await run_in_threadpool(
            lambda: explain(folder, request=asked, at=at, decision=decision)
        )
        return _json({"text": str(found)})

    async def compare(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        if not 2 <= len(names) <= 4:
            raise InputError(f"{len(names)} runs were chosen", where="compare", allowed="2 to 4")
        return _json(await run_in_threadpool(self._history.side_by_side, names))

    async def watch(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self._attached):
            raise InputError(f"nothing is attached under {number}")
        return _stream(follow(self._attached[number]))

    async def report(self, request: Request) -> Response:
        folder = self._history.folder_of(request.path_params["name"])
        page = folder / REPORT
        if page.is_file():
            return FileResponse(page, headers=SAFE)
        html = await run_in_threadpool(report_page, folder)
        return Response(html, media_type="text/html", headers=SAFE)


async def _edited(request: Request) -> EditedText:
    """The editor's text, bounded in size."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the editor sends JSON", where="content-type")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > 2 * MOST_TEXT_BYTES:
            raise InputError("the text is over a mebibyte")
    try:
        return msgspec.json.decode(body, type=EditedText)
    except msgspec.DecodeError as error:
        raise InputError(f"this is not what the editor sends: {error}") from error


def _stream(lines: AsyncIterator[dict[str, Any]]) -> Response:
    async def events() -> AsyncIterator[bytes]:
        async for line in lines:
            yield b"data: " + msgspec.json.encode(line) + b"\n\n"

    headers = {**SAFE, "cache-control": "no-store"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
