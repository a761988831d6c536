"""Cold and warm starts: what is emptied before a trial, and what could not be."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.errors import ToolError
from cuwheel.proving.measuring import journal
from cuwheel.proving.measuring.journal import Host, PageCache
from cuwheel.support import log, process, quoting, system_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.proving.measuring.trials_file import Cold

CACHE = "CUDA_CACHE_PATH"
LOADING = "CUDA_MODULE_LOADING"
_DROP = Path("/proc/sys/vm/drop_caches")
_HOOK_S = 600.0
_LOOK_S = 0.1
_MOST_FILES = 20_000
_POWER_MODE = Path("/var/lib/nvpmodel/status")  # of a Jetson


class Prepared(NamedTuple):
    """`environ`: variables of the trial. `cold`: what was cold about it."""

    environ: dict[str, str]
    cold: journal.Cold


def as_it_is() -> Prepared:
    return Prepared({}, journal.Cold(asked="as it is", jit_cache="the user's", page_cache="kept"))


def warm(settings: Cold, cache: Path, *, ready: bool) -> Prepared:
    """With a JIT cache that stays from trial to trial. `ready`: a run before it has passed since all was cold."""
    environ = _environ(settings, cache)
    return Prepared(
        environ,
        journal.Cold(
            asked="warm",
            jit_cache="kept" if any(cache.iterdir()) else "empty",
            page_cache="kept",
            module_loading=_loading(settings),
            note="" if ready else "no run before it has passed, so it may not be warm",
        ),
    )


def cold(settings: Cold, caches: Path, files: Iterable[Path], *, rebooted: bool) -> Prepared:
    """With all that may be emptied empty. `files`: what the program is made of."""
    place = caches / "cold"
    emptied = not settings.jit_cache or _emptied(place)
    page_cache: PageCache
    page_cache, note = _pages_dropped(files) if settings.page_cache else ("kept", "as asked")
    if not emptied:
        note = f"the JIT cache {place} could not be emptied; {note}"
    return Prepared(
        _environ(settings, place) if settings.jit_cache else _environ(settings, None),
        journal.Cold(
            asked="cold",
            jit_cache="the user's" if not settings.jit_cache else "empty" if emptied else "kept",
            page_cache=page_cache,
            rebooted=rebooted,
            module_loading=_loading(settings),
            note=note,
        ),
    )


def _environ(settings: Cold, cache: Path | None) -> dict[str, str]:
    made = {LOADING: settings.module_loading.upper()} if settings.module_loading else {}
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        made[CACHE] = str(cache)
    return made


def _loading(settings: Cold) -> str | None:
    return settings.module_loading or os.environ.get(LOADING)


def _emptied(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return not any(folder.iterdir())
    return False


def _pages_dropped(files: Iterable[Path]) -> tuple[PageCache, str]:
    """How far it went, and why not further."""
    try:
        os.sync()
        _DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        reason = f"{_DROP}: {error.strerror}"
    else:
        return "dropped", ""
    if not hasattr(os, "posix_fadvise"):
        return "kept", reason
    count = sum(_page_advice(path) for path in files)
    return (
        ("files dropped", f"{reason}; the pages of {count} files were dropped one by one")
        if count
        else ("kept", reason)
    )


def _page_advice(path: Path) -> bool:
    """Whether the kernel took it; pages that another process has mapped stay."""
    try:
        handle = system_calls.open_file(path, os.O_RDONLY | system_calls.AT_ONCE)
    except OSError:
        return False
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def program_files(
    command: tuple[str, ...], folder: Path | None, patterns: Iterable[str], source: Path
) -> Iterator[Path]:
    """What a program is made of, as far as it is known: itself, its files named as words, its environment."""
    program = shutil.which(command[0]) if command else None
    yield from ([Path(program)] if program else [])
    yield from (path for word in command[1:] if (path := source / word).is_file())
    found = (path for pattern in patterns for path in source.glob(pattern))
    inside = (path for path in (folder or Path(os.devnull)).rglob("*.so*"))
    for number, path in enumerate(path for each in (found, inside) for path in each if path.is_file()):
        if number >= _MOST_FILES:
            return
        yield path


def restarted(command: str, boot: str) -> bool:
    """Ask the machine to start anew. True where it did and we still live, which only a test sees."""
    words = quoting.split(command)
    log.info("restarting the machine before a cold trial: %s", command)
    done = process.run(words, timeout=_HOOK_S, check=False)
    if done.status:
        raise ToolError(
            words, f"failed with status {done.status}, so there is no cold start", done.stdout + done.stderr
        )
    until = time.monotonic() + _HOOK_S
    while time.monotonic() < until:
        if journal.boot_id() != boot:
            return True
        time.sleep(_LOOK_S)
    raise ToolError(
        words,
        f"succeeded, but the machine did not restart within {_HOOK_S:g} s",
        hint="cold.reboot must be a command that restarts the machine, such as 'sudo systemctl reboot'",
    )


def host() -> Host:
    """What the system tells of itself, for the price of three small files."""
    return Host(memory_available=_available(), temperature=_hottest(), power_mode=_power_mode())


def _available() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _hottest() -> float | None:
    found = []
    for path in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text(encoding="ascii")) / 1000)
    return max(found, default=None)


def _power_mode() -> str | None:
    """Of a Jetson; elsewhere the limit of the GPU's power says as much."""
    with contextlib.suppress(OSError):
        return _POWER_MODE.read_text(encoding="utf-8", errors="replace").strip()[:200] or None
    return None
