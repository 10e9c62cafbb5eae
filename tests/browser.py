"""A headless Chromium, driven over its DevTools pipe: no port, no driver, nothing to install.

Chromium reads commands from file descriptor 3 and answers on 4, each a JSON object that ends with
a zero byte. Everything the page says (console, exceptions, requests) is kept for the tests.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb", "--font-render-hinting=none", "--mute-audio",
)  # fmt: skip
PATIENCE = 60.0  # seconds for any one answer


def find_chromium() -> str | None:
    """The browser, or None; MINFER_CHROMIUM names another one."""
    given = os.environ.get("MINFER_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; a context manager."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.events: list[dict[str, Any]] = []
        self._number, self._rest = 0, b""

    def __enter__(self) -> Browser:
        self._home = TemporaryDirectory(prefix="minfer-browser-", ignore_cleanup_errors=True)
        read_command, self._write = os.pipe()
        self._read, write_answer = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self._home.name}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # which does not work for root
        line = f'exec "$@" 3<&{read_command} 4>&{write_answer}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", self.program, *flags, "about:blank"],
            pass_fds=(read_command, write_answer),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_command)
        os.close(write_answer)
        self._session = self._tab(hidden=True)
        return self

    def _tab(self, hidden: bool) -> str:
        """The session of a new page."""
        self._session, self._shows = "", ""
        target = self.send("Target.createTarget", url="about:blank", hidden=hidden)["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self._session

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._home.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def wait(self, method: str) -> None:
        """Until an event has come; those before it are kept."""
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._rest += data
        head, self._rest = self._rest.split(b"\0", 1)
        return json.loads(head)

    def view(self, width: int, height: int, dark: bool = False, scale: float = 1.0) -> None:
        """Size of the window in CSS pixels, and the colour scheme that is preferred."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Another page, in a window, which is drawn frame by frame: four times the work, and only
        for what waits for a frame. The usual one is laid out and never drawn."""
        usual = self._session
        try:
            self._tab(hidden=False)
            yield
            self.send("Page.close")
        finally:
            self._session, self._shows = usual, ""

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file; what was heard of the page before is forgotten."""
        address = path.resolve().as_uri()
        if address == self._shows:  # another fragment would not load
            self.events.clear()
            self.send("Page.navigate", url="about:blank")
            self.wait("Page.loadEventFired")
        self.events.clear()
        self.send("Page.navigate", url=address + fragment)
        self.wait("Page.loadEventFired")
        self._shows = address

    def reload(self) -> None:
        """The same page, anew."""
        self.events.clear()
        self.send("Page.reload")
        self.wait("Page.loadEventFired")

    def inside(self, expression: str) -> Any:
        """The value of an expression in the page's one frame that has a process of its own."""
        self.send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False,
                  flatten=True)  # fmt: skip
        self.wait("Target.attachedToTarget")
        (frame,) = {
            e["params"]["sessionId"]
            for e in self.events
            if e.get("method") == "Target.attachedToTarget"
        }
        own, self._session = self._session, frame
        try:
            return self.do(expression)
        finally:
            self._session = own

    def do(self, expression: str) -> Any:
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a keyboard would."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "ArrowDown": 40, "Home": 36,
                 "End": 35, "Tab": 9, "Enter": 13, "Escape": 27}  # fmt: skip
        said = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        for kind in ("keyDown" if said else "rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=codes.get(key) or ord(key.upper()),
                      **(said if kind == "keyDown" else {}))  # fmt: skip

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A movement, button or wheel of the mouse: moved, pressed, released or wheel."""
        button = {} if kind in ("moved", "wheel") else {"button": "left", "clickCount": 1}
        name = {"wheel": "mouseWheel"}.get(kind, f"mouse{kind.title()}")
        self.send("Input.dispatchMouseEvent", type=name, x=x, y=y, **button, **more)

    def click(self, selector: str) -> None:
        """A real click into the middle of an element."""
        x, y = self.do(
            f"(b => [b.x + b.width / 2, b.y + b.height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("moved", "pressed", "released"):
            self.mouse(kind, x, y)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """The page as PNG; ``whole`` also what lies below the window."""
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def contrasts(self, pairs: list[tuple[str, str]]) -> list[float]:
        """The ratio of WCAG between two colours of the page, each a property of its root."""
        return self.do(f"""({json.dumps(pairs)}).map(([a, b]) => {{
          const root = getComputedStyle(document.documentElement);
          const light = (name) => {{
            const parts = root.getPropertyValue("--" + name).trim().match(/\\w\\w/g);
            const [r, g, b] = parts.map((h) => parseInt(h, 16) / 255)
              .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
          }};
          return Math.max(light(a), light(b)) / Math.min(light(a), light(b));
        }})""")

    def complaints(self) -> list[str]:
        """Errors and warnings of the page: console, exceptions, the browser's own log."""
        out = []
        for event in self.events:
            method, p = event.get("method"), event.get("params", {})
            wrong = (
                method == "Runtime.exceptionThrown"
                or (method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning"))
                or (method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"))
            )
            if wrong:
                out.append(json.dumps(p))
        return out

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
