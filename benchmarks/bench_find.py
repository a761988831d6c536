"""`cuwheel find` of a package with fifty releases on an index with facts files, nothing cached, over loopback."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, ROOT, Measure, alternate, finish, shown

from cuwheel.device_code import wheel_facts
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 5
RELEASES = 50
LIBRARY = ROOT / "tests/fixtures/bin/plain-130.so"
MACHINE = ("--on", "h100", "--set", "os=linux,cpu=x86_64,glibc=2.36", "--driver", "580.65.06")


class _Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _index(folder / "site")
        handler = functools.partial(_Quiet, directory=str(folder / "site"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_address[1]}/simple"
        cache = folder / "cache"
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        find: list[str | Path] = [
            BIN / "cuwheel",
            "find",
            "demo",
            "--index",
            index,
            "--set",
            f"python={python}",
            *MACHINE,
            "--json",
        ]
        pip: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "index",
            "versions",
            "demo",
            "--no-cache-dir",
            "--index-url",
            index,
        ]
        taken = alternate({"find": _cold(find, cache), "pip": _cold(pip, cache)}, ROUNDS)
        server.shutdown()
    measure = Measure(
        what=f"{RELEASES} releases judged from facts files, and which runs",
        ours=shown(taken["find"]),
        theirs=shown(taken["pip"]),
        value=taken["find"] / taken["pip"],
        best=1.2,
        at_most=True,
    )
    return finish([measure])


def _cold(words: Sequence[str | Path], cache: Path) -> Callable[[], object]:
    """A whole program that finds nothing kept from the run before, nor any configuration of this machine."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    environ = {**kept, "CUWHEEL_CACHE": str(cache), "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}

    def work() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        subprocess.run([str(each) for each in words], env=environ, check=True, capture_output=True)

    return work


def _index(site: Path) -> None:
    files, page = site / "files", site / "simple/demo"
    files.mkdir(parents=True)
    page.mkdir(parents=True)
    links = []
    for minor in range(RELEASES):
        wheel = files / f"demo-1.{minor}-py3-none-manylinux_2_28_x86_64.whl"
        info = f"demo-1.{minor}.dist-info"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(LIBRARY, "demo/libdemo.so")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: 1.{minor}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_28_x86_64\n")
            archive.writestr(f"{info}/RECORD", "")
        with WheelFile(wheel) as opened:
            Path(f"{wheel}{wheel_facts.SUFFIX}").write_bytes(wheel_facts.encoded(wheel_facts.of_wheel(opened)))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        links.append(f'<a href="../../files/{wheel.name}#sha256={digest}">{wheel.name}</a>')
    (page / "index.html").write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")


if __name__ == "__main__":
    sys.exit(main())
