"""The two programs that record on Windows: our own C, compiled by MinGW before cuwheel is packed (`./run windows`).

They ship because Windows has no compiler at hand. `watch.exe` runs the recorded command and watches its processes;
`nvcc.exe` stands in for nvcc.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from msgspec import Struct

from cuwheel.building.recording import native
from cuwheel.errors import UnreadableError
from cuwheel.support import process

SOURCES = Path(__file__).parent / "windows"
ORIGIN = "built-from.txt"
COMPILER = "x86_64-w64-mingw32-gcc"
# No time of linking and no path in them: the same sources give the same bytes.
_OPTIONS = (
    *("-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-s", "-D__USE_MINGW_ANSI_STDIO=0"),
    *("-ffunction-sections", "-fno-ident", "-fno-asynchronous-unwind-tables"),
    *("-Wl,--gc-sections", "-Wl,--no-insert-timestamp", "-Wl,--dynamicbase,--nxcompat,--high-entropy-va"),
)
_NAMES = ("watch", "nvcc")
_COMPILE_S = 120


class Programs(Struct, frozen=True, kw_only=True):
    watch: Path
    nvcc: Path


def source_digest() -> str:
    digest = hashlib.sha256("\0".join(_OPTIONS).encode())
    for path in (*sorted(SOURCES.glob("*.[ch]")), *sorted(native.SOURCES.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    digest.update(native.secret_lists().encode())
    return digest.hexdigest()


def shipped(place: Path = SOURCES) -> Programs | None:
    """Those that were made from these very sources."""
    try:
        fresh = (place / ORIGIN).read_text(encoding="ascii").strip() == source_digest()
    except OSError:
        return None
    found = Programs(watch=place / "watch.exe", nvcc=place / "nvcc.exe")
    return found if fresh and found.watch.is_file() and found.nvcc.is_file() else None


def make(place: Path) -> Programs:
    """Compiled into `place`."""
    if not shutil.which(COMPILER):
        raise UnreadableError(COMPILER, "is not installed", hint="apt install gcc-mingw-w64-x86-64-win32")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "secrets.h").write_text(native.secret_lists(), encoding="ascii")
        for each in _NAMES:
            words = [COMPILER, *_OPTIONS, "-I", name, str(SOURCES / f"{each}.c"), "-o", str(place / f"{each}.exe")]
            process.run(words, timeout=_COMPILE_S)
    (place / ORIGIN).write_text(source_digest() + "\n", encoding="ascii")
    return Programs(watch=place / "watch.exe", nvcc=place / "nvcc.exe")


if __name__ == "__main__":
    make(SOURCES)
