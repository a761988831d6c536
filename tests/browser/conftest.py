"""One headless Chromium for the tests of a module."""

from __future__ import annotations

import shutil
import socketserver
from typing import TYPE_CHECKING

import pytest

from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def proxy() -> Iterator[tuple[int, list[str]]]:
    """Whatever a page asks of other hosts comes here, and is refused: the port, and the first line of each request."""
    asked: list[str] = []

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline().decode("latin-1").strip())

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse)
    with servers.answering(server):
        yield server.server_address[1], asked


@pytest.fixture(scope="module")
def requested_elsewhere(proxy: tuple[int, list[str]]) -> list[str]:
    return proxy[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, proxy: tuple[int, list[str]]) -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs chromium and chromedriver: ./run setup --system")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=1200,900",
        f"--proxy-server=http://127.0.0.1:{proxy[0]}",
        "--proxy-bypass-list=127.0.0.1",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(driver))
    yield chrome
    chrome.quit()
