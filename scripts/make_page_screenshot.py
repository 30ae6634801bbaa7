"""Make docs/img/serve.png: the page of ``umpteen serve`` with a text that is tagged and explained by the demo's model.

Usage: python scripts/make_page_screenshot.py. Needs the extra ``serve``, playwright and Chromium (the program chromium
on the path, or its path in UMPTEEN_CHROMIUM).
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright

import umpteen
from umpteen.serve.app import create_app

TARGET = Path(__file__).parents[1] / "docs" / "img" / "serve.png"
SIZE = {"width": 1280, "height": 1010}
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
TEXT = """Board games for the desktop

This package is a graphical chess program for X11. Play against the computer at several levels of strength, follow \
games on an internet chess server, or read and write games in portable game notation. The board can be turned, and the \
pieces are drawn in three dimensions with OpenGL.

An opening book is included. Engines that speak the UCI protocol, such as the one that comes with the package, are \
started as separate programs; they are configured in a window, and their thoughts can be watched while they think."""
LABEL = "use: gameplaying"


def main() -> None:
    """Train, serve, and take the picture."""
    chromium = os.environ.get("UMPTEEN_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium is missing: apt-get install chromium, or name its path in UMPTEEN_CHROMIUM")
    data = umpteen.load_demo()
    model = umpteen.XRLinear(seed=1).fit(data.texts, data.Y, label_names=data.labels)
    with serving({"demo": model}) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(address)
        take(page)
        browser.close()


@contextmanager
def serving(models: dict[str, Any]) -> Iterator[str]:
    """Serve models in a thread on a port that is free."""
    server = uvicorn.Server(uvicorn.Config(create_app(models), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def take(page: Any) -> None:
    """Tag the text, explain a label, and save what the page shows."""
    page.wait_for_selector("#columns .empty")
    page.fill("#text", TEXT)
    page.click("#run")
    page.click(f"button.label:has-text('{LABEL}')")
    page.wait_for_selector("#why .path button")
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.screenshot(path=TARGET, animations="disabled")


if __name__ == "__main__":
    main()
