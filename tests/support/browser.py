"""A headless Chromium for tests of the live page: what it logs, what it asks for, what axe finds."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamforest.testing.plugin import missing

INSTALL = (
    "the live page is tested in a browser: apt-get install chromium, or playwright install chromium"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; without one the test is skipped, in CI it fails."""
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        missing(f"playwright is not installed: pip install 'streamforest[test]'; {INSTALL}")
    with playwright.sync_playwright() as tool:
        names = ("chromium", "chromium-browser", "google-chrome")
        path = next((found for name in names if (found := shutil.which(name))), None)
        if path is None and not os.path.exists(tool.chromium.executable_path):
            missing(INSTALL)
        # in a container there is no user namespace for the sandbox; it opens our own page alone
        browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page with all that it logged and asked for."""

    def __init__(self, browser: Any, width: int = 1_100, scheme: str = "light") -> None:
        viewport = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.logged: list[str] = []
        self.asked: list[str] = []
        self.bytes = 0
        self.page.on("console", lambda said: self.logged.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.logged.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("response", self._answered)

    def _answered(self, response: Any) -> None:
        self.bytes += int(response.headers.get("content-length", 0))

    def open(self, url: str) -> None:
        """Load the page, and wait until it has its first numbers."""
        self.page.goto(url)
        self.page.wait_for_selector(".live[data-state=on]")

    def text(self, selector: str) -> str:
        """The text of one element."""
        return str(self.page.locator(selector).first.inner_text())

    def wait_for(self, selector: str, text: str, seconds: float = 30.0) -> None:
        """Wait until an element that matches holds a text."""
        found = self.page.locator(selector, has_text=text).first
        found.wait_for(state="attached", timeout=1_000 * seconds)

    def serious(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
        found = axe.run(self.page).response["violations"]
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        """Close it."""
        self.context.close()
