"""The small programs that stand in for compilers, and the orders that a session gives them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.support import masking, own_c, process
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import printable

# Instructions for the shims: files in a private folder, which the variable CUWHEEL_RECORD names.

RECORD_VARIABLE = "CUWHEEL_RECORD"


class RecordOptions(Struct, frozen=True, kw_only=True):
    """How to record.

    `masked`: secrets are not written. `launcher`: words before every real call of nvcc (a compiler cache). `archs`:
    nvcc's own `-gencode …` words, in place of all architecture flags of its callers. `phases`: have nvcc time them.
    `module_ids`: which cudafe++ takes in place of its own, by a source's path, or its name as in ids (`preload` alone).
    `way`: `preload` has programs load a library that sees what they start (Linux); `watch` watches them as a debugger
    (Windows); `path` puts shims before PATH and a shadow in place of each toolkit; `auto` takes the first that works.
    """

    masked: bool = True
    launcher: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    phases: bool = True
    module_ids: Mapping[str, str] = field(default_factory=dict)
    way: str = "auto"

    @property
    def changes_calls(self) -> bool:
        """Who only watches cannot."""
        return bool(self.launcher or self.archs or self.module_ids)


class ShimOrders(Struct, frozen=True, kw_only=True):
    record: Path
    began: int  # nanoseconds of time.perf_counter_ns, which the shims' clocks agree with
    options: RecordOptions
    library: Path | None
    watch: bool = False
    environ: Mapping[str, str]
    redirected: Mapping[str, str] = field(default_factory=dict)  # variables that we changed, and to what


def write_orders(folder: Path, orders: ShimOrders) -> None:
    """`environ` holds the caller's variables as they are: this folder is nobody else's, and goes with the session."""
    (folder / "environ").write_bytes(_joined(f"{name}={value}" for name, value in orders.environ.items()))
    (folder / "config").write_bytes(_joined(_lines(orders)))


def _lines(orders: ShimOrders) -> Iterator[str]:
    yield f"record={orders.record}"
    yield f"began={orders.began}"
    if orders.library:
        yield f"library={orders.library}"
    if orders.watch:
        yield "watch=1"
    if orders.options.masked:
        yield "mask=1"
    if orders.options.phases:
        yield "phases=1"
    for name, value in orders.redirected.items():
        yield f"led={name}={value}"
    for word in orders.options.launcher:
        yield f"launcher={word}"
    for word in orders.options.archs:
        yield f"arch={word}"
    for name, module_id in orders.options.module_ids.items():
        yield f"module-id={module_id}={name}"


def _joined(lines: Iterator[str]) -> bytes:
    return b"".join(os.fsencode(line) + b"\0" for line in lines)


def read_orders(folder: Path) -> tuple[Path, dict[str, str], bool]:
    """Reads what a session that has ended left: its record, the caller's variables, and whether secrets are masked."""
    config, environ = (
        {name: value for name, _, value in (line.partition("=") for line in os.fsdecode(data).split("\0") if line)}
        for data in ((folder / name).read_bytes() for name in ("config", "environ"))
    )
    return Path(config.get("record", os.devnull)), environ, "mask" in config


# Our own C for Linux: as it ships, or compiled once with the compiler at hand.

SOURCES = Path(__file__).parent / "shim"
OPTIONS = ("-x", "c", "-std=gnu11", "-O2", "-w")
LIBRARY_OPTIONS = ("-shared", "-fPIC", "-fvisibility=hidden")
_ANSWER_S = 20


class NativeShims(Struct, frozen=True, kw_only=True):
    """`library` None: programs of this machine cannot be made to load it, and shims on PATH do the work."""

    shim: Path
    library: Path | None


def native_shims(cache: Path, environ: Mapping[str, str]) -> NativeShims | None:
    """Those that ship, or compiled now or before; None where none of them runs here."""
    if not sys.platform.startswith("linux"):
        return None
    folder = own_c.home(cache) / "record" / own_c.digest(SOURCES, secret_lists())
    if not (folder / "shim").is_file() and not _make_shims(folder, environ):
        return None
    library = folder / "preload.so"
    return NativeShims(shim=folder / "shim", library=library if library.is_file() else None)


def secret_lists() -> str:
    """The lists of `masking` and `printable` as C has them: there is one truth about what may not be shown."""
    names = ("PARTS", "LAST_PARTS", "TAILS", "LAST_TAILS", "INSIDE", "ALWAYS")
    harmless = ("HARMLESS", "HARMLESS_HEADS", "HARMLESS_ENDS", "HARMLESS_WORDS")
    lists = (
        f"static const char *const {name}[] = {{{', '.join(map(json.dumps, getattr(masking, name)))}, 0}};\n"
        for name in (*names, *harmless)
    )
    tokens = ", ".join(f"{{{json.dumps(head)}, {least}, {plain:d}}}" for head, (least, plain) in masking.TOKENS.items())
    shape = "struct token { const char *head; unsigned long least; int plain; };\n"
    known = f"static const struct token TOKENS[] = {{{tokens}, {{0, 0, 0}}}};\n"
    ranges = ", ".join(f"{{{first}, {last}}}" for first, last in printable.UNPRINTABLE)
    return "".join(lists) + shape + known + f"static const unsigned long UNPRINTABLE[][2] = {{{ranges}, {{0, 0}}}};\n"


def _make_shims(folder: Path, environ: Mapping[str, str]) -> bool:
    makers: list[Callable[[Path, Path], None]] = [_copy_prebuilt]
    makers += [partial(_compile, compiler, environ) for compiler in own_c.compilers(environ)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A shim alone is taken only where nothing makes a library that programs load (musl without a compiler, say).
    for with_library, make in itertools.product((True, False), makers):
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            scratch = Path(name)
            target = scratch / "made"
            target.mkdir()
            make(scratch, target)
            if not shim_works(target / "shim"):
                continue
            if not _is_loaded(scratch, target / "preload.so"):
                if with_library:
                    continue
                (target / "preload.so").unlink(missing_ok=True)
            # Renamed as a whole: who finds the folder finds programs that were tried.
            with contextlib.suppress(OSError):  # another cuwheel was first
                os.rename(target, folder)  # noqa: PTH104 - pathlib's would replace it
            return (folder / "shim").is_file()
    return False


def _copy_prebuilt(_: Path, target: Path) -> None:
    found = own_c.prebuilt(SOURCES / own_c.PREBUILT, own_c.source_digest(SOURCES, secret_lists()))
    for name, product in ((f"shim-{platform.machine()}", "shim"), (f"preload-{platform.machine()}.so", "preload.so")):
        if name in found:
            shutil.copyfile(found[name], target / product)
            (target / product).chmod(0o755)


def _compile(compiler: str, environ: Mapping[str, str], scratch: Path, target: Path) -> None:
    (scratch / "secrets.h").write_text(secret_lists(), encoding="utf-8")
    common = (*OPTIONS, "-I", str(scratch))
    attempts = ((*common, "-static"), common)  # without a loader it starts in half the time
    if any(
        own_c.compiled([compiler, *words, SOURCES / "shim.c", "-o", target / "shim"], environ) for words in attempts
    ):
        words = (*common, *LIBRARY_OPTIONS, SOURCES / "preload.c", "-o", target / "preload.so", "-ldl")
        own_c.compiled([compiler, *words], environ)


def shim_works(shim: Path) -> bool:
    """A compiler for another machine, or a folder from which nothing may be run, shows here."""
    with contextlib.suppress(ToolError, ToolTimeoutError):
        done = process.run(
            [shim, "--cuwheel-run", "/bin/sh", "sh", "-c", "exit 7"], timeout=_ANSWER_S, check=False, env={}
        )
        return done.status == 7  # noqa: PLR2004 - a status that does not come up by accident
    return False


def _is_loaded(scratch: Path, library: Path) -> bool:
    """Whether a shell of this machine loads the library, and so starts the shim in place of a compiler."""
    record = scratch / "trial"
    record.mkdir()
    (record / "output").mkdir()
    (record / "cc").write_text("#!/bin/sh\nexit 7\n", encoding="ascii")
    (record / "cc").chmod(0o755)
    write_orders(record, ShimOrders(record=record, began=0, options=RecordOptions(), library=library, environ={}))
    environ = {RECORD_VARIABLE: str(record), "LD_PRELOAD": str(library), "PATH": os.defpath}
    with contextlib.suppress(ToolError, ToolTimeoutError):
        process.run(["/bin/sh", "-c", '"$0" -c; :', record / "cc"], timeout=_ANSWER_S, env=environ)
    return (record / "calls.jsonl").is_file()


# The two programs that record on Windows: our own C, compiled by MinGW before cuwheel is packed (`./run prebuild`).
#
# They ship because Windows has no compiler at hand. `watch.exe` runs the recorded command and watches its processes;
# `nvcc.exe` stands in for nvcc.


WINDOWS_SOURCES = Path(__file__).parent / "windows"
MINGW = "x86_64-w64-mingw32-gcc"
# No time of linking and no path in them: the same sources give the same bytes.
_MINGW_OPTIONS = (
    *("-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-s", "-D__USE_MINGW_ANSI_STDIO=0"),
    *("-ffunction-sections", "-fno-ident", "-fno-asynchronous-unwind-tables"),
    *("-Wl,--gc-sections", "-Wl,--no-insert-timestamp", "-Wl,--dynamicbase,--nxcompat,--high-entropy-va"),
)
_COMPILE_S = 120


class WindowsPrograms(Struct, frozen=True, kw_only=True):
    watch: Path
    nvcc: Path


def windows_digest() -> str:
    headers = own_c.source_digest(SOURCES, secret_lists())
    return own_c.source_digest(WINDOWS_SOURCES, headers, *_MINGW_OPTIONS)


def shipped_windows_programs(place: Path = WINDOWS_SOURCES / own_c.PREBUILT) -> WindowsPrograms | None:
    """Those that were made from these very sources."""
    found = own_c.prebuilt(place, windows_digest())
    both = "watch.exe" in found and "nvcc.exe" in found
    return WindowsPrograms(watch=found["watch.exe"], nvcc=found["nvcc.exe"]) if both else None


def make_windows_programs(place: Path) -> WindowsPrograms:
    """Compiled into `place`."""
    if not shutil.which(MINGW):
        raise UnreadableError(MINGW, "is not installed", hint="apt install gcc-mingw-w64-x86-64-win32")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "secrets.h").write_text(secret_lists(), encoding="ascii")
        for each in ("watch", "nvcc"):
            source, program = str(WINDOWS_SOURCES / f"{each}.c"), str(place / f"{each}.exe")
            process.run([MINGW, *_MINGW_OPTIONS, "-I", name, source, "-o", program], timeout=_COMPILE_S)
    (place / own_c.ORIGIN).write_text(windows_digest() + "\n", encoding="ascii")
    return WindowsPrograms(watch=place / "watch.exe", nvcc=place / "nvcc.exe")
