"""The library that traced programs load: the one that ships, or where that does not fit this system, compiled here."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import ToolError, ToolTimeoutError, UnreadableError, UsageError
from cuwheel.support import files, own_c, process, system_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = Path(__file__).parent / "preload"
OPTIONS = ("-std=gnu11", "-O2", "-w", "-shared", "-fPIC", "-fvisibility=hidden")
ORIGIN = "built-from.txt"
_NAME = "trace.so"
_TRIAL_S = 20


def all_shipped() -> tuple[Path, ...]:
    """Those that ./run preload made, unless the sources have changed since: one for each processor."""
    try:
        fresh = (SOURCES / ORIGIN).read_text(encoding="ascii").strip() == own_c.source_digest(SOURCES)
    except OSError:
        return ()
    return tuple(sorted(SOURCES.glob("trace-*.so"))) if fresh else ()


def shipped() -> Path | None:
    """The one for this processor."""
    return next((each for each in all_shipped() if each.stem == f"trace-{platform.machine()}"), None)


def path(environ: Mapping[str, str]) -> Path:
    """One that this machine's programs load without a word."""
    if not sys.platform.startswith("linux"):
        hint = "wsl cuwheel trace -- COMMAND   (under WSL2, with the driver of Windows)" if os.name == "nt" else ""
        raise UsageError("programs can be traced on Linux only", hint=hint)
    place = own_c.home(files.cache_folder()) / "trace" / own_c.digest(SOURCES)
    made = place / _NAME
    if made.is_file():
        return made
    given = shipped()
    with files.errors_of(place, "choose another folder with CUWHEEL_CACHE"):
        place.mkdir(parents=True, exist_ok=True)
        if given and _loads(given):
            return files.copy(given, made)
        with tempfile.TemporaryDirectory(dir=place, prefix=".") as name:
            trial = Path(name, _NAME)
            for compiler in own_c.compilers(environ):
                command: list[str | Path] = [compiler, *OPTIONS, SOURCES / "trace.c", "-o", trial, "-ldl", "-lpthread"]
                if own_c.compiled(command, environ) and _loads(trial):
                    system_calls.rename_over(trial, made)
                    return made
    raise ToolError(
        ["cc"], "cannot make a library that this machine's programs load", hint="install a C compiler: apt install gcc"
    )


def _loads(library: Path) -> bool:
    """A loader that cannot take it says so on stderr, and goes on without it."""
    try:
        done = process.run(["/bin/sh", "-c", ":"], timeout=_TRIAL_S, check=False, env={"LD_PRELOAD": str(library)})
    except (ToolError, ToolTimeoutError, UnreadableError):
        return False
    return done.status == 0 and not done.stderr
