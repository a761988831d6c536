"""The site in Chromium: bytes of a first visit, seconds to a first answer, a large wheel and the memory it takes.

./run bench site                the page and its first answer
./run bench site --wheel WHEEL  a wheel too, such as PyTorch's
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness import BIN, ROOT, Measure, command, finish, seconds, shown
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

LOG = "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
READY = "return document.documentElement.dataset.ready"
MOST_MEMORY = 2 << 30
MINUTES = 60


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the library declares it
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_args: object) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description="The site in Chromium.")
    parser.add_argument("--wheel", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = [sys.executable, str(ROOT / "site" / "build.py"), "--no-docs", str(folder / "site")]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        handler = functools.partial(Handler, directory=str(folder / "site"))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = _browser(folder / "profile")
        try:
            return finish(_measures(page, f"http://127.0.0.1:{server.server_port}/", folder, args.wheel))
        finally:
            page.quit()
            server.shutdown()


def _measures(page: Chrome, address: str, folder: Path, wheel: Path | None) -> list[Measure]:
    log = folder / "log.txt"
    log.write_text(LOG)
    terminal = seconds(command(BIN / "cuwheel", "explain", log, "--json"))
    began = time.perf_counter()
    page.get(address)
    _wait(page, READY)
    _explain(page)
    first = time.perf_counter() - began
    again = seconds(lambda: _explain(page))
    size = sum(each.stat().st_size for each in (folder / "site").rglob("*") if each.is_file())
    measures = [
        Measure(what="bytes of a first visit", ours=f"{size / 1e6:.1f} MB", theirs="", value=size / 1e6, best=15.9,
                unit="MB", at_most=True),
        Measure(what="a first visit, to the first answer of explain", ours=shown(first),
                theirs=f"{shown(terminal)} (the command)", value=first / terminal, best=10.6, at_most=True),
        Measure(what="the next answer", ours=shown(again), theirs=f"{shown(terminal)} (the command)",
                value=again / terminal, best=0.3, at_most=True),
    ]  # fmt: skip
    return measures + (_large(page, wheel) if wheel else [])


def _large(page: Chrome, wheel: Path) -> list[Measure]:
    before = _memory(page)
    page.find_element(By.ID, "tab-files").click()
    began = time.perf_counter()
    page.find_element(By.ID, "files-chosen").send_keys(str(wheel.resolve()))
    _wait(page, "return document.querySelector('#files .answer article')", 20 * MINUTES)
    taken = time.perf_counter() - began
    unzip = seconds(command("unzip", "-p", wheel, "*.so*"))
    memory = _memory(page)
    return [
        Measure(what=f"inspect of {wheel.name[:30]}", ours=shown(taken), theirs=f"{shown(unzip)} (unzip -p)",
                value=taken / unzip, best=4.5, at_most=True),
        Measure(what="memory of the page's process, at most", ours=f"{memory / 1e6:.0f} MB",
                theirs=f"{before / 1e6:.0f} MB before", value=memory / MOST_MEMORY, promised=1.0, unit="of 2 GiB",
                at_most=True),
    ]  # fmt: skip


def _explain(page: Chrome) -> None:
    page.find_element(By.ID, "tab-explain").click()
    page.execute_script("document.querySelector('#explain .answer').replaceChildren()")
    page.execute_script("document.getElementById('log').value = arguments[0]", LOG)
    page.find_element(By.CSS_SELECTOR, "#explain button[type=submit]").click()
    _wait(page, "return document.querySelector('#explain .answer article')")


def _wait(page: Chrome, script: str, most: int = 3 * MINUTES) -> None:
    WebDriverWait(page, most, poll_frequency=0.02).until(lambda each: each.execute_script(script))


def _browser(profile: Path) -> Chrome:
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    return Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))


def _memory(page: Chrome) -> int:
    """The highest so far of the largest of Chromium's processes: the one that shows the page."""
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    ours = {page.service.process.pid}
    for _ in range(4):  # parents before children: the driver, the browser, its zygotes, its pages
        ours |= {each for each in processes if _parent(each) in ours}
    return max(map(_high_water, ours))


def _parent(process: int) -> int:
    return _status(process, "PPid")


def _high_water(process: int) -> int:
    return _status(process, "VmHWM") * 1024


def _status(process: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


if __name__ == "__main__":
    sys.exit(main())
