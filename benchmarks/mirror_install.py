"""Installing from a mirror against installing from the originals: by uv and by pip, from a server of limited speed.

    .venv/bin/cuwheel publish -r requirements.txt --for fleet.toml --to originals
    .venv/bin/cuwheel publish -r requirements.txt --for fleet.toml --slim --to mirror
    .venv/bin/python benchmarks/mirror_install.py originals mirror requirements.txt --rounds 2

Both are installed in turn, each into a fresh environment with an empty cache, so that the load of a machine falls on
both alike. Said of each: seconds of the clock, seconds of the processor, and of the clock what the bytes alone take.
pip's own parts are told apart by installing from the files (no network) and without compiling (`--no-compile`).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 18
BIN = Path(sys.executable).parent


class _Limited(SimpleHTTPRequestHandler):
    """All answers together come at so many bytes a second."""

    rate = 100e6
    lock = threading.Lock()
    free_at = 0.0
    sent = 0

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:  # type: ignore[override]
        while chunk := source.read(_CHUNK):
            with _Limited.lock:
                now = time.monotonic()
                _Limited.free_at = max(_Limited.free_at, now) + len(chunk) / self.rate
                _Limited.sent += len(chunk)
                wait = _Limited.free_at - now
            if wait > 0:
                time.sleep(wait)
            outputfile.write(chunk)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _serving(folder: Path, rate: float) -> Iterator[str]:
    _Limited.rate, _Limited.sent = rate, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Limited, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _rest() -> None:
    """What the installation before has left, to write and in memory, slows no other; emptying takes root."""
    os.sync()
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")


def _install(tool: str, folder: Path, requirements: Path, rate: float) -> dict[str, float]:
    scratch = Path(tempfile.mkdtemp(prefix="mirror-install-", dir=folder.parent))
    try:
        env = scratch / "env"
        subprocess.run([str(BIN / "uv"), "venv", "-q", "--python", sys.executable, str(env)], check=True)
        variables = {**os.environ, "UV_CACHE_DIR": str(scratch / "uv"), "PIP_CACHE_DIR": str(scratch / "pip")}
        variables = {name: value for name, value in variables.items() if not name.endswith(("INDEX_URL", "_INDEX"))}
        with _serving(folder, rate) as url:
            index = ["--index-url", f"{url}/simple"]
            command = {
                "uv": [str(BIN / "uv"), "pip", "install", "--no-config", "--python", str(env), *index],
                "pip": [str(BIN / "pip"), "--python", str(env), "--isolated", "install", *index],
            }[tool.partition(" ")[0]]
            command += ["--no-compile"] if "no-compile" in tool else []
            _rest()
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run([*command, "-q", "-r", str(requirements)], env=variables, check=True)
            took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return {"s": took, "cpu": cpu, "line": _Limited.sent / rate, "MB": _Limited.sent / 1e6}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("originals", type=Path)
    parser.add_argument("mirror", type=Path)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=100.0, help="MB a second")
    parser.add_argument("--tools", default="uv,pip,pip no-compile")
    words = parser.parse_args()
    for tool in words.tools.split(","):
        found: dict[str, list[dict[str, float]]] = {"originals": [], "mirror": []}
        for _ in range(words.rounds):
            for name, folder in (("originals", words.originals), ("mirror", words.mirror)):
                row = _install(tool, folder.resolve(), words.requirements.resolve(), words.rate * 1e6)
                found[name].append(row)
                load = os.getloadavg()[0]
                print(tool, name, {key: round(value, 1) for key, value in row.items()}, f"load {load:.0f}", flush=True)
        ratios = [
            statistics.median(each[key] for each in found["mirror"])
            / statistics.median(each[key] for each in found["originals"])
            for key in ("s", "cpu", "MB")
        ]
        print(f"{tool}: clock {ratios[0]:.2f}, processor {ratios[1]:.2f}, bytes {ratios[2]:.2f} of the originals'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
