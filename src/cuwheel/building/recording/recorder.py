"""How this machine can record: by a library that programs load, by watching them as a debugger, or by stand-ins."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.building.recording import shims, words
from cuwheel.errors import ToolError, ToolTimeoutError, UsageError
from cuwheel.support import files, log, own_c, process, system_calls
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from cuwheel.building.recording.shims import RecordOptions, WindowsPrograms

# `preload`: Linux. `watch`: Windows. `path`: stand-ins before PATH and in shadows of toolkits.
Way: TypeAlias = Literal["preload", "watch", "path"]
Fill: TypeAlias = Callable[[Path], None]

_KEEP, _KEEP_QUIET, _TRY = "--cuwheel-keep", "--cuwheel-keep-quiet", "--cuwheel-try"
_IT_WORKS = 7  # as in windows/watch.c
_ANSWER_S = 30
_CACHE_HINT = "choose another folder with CUWHEEL_CACHE"


class Recorder(Struct, frozen=True, kw_only=True):
    """`keeper`: runs the recorded command. `stand_in`: is put where compilers are looked for."""

    way: Way
    home: Path
    keeper: Path
    stand_in: Path
    library: Path | None = None

    def redirected_environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment in which calls are seen."""
        if self.library:
            before = environ.get("LD_PRELOAD")
            return {**environ, "LD_PRELOAD": f"{self.library}:{before}" if before else str(self.library)}
        if self.way == "watch":
            return dict(environ)
        make = windows_shadow_environ if os.name == "nt" else shadow_environ
        with files.errors_of(self.home, _CACHE_HINT):
            return make(self.home, self.stand_in, environ)

    def kept_command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command run by the keeper."""
        return (str(self.keeper), _KEEP, *command)


def quiet_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """The same with its stdout on stderr."""
    if os.name != "nt":
        return ("/bin/sh", "-c", 'exec "$@" >&2', "sh", *command)
    return tuple(_KEEP_QUIET if word == _KEEP and index == 1 else word for index, word in enumerate(command))


def choose_recorder(environ: Mapping[str, str], options: RecordOptions) -> Recorder:
    try:
        return (_on_windows if os.name == "nt" else _on_posix)(environ, options)
    except OSError as error:
        raise UnreadableError.from_os(error, hint=_CACHE_HINT) from error


def _on_posix(environ: Mapping[str, str], options: RecordOptions) -> Recorder:
    if options.way == "watch":
        raise UsageError("--way watch is for Windows", hint="use --way preload, or leave it out")
    cache = files.cache_folder()
    home = own_c.home(cache)
    made = shims.native_shims(cache, environ)
    if not made:
        raise UnreadableError(
            home,
            "no program that sees calls of compilers can be made and run in it",
            hint=f"install a C compiler (apt install gcc), or {_CACHE_HINT}",
        )
    library = made.library if options.way != "path" else None
    if options.way == "preload" and not library:
        raise ToolError(
            ["cc"],
            "cannot make a library that this machine's programs load",
            hint="use --way path, which does not need it",
        )
    return Recorder(
        way="preload" if library else "path", home=home, keeper=made.shim, stand_in=made.shim, library=library
    )


def _on_windows(_environ: Mapping[str, str], options: RecordOptions) -> Recorder:
    if options.way == "preload":
        raise UsageError("--way preload is for Linux", hint="use --way watch, or leave it out")
    programs = shims.shipped_windows_programs()
    if programs is None:
        raise UnreadableError(
            shims.WINDOWS_SOURCES,
            "has no programs for Windows that were made from its sources",
            hint="pip install --force-reinstall cuwheel; from a checkout: ./run prebuild, on Linux",
        )
    if options.way == "watch" and options.changes_calls:
        raise UsageError("--way watch cannot change calls of nvcc", hint="use --way path")
    watches = options.way != "path" and not options.changes_calls and _can_watch(programs)
    if options.way == "watch" and not watches:
        raise ToolError([str(programs.watch)], "cannot watch processes on this machine", hint="use --way path")
    home = files.cache_folder()
    return Recorder(way="watch" if watches else "path", home=home, keeper=programs.watch, stand_in=programs.nvcc)


def _can_watch(programs: WindowsPrograms) -> bool:
    """Tried with a process of our own: guards of a machine may refuse debuggers, or handles of other processes."""
    with contextlib.suppress(ToolError, ToolTimeoutError):
        done = process.run([programs.watch, _TRY], timeout=_ANSWER_S, check=False)
        if done.status == _IT_WORKS:
            return True
        log.debug("watching processes does not work here: status %d", done.status)
    return False


# `path`: shims where a build looks for compilers, for machines on which programs cannot be made to load our library.
#
# A folder of shims stands before PATH, with one for each compiler that is really there. A toolkit gets a shadow: a
# folder with a shim for nvcc, and links to all the rest. Both stay in the cache, since build folders remember what they
# found; without a record under way the shims only step aside.

SHIMS_MARK = ".cuwheel-shims"  # these three as in shim/surroundings.h
TOOLKIT_LINK = ".cuwheel-toolkit"
PROGRAM_LINK = ".cuwheel-program"

_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
_PROGRAMS = ("CUDACXX", "CC", "CXX", "FC", "CUDA_NVCC_EXECUTABLE", "NVCC")


def shadow_environ(home: Path, shim: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with shims in place of compilers."""
    made = _Shadows(home, shim)
    result = dict(environ)
    for name in _ROOTS:
        if (root := environ.get(name)) and _is_toolkit(Path(root)):
            result[name] = str(made.toolkit(Path(root)))
    for name in _PROGRAMS:
        if value := environ.get(name):
            result[name] = made.program(value)
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    names = sorted(_tools(folders))
    result["PATH"] = os.pathsep.join([str(made.shims(names)), *_shadow_path(folders, made)])
    return result


def _shadow_path(folders: list[str], made: _Shadows) -> Iterator[str]:
    for folder in folders:
        if folder and Path(folder).name == "bin" and _is_toolkit(Path(folder).parent):
            yield str(made.toolkit(Path(folder).parent) / "bin")
        yield folder


def _tools(folders: list[str]) -> set[str]:
    """The compilers that are really there: one that is not must not be found. Toolkits are led to by themselves."""
    found: dict[str, bool] = {}
    for folder in filter(None, folders):
        shadowed = Path(folder).name == "bin" and _is_toolkit(Path(folder).parent)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if words.tool_kind(entry.name) and os.access(entry, os.X_OK):
                    found.setdefault(entry.name, shadowed and entry.name == "nvcc")
    return {name for name, led_to in found.items() if not led_to}


def _is_toolkit(root: Path) -> bool:
    return root.is_absolute() and all(opening.is_file(root / "bin" / name) for name in ("nvcc", "nvcc.profile"))


class _Shadows:
    """Folders below the cache."""

    def __init__(self, home: Path, shim: Path) -> None:
        self._home, self._shim = home / "record", shim

    def shims(self, names: list[str]) -> Path:
        def fill(folder: Path) -> None:
            (folder / SHIMS_MARK).touch()
            for name in names:
                (folder / name).symlink_to(self._shim)

        return self._folder("shims", "\0".join(names), fill)

    def toolkit(self, root: Path) -> Path:
        real = root.resolve()

        def fill(folder: Path) -> None:
            (folder / TOOLKIT_LINK).symlink_to(real)
            for entry in real.iterdir():
                if entry.name != "bin":
                    (folder / entry.name).symlink_to(entry)
            (folder / "bin").mkdir()
            (folder / "bin" / SHIMS_MARK).touch()
            for entry in (real / "bin").iterdir():
                if entry.name not in ("nvcc", "nvcc.profile"):
                    (folder / "bin" / entry.name).symlink_to(entry)
            # Scripts look beside nvcc for it, and follow links to somewhere else.
            shutil.copyfile(real / "bin" / "nvcc.profile", folder / "bin" / "nvcc.profile")
            (folder / "bin" / "nvcc").symlink_to(self._shim)

        return self._folder("toolkits", f"{real}\0{real.stat().st_mtime_ns}", fill)

    def program(self, value: str) -> str:
        """A compiler by its path. Words behind it (`ccache g++`) and bare names are for PATH to find."""
        path = Path(value)
        if not path.is_absolute() or not words.tool_kind(path.name) or not opening.is_file(path):
            return value
        if path.name == "nvcc" and path.parent.name == "bin" and _is_toolkit(path.parent.parent):
            return str(self.toolkit(path.parent.parent) / "bin" / "nvcc")

        def fill(folder: Path) -> None:
            (folder / SHIMS_MARK).touch()
            (folder / PROGRAM_LINK).symlink_to(path)
            (folder / path.name).symlink_to(self._shim)

        return str(self._folder("programs", value, fill) / path.name)

    def _folder(self, kind: str, key: str, fill: Fill) -> Path:
        return made_folder(self._home / kind, self._shim, key, fill)


def made_folder(place: Path, shim: Path, key: str, fill: Fill) -> Path:
    """Made whole beside and then renamed; the same again is the same folder. Another shim makes another."""
    digest = files.sha256_of(f"{shim}\0{key}".encode(errors="surrogateescape"))[:16]
    target = place / digest
    if not target.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".", dir=place))
        try:
            beside.chmod(0o755)
            fill(beside)
            with contextlib.suppress(OSError):  # another cuwheel was first
                # Scanners of Windows look at new programs for a while, and pathlib's would replace it elsewhere.
                (system_calls.rename_over if os.name == "nt" else os.rename)(beside, target)
            if not target.is_dir():
                raise OSError(errno.EACCES, "cannot be made", str(target))
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return target


# The same on Windows: a toolkit's shadow has our stand-in under each program's name in `bin`, and links to the rest.
# Host compilers get none: nvcc complains where the cl.exe on PATH is another than its own.

_WINDOWS_ROOTS = re.compile(
    r"CUDA_HOME|CUDA_PATH(?:_V\d+_\d+)?|CUDA_ROOT|CUDATOOLKIT_ROOT|CUDA_TOOLKIT_ROOT_DIR|CUDA_BIN_PATH"
)
_WINDOWS_PROGRAMS = ("CUDACXX", "CUDA_NVCC_EXECUTABLE", "NVCC")


def windows_shadow_environ(home: Path, stand_in: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with stand-ins in place of nvcc. Names of variables in capitals, as Python has them there."""
    made = _WindowsShadows(home, stand_in)
    result = dict(environ)
    for name, value in environ.items():
        if _WINDOWS_ROOTS.fullmatch(name) and is_windows_toolkit(Path(value)):
            result[name] = str(made.toolkit(Path(value)) or value)
    for name in _WINDOWS_PROGRAMS:
        if name in environ:
            result[name] = made.program(environ[name])
    result["PATH"] = ";".join(_windows_path(environ.get("PATH", "").split(";"), made))
    return result


def is_windows_toolkit(root: Path) -> bool:
    return root.is_absolute() and all(opening.is_file(root / "bin" / name) for name in ("nvcc.exe", "nvcc.profile"))


def _windows_path(folders: list[str], made: _WindowsShadows) -> Iterator[str]:
    """The real folder stays behind the shadow's: its libraries are found there."""
    for folder in folders:
        root = Path(folder.strip('"')).parent
        if folder and Path(folder.strip('"')).name.lower() == "bin" and is_windows_toolkit(root):
            yield str(made.programs(root))
        yield folder


class _WindowsShadows:
    def __init__(self, home: Path, stand_in: Path) -> None:
        self._home, self._stand_in = home / "record", stand_in

    def toolkit(self, root: Path) -> Path | None:
        """The whole; None where this disk has no links to folders, and a variable that leads here stays as it is."""

        def fill(folder: Path) -> None:
            self._fill(folder, root)
            for entry in root.iterdir():
                if entry.is_dir() and entry.name.lower() != "bin":
                    system_calls.link_folder(entry, folder / entry.name)
                elif entry.is_file():
                    shutil.copyfile(entry, folder / entry.name)
            for entry in (root / "bin").iterdir():
                if entry.is_dir():
                    system_calls.link_folder(entry, folder / "bin" / entry.name)

        try:
            return self._folder("toolkits", root, fill)
        except OSError as error:
            log.debug("%s: no shadow of it can be made: %s", root, error)
            return None

    def programs(self, root: Path) -> Path:
        """Its `bin` alone, which PATH leads to."""
        whole = self.toolkit(root)
        return (whole or self._folder("programs", root, lambda folder: self._fill(folder, root))) / "bin"

    def program(self, value: str) -> str:
        """nvcc by its path; bare names are for PATH to find."""
        path = Path(value)
        root = path.parent.parent
        if path.name.lower() in ("nvcc", "nvcc.exe") and path.parent.name.lower() == "bin" and is_windows_toolkit(root):
            return str(self.programs(root) / "nvcc.exe")
        return value

    def _fill(self, folder: Path, root: Path) -> None:
        (folder / TOOLKIT_LINK).write_text(str(root), encoding="utf-8")
        (folder / "bin").mkdir()
        (folder / "bin" / SHIMS_MARK).touch()
        for entry in (root / "bin").iterdir():
            if entry.suffix.lower() == ".exe":
                shutil.copyfile(self._stand_in, folder / "bin" / entry.name)
        shutil.copyfile(root / "bin" / "nvcc.profile", folder / "bin" / "nvcc.profile")

    def _folder(self, kind: str, root: Path, fill: Fill) -> Path:
        key = f"{root}\0{(root / 'bin').stat().st_mtime_ns}"
        return made_folder(self._home / kind, self._stand_in, key, fill)
