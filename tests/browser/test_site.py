"""The site in a real browser: cuwheel runs in the page and answers as in a terminal. Nothing leaves the page's host."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import io
import json
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from cuwheel import cli
from cuwheel.support import process
from tests.fixtures import cache, servers
from tests.gpu.runner import unpack
from tests.oracle import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

BIN = Path(__file__).parents[1] / "fixtures" / "bin"
SITE = Path(__file__).parents[2] / "site"
LOG = """\
Collecting bitsandbytes
[1/3] nvcc -gencode arch=compute_120,code=sm_120 -c ops.cu
nvcc fatal   : Unsupported gpu architecture 'compute_120'
ninja: build stopped: subcommand failed.
"""
SMI = """
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the library declares it
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_args: object) -> None:
        pass


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    with servers.answering(server) as url:
        yield f"{url}/"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("npm"):
        pytest.skip("needs npm, from which Pyodide comes")
    spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
    assert spec
    assert spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    try:
        parts = cache.made(f"pyodide-{build.VERSION}", lambda folder: build.fetch(folder, cache.pip()))
    except cache.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("site") / "site"
    build.application(folder, parts)
    build.finish(folder)
    return folder


@pytest.fixture(scope="module")
def page(built: Path, browser: Chrome, requested_elsewhere: list[str]) -> Iterator[Chrome]:
    with _served(built) as address:
        browser.get(address)
        _until(browser, "return document.documentElement.dataset.ready")
        yield browser
        assert _named_by(built, requested_elsewhere) == []
        assert [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


def _named_by(site: Path, requests: list[str]) -> list[str]:
    """Requests to hosts that the site's own files name. The browser itself asks others: for updates, the time."""
    hosts = {request.split()[1].removeprefix("http://").split("/")[0].split(":")[0] for request in requests if request}
    files = [each.read_bytes() for each in site.rglob("*") if each.is_file()]
    return [host for host in hosts if any(host.encode() in data for data in files)]


def _until(page: Chrome, script: str, seconds: int = 120) -> Any:
    return WebDriverWait(page, seconds).until(lambda each: each.execute_script(script))


def _answers(page: Chrome, panel: str, count: int = 1, seconds: int = 120) -> list[dict[str, Any]]:
    boxes = f"[...document.querySelectorAll('#{panel} .answer article')]"
    script = f"const all = {boxes}; return all.length >= {count} ? all.map((each) => each.answer) : null"
    found: list[str] = _until(page, script, seconds)
    return [json.loads(each) if each else {} for each in found]


def _clear(page: Chrome, panel: str) -> None:
    page.execute_script(f"document.querySelector('#{panel} .answer').replaceChildren()")
    for each in (
        "start-gpu",
        "start-file",
        "machine-gpu",
        "machine-driver",
        "machine-torch",
        "smi",
        "log",
        "log-gpu",
        "plan-for",
    ):
        page.execute_script(f"document.getElementById('{each}').value = ''")
    for each in ("files-chosen", "profile", "log-file"):
        page.execute_script(f"document.getElementById('{each}').value = ''")


def _open(page: Chrome, panel: str) -> None:
    page.find_element(By.ID, f"tab-{panel}").click()
    _clear(page, panel)


def _submit(page: Chrome, panel: str) -> None:
    page.find_element(By.CSS_SELECTOR, f"#{panel} form button[type=submit]").click()


def _terminal(monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """What `cuwheel WORDS --json` prints."""
    printed = io.BytesIO()
    with monkeypatch.context() as patch, io.TextIOWrapper(printed, encoding="utf-8") as stream:
        patch.setattr(sys, "stdout", stream)
        cli.main([*words, "--json", "--quiet"])
        stream.flush()
        text = printed.getvalue()
    answer: dict[str, Any] = json.loads(text)
    return answer


def _same(page: dict[str, Any], terminal: dict[str, Any], *files: Path) -> bool:
    """Field by field; a file is known by its name, not by the folder that it lies in here or there."""
    texts = []
    for answer in (page, terminal):
        text = json.dumps(answer)
        for file in files:
            for folder in (str(file.parent), *(f"/dropped/{number}" for number in range(99, 0, -1))):
                text = text.replace(f"{folder}/{file.name}", file.name)
        texts.append(text)
    return texts[0] == texts[1]


def test_a_log_is_explained(page: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "pasted"
    log.write_text(LOG)
    _open(page, "explain")
    page.execute_script("document.getElementById('log').value = arguments[0]", LOG)
    _submit(page, "explain")
    [answer] = _answers(page, "explain")
    expected = _terminal(monkeypatch, "explain", str(log))
    assert answer["causes"][0]["id"] == "unsupported-gpu-architecture"
    assert _same(answer, {**expected, "log": "/written/pasted"})
    marked = page.find_elements(By.CSS_SELECTOR, "#explain .log mark")
    assert [each.text.strip() for each in marked] == [LOG.splitlines()[2].strip()]
    assert page.find_elements(By.CSS_SELECTOR, "#explain .copy")
    assert (
        page.find_element(By.CSS_SELECTOR, "#explain h2 a")
        .get_attribute("href")
        .endswith(  # type: ignore[union-attr]
            "docs/reference/causes/unsupported-gpu-architecture.html"
        )
    )


def test_the_first_page_takes_an_error_or_a_wheel(page: Chrome) -> None:
    _open(page, "explain")
    _open(page, "files")
    page.find_element(By.ID, "tab-start").click()
    page.find_element(By.ID, "example").click()
    _submit(page, "start")
    [answer] = _answers(page, "explain")
    assert answer["causes"][0]["id"] == "unsupported-gpu-architecture"
    assert page.find_element(By.ID, "explain").is_displayed()
    page.find_element(By.ID, "tab-start").click()
    page.find_element(By.ID, "start-gpu").send_keys("h100")
    page.find_element(By.ID, "start-file").send_keys(str(BIN / "plain-130.so"))
    checked, _ = _answers(page, "files", 2)
    assert checked["verdicts"][0]["outcome"] == "native"
    assert page.find_element(By.ID, "files").is_displayed()


def test_the_first_page_is_one_screen_and_has_the_order_of_the_documentation(page: Chrome) -> None:
    page.find_element(By.ID, "tab-start").click()
    for width in (1280, 390):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        sideways = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.execute_script(sideways) == 0
        below = "return document.querySelector('.parts').getBoundingClientRect().bottom - innerHeight"
        assert width < 500 or page.execute_script(below) <= 0
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    docs = SITE.parent / "docs"
    captions = re.findall(r"^:caption: (.+)$", (docs / "index.md").read_text(), re.MULTILINE)
    assert [each.text for each in page.find_elements(By.CSS_SELECTOR, ".parts h3")] == captions
    listed = re.findall(r"^[\w/-]+$", (docs / "index.md").read_text(), re.MULTILINE)
    links = [str(each.get_attribute("href")) for each in page.find_elements(By.CSS_SELECTOR, ".parts a")]
    places = [listed.index(each.rpartition("/docs/")[2].removesuffix(".html")) for each in links]
    assert places == sorted(places)


def test_the_page_says_what_it_loads_and_keeps_what_was_asked_meanwhile(built: Path, browser: Chrome) -> None:
    """From a server that gives Python only when it is told to."""
    go_on = threading.Event()

    class Slow(_Handler):
        def do_GET(self) -> None:
            if self.path.endswith(".wasm"):
                go_on.wait(600)
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Slow, directory=str(built)))
    with servers.answering(server) as address:
        browser.get(f"{address}/")
        told = _until(
            browser, "const text = document.getElementById('loading').textContent; return /MB;/.test(text) && text"
        )
        assert re.fullmatch(
            r"Step 1 of 3: Python for browsers \(Pyodide\), 1\d\.\d MB; 1\d\.\d MB in all, the first time only", told
        )
        browser.find_element(By.ID, "example").click()
        _submit(browser, "start")
        assert "waits until cuwheel is loaded" in browser.find_element(By.CSS_SELECTOR, "#explain .answer").text
        go_on.set()
        [answer] = _answers(browser, "explain")
        assert answer["causes"]
        assert not browser.find_element(By.ID, "state").is_displayed()


def test_other_possibilities_come_below_and_each_has_its_page(page: Chrome) -> None:
    _open(page, "explain")
    text = f"{LOG}RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    page.execute_script("document.getElementById('log').value = arguments[0]", text)
    _submit(page, "explain")
    [answer] = _answers(page, "explain")
    links = [each.get_attribute("href") for each in page.find_elements(By.CSS_SELECTOR, "#explain h2 a")]
    assert len(answer["causes"]) > 1
    wanted = [f"/docs/reference/causes/{each['id']}.html" for each in answer["causes"]]
    shown = [str(each)[str(each).index("/docs/") :] for each in links]  # again where everything is shown
    assert list(dict.fromkeys(shown)) == wanted  # and nothing of the log
    assert all(
        (SITE.parent / "docs" / "reference" / "causes" / f"{each['id']}.md").is_file() for each in answer["causes"]
    )


def test_a_library_is_read_and_judged(page: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    file = BIN / "speed-130.so"
    _open(page, "files")
    page.find_element(By.ID, "machine-gpu").send_keys("h100, gtx 1080")
    page.find_element(By.ID, "files-chosen").send_keys(str(file))
    checked, inspected = _answers(page, "files", 2)
    assert _same(inspected, _terminal(monkeypatch, "inspect", str(file)), file)
    assert _same(checked, _terminal(monkeypatch, "check", str(file), "--on", "h100, gtx 1080"), file)
    assert page.find_elements(By.CSS_SELECTOR, "#files .answer .bar")
    assert "dropped" not in page.find_element(By.CSS_SELECTOR, "#files .answer").text
    rules = {each["rule"] for each in [*inspected["findings"], *checked["verdicts"][1]["findings"]]}
    linked = page.find_elements(By.CSS_SELECTOR, "#files .findings a")
    assert {
        str(each.get_attribute("href")).rpartition("/docs/reference/rules/")[2].removesuffix(".html") for each in linked
    } >= rules
    assert all((SITE.parent / "docs" / "reference" / "rules" / f"{each}.md").is_file() for each in rules)
    assert page.find_elements(By.CSS_SELECTOR, "#files .findings .copy")


@pytest.mark.parametrize("name", ["plain-124.so", "rdc-124.so", "windows-130.dll", "size-130.so"])
def test_compressed_windows_and_relocatable_code_too(page: Chrome, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(BIN / name))
    [answer] = _answers(page, "files")
    assert _same(answer, _terminal(monkeypatch, "inspect", str(BIN / name)), BIN / name)


def test_two_files_are_compared(page: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [BIN / "plain-124.so", BIN / "plain-130.so"]
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys("\n".join(map(str, files)))
    [answer] = _answers(page, "files")
    assert _same(answer, _terminal(monkeypatch, "inspect", str(files[0]), "--against", str(files[1])), *files)


def test_a_pasted_nvidia_smi_names_the_machine(page: Chrome) -> None:
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(BIN / "plain-130.so"))
    _answers(page, "files")
    page.execute_script(
        "const box = document.getElementById('smi'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))",
        SMI,
    )
    checked, _ = _answers(page, "files", 2)
    assert checked["machines"][0]["driver"] == "550.54.15"
    assert checked["machines"][0]["capability"] == "9.0"


def _drop(page: Chrome, *files: Path) -> None:
    """As a reader does: on the page, wherever."""
    contents = [[each.name, list(each.read_bytes())] for each in files]
    page.execute_script(
        """const dropped = new DataTransfer();
        for (const [name, bytes] of arguments[0]) dropped.items.add(new File([new Uint8Array(bytes)], name));
        document.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, cancelable: true }));""",
        contents,
    )


def test_a_profile_is_dropped_with_a_library_or_after_it(
    page: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, file = tmp_path / "machine.json", BIN / "plain-130.so"
    _terminal(monkeypatch, "doctor", "--save", str(profile))
    expected = _terminal(monkeypatch, "check", str(file), "--on", str(profile))
    for drops in ([(file, profile)], [(file,), (profile,)]):
        _open(page, "files")
        for each in drops:
            _drop(page, *each)
        checked, _ = _answers(page, "files", 2)
        assert _same(checked, expected, file, profile)


def test_a_broken_file_is_an_error_in_words(page: Chrome, tmp_path: Path) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"PK\3\4" + bytes(400))
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(broken))
    _answers(page, "files")
    text = page.find_element(By.CSS_SELECTOR, "#files .answer").text
    assert "broken.whl" in text
    assert "bug in cuwheel" not in text


def test_hostile_names_stay_text(page: Chrome, tmp_path: Path) -> None:
    named = tmp_path / "<img src=x onerror=window.broken=1>.so"
    shutil.copyfile(BIN / "plain-130.so", named)
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(named))
    _answers(page, "files")
    assert page.execute_script("return window.broken") is None


def test_a_plan_and_the_tables(page: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    _open(page, "plan")
    page.find_element(By.ID, "plan-for").send_keys("h100, l40")
    _submit(page, "plan")
    [answer] = _answers(page, "plan")
    assert _same(answer, _terminal(monkeypatch, "plan", "--for", "h100, l40"))
    page.find_element(By.ID, "tab-tables").click()
    page.find_element(By.ID, "gpu-asked").send_keys("l40")
    _until(page, "return document.querySelector('#tables .answer')?.textContent.includes('L40')")


def test_a_second_visit_needs_no_network(page: Chrome, built: Path) -> None:
    with _served(built) as address:
        page.get(address)
        _until(page, "return document.documentElement.dataset.ready")
        _until(page, "return navigator.serviceWorker.ready.then((each) => Boolean(each.active))")
    page.get(address)  # nobody serves it now
    _until(page, "return document.documentElement.dataset.ready")


@pytest.mark.download
def test_a_large_wheel(page: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = packages.wheel(next(each for each in packages.published() if each.name == "bitsandbytes"))
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(wheel))
    [answer] = _answers(page, "files")
    assert _same(answer, _terminal(monkeypatch, "inspect", str(wheel)), wheel)


@pytest.mark.download
@pytest.mark.slow
def test_the_wheel_of_torch(page: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gigabyte, read where it lies; the memory that it takes is in benchmarks/bench_site.py."""
    wheel = packages.wheel(next(each for each in packages.published() if each.name == "torch"))
    _open(page, "files")
    page.find_element(By.ID, "files-chosen").send_keys(str(wheel))
    [answer] = _answers(page, "files", seconds=1800)
    assert _same(answer, _terminal(monkeypatch, "inspect", str(wheel)), wheel)
    assert page.find_elements(By.CSS_SELECTOR, "#files .answer .heat")


def _axe(folder: Path) -> None:
    process.run(["npm", "pack", "--silent", "axe-core@4"], timeout=600, cwd=folder)
    unpack(next(folder.glob("*.tgz")), folder)


def test_the_page_is_accessible(page: Chrome) -> None:
    if not shutil.which("npm"):
        pytest.skip("needs npm")
    script = cache.made("axe-core-4", _axe) / "package" / "axe.min.js"
    page.execute_script(script.read_text())
    _open(page, "explain")
    page.execute_script("document.getElementById('log').value = arguments[0]", LOG)
    _submit(page, "explain")
    _answers(page, "explain")
    _open(page, "files")
    page.find_element(By.ID, "machine-gpu").send_keys("h100, gtx 1080")
    page.find_element(By.ID, "files-chosen").send_keys(str(BIN / "names-130.so"))
    _answers(page, "files", 2)
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        for panel in ("start", "explain", "files", "plan", "tables"):
            page.find_element(By.ID, f"tab-{panel}").click()
            found = page.execute_async_script("axe.run(document).then((each) => arguments[0](each.violations))")
            told = [f"{each['id']}: {[node['target'] for node in each['nodes']]}" for each in found]
            assert told == [], f"{panel}, {scheme}"
