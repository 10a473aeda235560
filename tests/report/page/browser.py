"""A headless Chromium that a test drives over a pipe: open a page, look at it, move the pointer."""

import base64
import json
import os
import select
import shlex
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage "
    "--remote-debugging-pipe"
)
PATIENCE_S = 60.0


class Browser:
    """One page of a browser; what it asked the network for and what it complained about is kept."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = f"{shlex.quote(CHROMIUM)} {FLAGS} --user-data-dir={shlex.quote(str(profile))}"
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = f"exec {words} 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._read = b""
        self._sent = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        self._process.terminate()
        self._process.wait()
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> Any:
        """Sends a command and waits for its answer."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], PATIENCE_S)
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has gone"
            self._read += part
        line, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(about))
        elif event == "Page.loadEventFired":
            self._loaded = True

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Opens a file in a window of a size."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self._loaded = False
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._next()

    def prefer(self, scheme: str) -> None:
        """Sets the colour scheme that the reader prefers."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _place(self, selector: str, across: float) -> tuple[float, float]:
        """A point of the first element that a selector finds, which is scrolled to."""
        left, top, wide, high = self.value(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView();"
            " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        return left + across * wide, top + high / 2

    def point_at(self, selector: str, across: float = 0.5) -> None:
        """Moves the pointer over the first element that a selector finds."""
        x, y = self._place(selector, across)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, selector: str, start: float, end: float) -> None:
        """Drags the pointer across an element."""
        for kind, across in (
            ("mouseMoved", start),
            ("mousePressed", start),
            ("mouseMoved", (start + end) / 2),
            ("mouseReleased", end),
        ):
            x, y = self._place(selector, across)
            button = {"button": "left", "buttons": 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        codes = {"Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, "+": 187, "-": 189, "0": 48}
        for kind in ("rawKeyDown", "keyUp"):
            about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            self.call("Input.dispatchKeyEvent", type=kind, **about)

    def picture(self, path: Path, height: int | None = None) -> None:
        """Saves what the page looks like, all of it or its first pixels."""
        options: dict[str, Any] = {"captureBeyondViewport": True}
        width = self.value("innerWidth")
        tall = height or self.value("document.documentElement.scrollHeight")
        options["clip"] = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", **options)
        path.write_bytes(base64.b64decode(answer["data"]))
