"""A headless Chromium that shows one page after another: it is driven over pipes, as its DevTools are, and started once."""

from __future__ import annotations

import base64
import json
import selectors
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_S = 120.0
DRAWN_MS = 4000
"""After this much of the page's time all is drawn that is drawn without a reader."""


class Browser:
    """One tab, whose time passes only where it is said to (`pass_time`), as fast as there is nothing to do.

    Attributes:
        console: What the page that is shown said on the console, what it threw and did not catch, and what it could not load.
    """

    def __init__(self, chromium: str, folder: Path) -> None:
        self.page = folder / "page.html"
        self.console: list[str] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._expired = 0
        self._asked = 0
        self._read = b""
        self._session: str | None = None
        # DevTools over pipes are spoken on descriptors 3 and 4.
        self._process = subprocess.Popen(
            [
                "sh",
                "-c",
                'exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1',
                "sh",
                chromium,
                *FLAGS,
                "--remote-debugging-pipe",
                f"--user-data-dir={folder / 'profile'}",
                "about:blank",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._send, self._receive = self._process.stdin, self._process.stdout
        tab = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setVirtualTimePolicy", policy="pause")

    def show(self, text: str, width: int, *, height: int = 3000, scrollbars: bool = False) -> None:
        """Opens a page in a window of `width` x `height` CSS pixels; no time has passed for it."""
        self.page.write_text(text, encoding="utf-8")
        self._ask("Storage.clearDataForOrigin", origin="file://", storageTypes="all")
        self._ask("Emulation.setScrollbarsHidden", hidden=not scrollbars)
        self.resize(width, height)
        self.console.clear()
        failed = self._ask("Page.navigate", url=self.page.as_uri()).get("errorText")
        assert not failed, failed

    def resize(self, width: int, height: int = 3000) -> None:
        """Makes the window that wide and high; one of its own is never narrower than 500."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        deadline = time.monotonic() + PATIENCE_S
        while self.evaluate("innerWidth") != width:
            assert time.monotonic() < deadline, f"the window does not become {width} wide"
            time.sleep(0.01)

    def print_media(self, on: bool) -> None:
        """Lays pages out as on paper, or as on a screen again."""
        self._ask("Emulation.setEmulatedMedia", media="print" if on else "")

    def pass_time(self, milliseconds: int) -> None:
        """Lets the page have that much time, after what it still loads."""
        before = self._expired
        self._ask("Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=milliseconds)
        while self._expired == before:
            self._take()

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page, as JSON has it."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, left: float, top: float, width: float, height: float) -> bytes:
        """A rectangle of the page, in CSS pixels from its upper left corner, as PNG: the same bytes for the same pixels."""
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        shown = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shown["data"])

    def close(self) -> None:
        """Ends the browser."""
        self._session = None
        try:
            self._ask("Browser.close")
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._send.close()
            self._receive.close()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._asked += 1
        number, message = self._asked, {"id": self._asked, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        while number not in self._answers:
            self._take()
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def _take(self) -> None:
        """Takes in one message: the answer to a question, or an event."""
        deadline = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._receive, selectors.EVENT_READ)
            while b"\0" not in self._read:
                assert selector.select(deadline - time.monotonic()), f"Chromium says nothing for {PATIENCE_S:g} s"
                part = self._receive.read(1 << 20)
                assert part, "Chromium ended"
                self._read += part
        text, _, self._read = self._read.partition(b"\0")
        message = json.loads(text)
        if "id" in message:
            self._answers[message["id"]] = message
            return
        event, details = message["method"], message.get("params")
        self._expired += event == "Emulation.virtualTimeBudgetExpired"
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(f"{event}: {json.dumps(details)}")
