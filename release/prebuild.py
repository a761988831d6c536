"""Our own C, compiled before cuwheel is packed, so that its users need no compiler: `./run prebuild [PART...]`.

What is made lies in folders called `prebuilt` beside the sources, with the digest of those sources: it is in the wheel
and the sdist, and nothing of it is committed. zig brings C libraries of every age and processor: what it makes runs on
any Linux of the last ten years.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import shims
from cuwheel.support import own_c
from cuwheel.tracing import session

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINES = ("x86_64", "aarch64")
_ZIG = ("uv", "run", "--quiet", "--no-project", "--with", "ziglang==0.17.0", "python", "-m", "ziglang", "cc")
_OLD_C_LIBRARY = "gnu.2.17"


def main(parts: list[str]) -> int:
    wrong = sorted(set(parts) - set(PARTS))
    if wrong:
        print(f"error: there is no part {', '.join(wrong)}\nhint: one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for part in parts or PARTS:
        sources, digest, make = PARTS[part]
        place = sources / own_c.PREBUILT
        if own_c.prebuilt(place, digest()):
            print(f"prebuild: {part}: as its sources are", file=sys.stderr)
            continue
        # Beside, then renamed: what was interrupted is not taken for whole.
        with tempfile.TemporaryDirectory(dir=sources, prefix=".") as name:
            fresh = Path(name, own_c.PREBUILT)
            fresh.mkdir()
            make(fresh)
            for each in fresh.iterdir():
                each.chmod(0o644)
            (fresh / own_c.ORIGIN).write_text(digest() + "\n", encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            fresh.rename(place)
        for each in sorted(place.iterdir()):
            print(f"prebuild: {part}: {each.name}, {each.stat().st_size:,} bytes", file=sys.stderr)
    return 0


def _trace(place: Path) -> None:
    for machine in MACHINES:
        target = place / f"trace-{machine}.so"
        _zig(machine, _OLD_C_LIBRARY, session.OPTIONS, session.SOURCES / "trace.c", target, "-ldl", "-lpthread")


def _record(place: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "secrets.h").write_text(shims.secret_lists(), encoding="utf-8")
        options = (*shims.OPTIONS, "-I", name)
        for machine in MACHINES:
            # Static, with musl: it runs beside any C library, or none.
            _zig(machine, "musl", (*options, "-static"), shims.SOURCES / "shim.c", place / f"shim-{machine}")
            library = place / f"preload-{machine}.so"
            options_of_library = (*options, *shims.LIBRARY_OPTIONS)
            _zig(machine, _OLD_C_LIBRARY, options_of_library, shims.SOURCES / "preload.c", library, "-ldl")


def _zig(machine: str, libc: str, options: tuple[str, ...], source: Path, target: Path, *libraries: str) -> None:
    # Paths of this machine do not belong into what others run; and the same sources give the same bytes.
    mapped = f"-ffile-prefix-map={source.parent}=."
    words = (
        *_ZIG,
        "-target",
        f"{machine}-linux-{libc}",
        "-s",
        mapped,
        *options,
        str(source),
        "-o",
        str(target),
        *libraries,
    )
    subprocess.run(words, check=True, cwd=source.parent)


PARTS: dict[str, tuple[Path, Callable[[], str], Callable[[Path], object]]] = {
    "trace": (session.SOURCES, lambda: own_c.source_digest(session.SOURCES), _trace),
    "record": (shims.SOURCES, lambda: own_c.source_digest(shims.SOURCES, shims.secret_lists()), _record),
    "windows": (shims.WINDOWS_SOURCES, shims.windows_digest, shims.make_windows_programs),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
