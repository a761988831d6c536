"""Pythons that are here, environments made with them, and packages installed into those.

By uv where it is (the extra `build` brings it), else by pip: both with their own configuration of indexes.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from cuwheel.errors import MissingExtraError, ToolError, UnavailableError, UsageError
from cuwheel.network import settings
from cuwheel.support import log, process

_ASK_S = 20.0
_MAKE_S = 120.0
_INSTALL_S = 3600.0
_VERSION = re.compile(r"(?:python|cp|py)?-?(\d)\.?(\d{1,2})(?:\.\d+)?", re.ASCII)
_QUESTION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_PIP_OPTIONS = ("--disable-pip-version-check",)
_PIP_FOLDER = re.compile(r"^pip \S+ from (.+) \(python [\d.]+\)", re.MULTILINE)
# pip's --only-binary does not cover requirements with an address (`foo @ https://…/foo.tar.gz`), not even those that
# a wheel of an index has: it fetches the source and runs it to learn its metadata. A pip that starts no program cannot.
# Those that it may start say what this machine is, or know passwords.
_NO_PROGRAMS = f"""{process.NOT_FROM_HERE}import os, runpy
STARTS = "subprocess.Popen os.system os.exec os.posix_spawn os.spawn os.fork os.forkpty os.startfile".split()
HARMLESS = "keyring", "ld-musl", "lsb_release", "rustc", "uname"
def refuse(event, args):
    if event in STARTS:
        name = os.path.basename(str(next((each for each in args if isinstance(each, (str, bytes))), event)))
        if not name.startswith(HARMLESS):
            raise PermissionError("refused by cuwheel: pip was about to run " + name)
sys.addaudithook(refuse)
sys.argv[:2] = sys.argv[1:2]
if sys.argv[0] == "pip":
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
PIP_WITHOUT_PROGRAMS = ("-c", _NO_PROGRAMS, "pip", *_PIP_OPTIONS)
_own_pip: dict[str, str] = {}
_WOULD_RUN = re.compile(r"refused by cuwheel: pip was about to run")
_COLLECTED = re.compile(r"^\s*(?:Collecting|Processing) (.+)$", re.MULTILINE)
_UV_REFUSED = re.compile(
    r"Package `(.+?)` was included as a URL dependency|Building source distributions for `(.+?)` is disabled"
    r"|Failed to build `(.+?)`\s+.*Building source distributions is disabled"
)


class Python(Struct, frozen=True, kw_only=True):
    """An interpreter that was run and said its version (`3.12.4`)."""

    path: str
    version: str
    found_via: str

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])


def uv() -> str | None:
    return process.find_program("uv")


def find_python(version: str | None = None) -> Python:
    """The interpreter of a version (`3.12`), or the one that runs cuwheel. Existing is not enough: it must run."""
    wanted = None if version is None else minor(version)
    tried = []
    for path, via in _candidates(wanted):
        found = _asked(path, via)
        if found and wanted in (None, found.minor):
            return found
        tried.append(f"{path} ({'is ' + found.version if found else 'does not run'})")
    where = "; searched " + ", ".join(tried) if tried else ""
    first = "" if uv() else 'pip install "cuwheel[build]", then '
    raise UnavailableError(f"Python {wanted} was not found{where}", hint=f"{first}uv python install {wanted}")


def minor(version: str) -> str:
    """`3.12` of whatever a person writes for it."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise UsageError(f"{version!r} is not a Python version", hint="such as 3.12")
    return f"{match[1]}.{match[2]}"


def _candidates(wanted: str | None) -> Iterator[tuple[str, str]]:
    yield sys.executable, "the interpreter of cuwheel"
    if wanted is None:
        return
    for name in (f"python{wanted}", "python3", "python"):
        if path := shutil.which(name):
            yield path, f"PATH: {name}"
    if tool := uv():
        done = process.run([tool, "python", "find", "--no-python-downloads", wanted], timeout=_ASK_S, check=False)
        if done.status == 0 and done.stdout.strip():
            yield done.stdout.strip(), "uv python find"


def _asked(path: str, via: str) -> Python | None:
    try:
        done = process.run([path, "-c", _QUESTION], timeout=_ASK_S)
    except ToolError:
        return None
    return Python(path=path, version=done.stdout.strip(), found_via=via)


def version_of(interpreter: Path) -> str | None:
    """`3.12` of an environment's Python; None where it does not run."""
    found = _asked(str(interpreter), "the environment")
    return found.minor if found else None


def make(folder: Path, python: Python, *, pip: bool = False) -> Path:
    """A new environment in `folder`, in place of what was there; its interpreter."""
    if tool := uv():
        options = ["--seed"] if pip else []
        words = [tool, "venv", "--quiet", "--clear", *options, "--python", python.path, str(folder)]
        process.run(words, timeout=_MAKE_S, env=settings.for_installers())
    else:
        options = [] if pip else ["--without-pip"]
        process.run([*process.module(python.path, "venv"), "--clear", *options, folder], timeout=_MAKE_S)
    return interpreter(folder)


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(
    interpreter: Path,
    requirements: Sequence[str | Path],
    *,
    find_links: Sequence[Path] = (),
    index: bool = True,
    dependencies: bool = True,
    offline: bool = False,
    sources: bool = True,
    env: Mapping[str, str] | None = None,
    timeout: float = _INSTALL_S,
) -> str:
    """Install into an environment; what the installer printed. `index`: False for nothing but `find_links`.

    `sources`: False for wheels alone, so that no code of a package runs. Options of installers may stand among the
    requirements.
    """
    if not requirements:
        return ""
    options = [word for path in find_links for word in ("--find-links", str(path))]
    options += [] if index else ["--no-index"]
    options += [] if dependencies else ["--no-deps"]
    options += [] if sources else ["--only-binary", ":all:"]
    command = _installer(interpreter, offline=offline, sources=sources)
    if uv():
        # It does not read pip's configuration by itself.
        env, inherited = settings.settings_for_uv(settings.read_settings(env))
        options += [each for each in inherited if each not in options]
    shown = ", ".join(str(each) for each in requirements if not str(each).startswith("-"))
    with log.progress(f"installing {shown}"):
        done = ask_installer([*command, *options, *map(str, requirements)], timeout=timeout, env=env)
    return done.stdout + done.stderr


def _installer(interpreter: Path, *, offline: bool, sources: bool) -> list[str]:
    if tool := uv():
        return [tool, "pip", "install", "--python", str(interpreter), *(["--offline"] if offline else [])]
    program = [*process.module(interpreter, "pip"), *_PIP_OPTIONS] if sources and _runs_pip(interpreter) else None
    return [*(program or pip_for(interpreter)), "install", *(["--no-index"] if offline else [])]


def ask_installer(
    command: Sequence[str | Path], *, timeout: float, env: Mapping[str, str] | None = None
) -> process.Completed:
    """Run pip or uv for wheels alone; what they refuse to build is said in words of ours."""
    try:
        return process.run(command, timeout=timeout, env=settings.for_installers(env))
    except ToolError as error:
        found = _UV_REFUSED.search(error.output)
        what = next(filter(None, found.groups())) if found else ""
        if _WOULD_RUN.search(error.output):
            what = (_COLLECTED.findall(error.output) or ["a requirement"])[-1]
        if what:
            raise SourceRefusedError(what) from error
        raise


class SourceRefusedError(UnavailableError):
    """A requirement is, or leads to, a source or an address that nobody asked for: getting it would run its code."""

    def __init__(self, what: str) -> None:
        hint = "put its wheel on an index or into a --find-links folder (cuwheel build makes one)"
        super().__init__(f"{what}: only wheels of your indexes are taken, and nothing is built", hint=hint)


def pip_for(interpreter: Path) -> list[str]:
    """A pip that works for an environment, its own or another's, and runs no code of packages."""
    if _runs_pip(interpreter):
        return [str(interpreter), *PIP_WITHOUT_PROGRAMS]
    if runner := _pip_runner():
        return [str(interpreter), "-c", _NO_PROGRAMS, runner, *_PIP_OPTIONS]
    raise MissingExtraError(["uv"], f"installing into {interpreter.parent.parent}, which has no pip,", "build")


def pip() -> list[str] | None:
    """Any pip, which runs no code of packages: for wheels that are for another Python, or hold none."""
    if _pip_of_cuwheel():
        return [sys.executable, *PIP_WITHOUT_PROGRAMS]
    runner = _pip_runner()
    return [sys.executable, "-c", _NO_PROGRAMS, runner, *_PIP_OPTIONS] if runner else None


def _runs_pip(interpreter: str | Path) -> bool:
    return bool(_pip_version(process.module(interpreter, "pip")))


def _pip_of_cuwheel() -> str:
    """What the pip beside cuwheel says of itself. Kept once it ran: pip takes long to start, and many ask."""
    if sys.executable not in _own_pip and (said := _pip_version(process.module(sys.executable, "pip"))):
        _own_pip[sys.executable] = said
    return _own_pip.get(sys.executable, "")


def _pip_version(program: Sequence[str]) -> str:
    done = process.run([*program, "--version"], timeout=_ASK_S, check=False, env=settings.for_installers())
    return done.stdout if done.status == 0 else ""


def _pip_runner() -> str | None:
    """What starts the pip of one environment with the interpreter of another."""
    others = (_pip_version([found]) for name in ("pip", "pip3") if (found := shutil.which(name)))
    for said in itertools.chain([_pip_of_cuwheel()], others):
        if match := _PIP_FOLDER.search(said):
            runner = Path(match[1]) / "__pip-runner__.py"
            if runner.is_file():
                return str(runner)
    return None


def conflicts(interpreter: Path, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What `pip check` complains of in an environment; nothing where all requirements are met."""
    env = settings.for_installers(env)
    if tool := uv():
        done = process.run([tool, "pip", "check", "--python", str(interpreter)], timeout=_MAKE_S, check=False, env=env)
        lines = [line for line in done.stderr.splitlines() if line.startswith(("The package", "    "))]
    else:
        done = process.run([*pip_for(interpreter), "check"], timeout=_MAKE_S, check=False, env=env)
        lines = done.stdout.splitlines()
    return tuple(line.strip() for line in lines) if done.status else ()
