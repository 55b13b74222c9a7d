"""The site, made once, served on 127.0.0.1, and a browser for which there is no other network."""

from __future__ import annotations  # the names of a package that may be missing

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from _browser import copy_checkout

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

PATIENCE = 120.0
"""Seconds before a page that never gets ready is given up. An idle machine needs less than one."""
# Requests could be stopped one by one as well, but then nothing is kept from page to page.
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""The browser's option for which there is no server but those of this machine."""
WIDER = """() => {
    const room = document.documentElement.clientWidth;
    return document.documentElement.scrollWidth > room;
}"""


def build(folder: Path) -> Path:
    """Make the site of a stamped copy of this checkout, as `make site` does; return the copy."""
    copy = copy_checkout(folder / "lab")
    for command in (["stamp.py", "ada/lab"], ["site_build.py"]):
        words = [sys.executable, f"tools/{command[0]}", *command[1:]]
        made = subprocess.run(words, cwd=copy, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    return copy


class Pages(SimpleHTTPRequestHandler):
    """GitHub Pages: the site is in a folder, and 404.html stands for every page that is not."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/lab"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        if code == 404:
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((Path(self.directory) / "404.html").read_bytes())
        else:
            super().send_error(code, message, explain)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the site as GitHub Pages does; give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/lab/"
        finally:
            server.shutdown()
            thread.join()


class Reader:
    """Somebody who reads the site in a window of their own.

    Attributes:
        page: The browser's page.
        trouble: What went wrong so far: messages on the console, requests that failed, and
            requests to any other server, which get no answer.
        asked: The addresses that were asked for.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.trouble: list[str] = []
        self.asked: list[str] = []
        self._address = address
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda said: self._note(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("requestfailed", self._note_failure)
        page.on("response", lambda got: self._note(got.url) if got.status >= 400 else None)

    def _note(self, what: str) -> None:
        self.trouble.append(f"{self.page.url}: {what}")

    def _note_failure(self, asked: Request) -> None:
        if asked.failure != "net::ERR_ABORTED":  # given up, as the reader has left the page
            self._note(f"failed: {asked.url}: {asked.failure}")

    def open(self, path: str) -> None:
        """Open a page of the site, and wait until its scripts have run."""
        self.page.goto(self._address + path, wait_until="load")

    def search(self, words: str) -> list[str]:
        """Search from the front page as a reader does; return the paths of what is found."""
        self.open("index.html")
        self.page.keyboard.press("Control+k")
        field = self.page.locator("#pst-search-dialog input[type=search]")
        field.fill(words)
        field.press("Enter")
        # The number of pages is written when the last one is shown.
        self.page.wait_for_function("document.querySelector('p.search-summary')?.innerText")
        self.page.wait_for_load_state("networkidle")  # excerpts come from the pages
        links = self.page.locator("#search-results li a[href]").evaluate_all(
            "links => links.map(link => link.href)"
        )
        return [link.removeprefix(self._address).partition("?")[0] for link in links]

    def system(self, theme: str) -> None:
        """Make the reader's system light or dark, and wait until the page has followed."""
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_function(
            "theme => document.documentElement.dataset.theme === theme", arg=theme
        )

    def overflows(self, width: int) -> bool:
        """Whether the page is wider than a window of that many pixels."""
        self.page.set_viewport_size({"width": width, "height": 900})
        return bool(self.page.evaluate(WIDER))


@contextmanager
def reader(started: Browser, address: str, width: int = 1400) -> Iterator[Reader]:
    """Open a window of the browser, for a reader whose system is light."""
    context = started.new_context(
        viewport={"width": width, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
    try:
        yield Reader(context.new_page(), address)
    finally:
        context.close()
