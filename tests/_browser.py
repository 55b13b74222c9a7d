"""JupyterLab as `make lab` starts it, in a checkout of its own, and a browser that looks at it."""

from __future__ import annotations  # the names of a package that may be missing

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import nbformat
import psutil
from _servers import chromium
from _tools import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

PATIENCE = 60.0
"""Seconds that anything but a run of cells may take."""
# Of a browser without a user: no network but the page's, no files shared through /dev/shm.
OPTIONS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
START = """
import os, sys
sys.path.insert(0, "tools")
import run
(command,) = run.commands(sys.argv[1:])["lab"]
os.execve(sys.executable, [sys.executable, *command], run.variables(cpu_only=True))
"""
"""What `make lab` does once there is an environment: this one serves the copied checkout, too."""


def git(checkout: Path, *words: str) -> str:
    """What git prints about a checkout."""
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", "-C", checkout, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def copy_checkout(target: Path) -> Path:
    """Make a repository with one commit: this checkout, with what is not committed yet."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    git(target, "init", "--quiet")
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message=all")
    return target


class Lab:
    """A JupyterLab that runs.

    Attributes:
        checkout: The project's folder, which it serves.
        address: Where it says that it answers, with its token.
        lines: What it has printed so far.
    """

    def __init__(self, checkout: Path, *options: str, stdin: int = subprocess.DEVNULL) -> None:
        self.checkout = checkout
        self.lines: list[str] = []
        self.address = ""
        self._named = threading.Event()
        command = [sys.executable, "-c", START, "--no-browser", "--port=0", *options]
        command += ["--allow-root"] * (os.getuid() == 0)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
        self._process = subprocess.Popen(
            command,
            cwd=checkout,
            env=inherited,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._named.wait(PATIENCE) or not self.address:
            self.close()
            raise AssertionError("JupyterLab named no address:\n" + "\n".join(self.lines))

    def _read(self) -> None:
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(r"http://localhost:\d+/\S+\btoken=\w+", line):
                self.address = found[0]
                self._named.set()
        self._named.set()

    def url(self, path: str, workspace: str) -> str:
        """Where a file opens in a workspace of its own, without the tabs of another."""
        base, _, token = re.split(r"/lab(.*)\?", self.address)
        return f"{base}/lab/workspaces/{workspace}/tree/{path}?{token}"

    def notebook(self, name: str, *sources: str, title: str = "# A title") -> str:
        """Write a notebook of code cells into `work/`; return its path in the project."""
        path = f"work/{name}.ipynb"
        cells = [nbformat.v4.new_markdown_cell(title)]
        cells += [nbformat.v4.new_code_cell(source) for source in sources]
        # Without a kernel's name JupyterLab would ask for one.
        metadata = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "name": "python3"}}
        made = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
        nbformat.write(made, self.checkout / path)
        return path

    def shell(self) -> psutil.Process:
        """Open a terminal in it; the shell that runs there."""
        base, _, token = re.split(r"/lab(.*)\?token=", self.address)
        before = psutil.Process(self._process.pid).children()
        asked = Request(f"{base}/api/terminals?token={token}", method="POST")
        urlopen(asked, timeout=PATIENCE).close()
        (opened,) = set(psutil.Process(self._process.pid).children()) - set(before)
        return opened

    def interrupt(self) -> int:
        """Do what Ctrl-C does; the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """End it, with its kernels."""
        try:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()


class Window:
    """A browser's page with JupyterLab, and what a reader does there.

    Attributes:
        page: The page, for whatever has no method here.
    """

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        page.set_default_timeout(PATIENCE * 1000)

    def start(self) -> None:
        """Open the address that the terminal shows."""
        self._go(self.lab.address)

    def open(self, path: str) -> None:
        """Open a file of the project, and no other."""
        self._go(self.lab.url(path, f"w{next(_numbers)}"))

    def _go(self, address: str) -> None:
        self.page.goto(address)
        self.page.locator("#jp-main-dock-panel .jp-Document:visible").first.wait_for()
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    @property
    def document(self) -> Locator:
        """The document in front."""
        return self.page.locator("#jp-main-dock-panel .jp-Document:visible")

    @property
    def cells(self) -> Locator:
        """The code cells of the notebook in front."""
        return self.document.locator(".jp-CodeCell")

    def output(self, number: int) -> Locator:
        """The outputs of a code cell, counted from 0."""
        return self.cells.nth(number).locator(".jp-OutputArea-output")

    def texts(self, number: int) -> list[str]:
        """What each output of a code cell says."""
        return self.output(number).all_text_contents()  # also of what is out of sight

    def menu(self, *labels: str) -> None:
        """Choose an entry of the menu bar: `menu("File", "Save Notebook")`."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=_exactly(labels[0])).click()
        for label in labels[1:]:
            self.page.locator(".lm-Menu-itemLabel", has_text=_exactly(label)).last.click()

    def run_all(self, seconds: float = 0.0) -> None:
        """Run all cells, once the kernel is there; with `seconds`, wait for the last to end."""
        self.ready()
        self.menu("Edit", "Clear Outputs of All Cells")  # and with them the numbers of the last run
        self.menu("Run", "Run All Cells")
        if seconds:
            self.wait_idle(seconds)

    def ready(self) -> None:
        """Wait until the kernel answers, and is not at work."""
        self.page.locator("#jp-main-statusbar", has_text="Python 3 (ipykernel) | Idle").wait_for()

    def wait_idle(self, seconds: float = PATIENCE) -> None:
        """Wait until the first cell has run, and no other runs or waits to."""
        from playwright.sync_api import expect

        prompts = self.cells.locator(".jp-InputArea-prompt")
        expect(prompts.first).to_have_text(re.compile(r"\[\d+\]"), timeout=seconds * 1000)
        expect(prompts.filter(has_text="[*]")).to_have_count(0, timeout=seconds * 1000)
        self.ready()

    def interrupt(self) -> None:
        """Press the button that interrupts the kernel."""
        self.document.locator("[data-command='notebook:interrupt-kernel']").first.click()

    def complete(self, number: int, text: str) -> list[str]:
        """Type something into a code cell, press Tab, and return what is offered."""
        editor = self.cells.nth(number).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Tab")
        items = self.page.locator(".jp-Completer:visible .jp-Completer-item")
        items.first.wait_for()
        return items.locator(".jp-Completer-match").all_inner_texts()

    @property
    def unsaved(self) -> Locator:
        """What a tab shows whose document is not saved."""
        return self.page.locator("#jp-main-dock-panel .lm-TabBar-tab.jp-mod-dirty")

    def save(self) -> None:
        """Save the document in front, and wait until the server has written it."""
        with self.page.expect_response(
            lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url
        ):
            self.menu("File", "Save Notebook")


_numbers = itertools.count()


def _exactly(label: str) -> re.Pattern[str]:
    return re.compile(rf"^\s*{re.escape(label)}\s*$")


@contextmanager
def browser(folder: Path, *more: str) -> Iterator[Browser]:
    """A browser that ends with the block; its own files are in a folder, it may have options."""
    home = folder / "home"
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    environment |= {"HOME": str(home), "TMPDIR": str(folder)}
    options = [*OPTIONS, *more, *(["--no-sandbox"] if os.getuid() == 0 else [])]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), args=options, env=environment, timeout=PATIENCE * 1000
        )
        try:
            yield started
        finally:
            started.close()


@contextmanager
def window(lab: Lab, started: Browser, width: int = 1440, theme: str = "Light") -> Iterator[Window]:
    """A fresh window, in JupyterLab's light or dark theme."""
    chosen = lab.checkout.joinpath(
        ".cache/jupyter/config/lab/user-settings/@jupyterlab/apputils-extension"
    )
    chosen.mkdir(parents=True, exist_ok=True)
    setting = {"theme": f"JupyterLab {theme}"}
    (chosen / "themes.jupyterlab-settings").write_text(json.dumps(setting))
    context = started.new_context(viewport={"width": width, "height": 900})
    try:
        yield Window(lab, context.new_page())
    finally:
        context.close()
