"""A project's own PEP 517 backend, in an environment that has what it asks for and nothing else."""

from __future__ import annotations

import shutil
import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cuwheel.errors import CuwheelError, MalformedError, ToolError, UnavailableError
from cuwheel.network import venvs
from cuwheel.support import extras
from cuwheel.wheel.metadata import distributions, site_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from build import ProjectBuilder

    from cuwheel.building.shell import Shell
    from cuwheel.building.values import Job

T = TypeVar("T")


def require_tools(*, repairs: bool) -> None:
    """Asked before a toolkit is downloaded, and hours are spent compiling, for nothing."""
    on_linux = sys.platform == "linux"  # wheels of other systems are not repaired by these
    modules, programs = (["build", "auditwheel"], ["patchelf"]) if repairs and on_linux else (["build"], [])
    extras.require("building a wheel", modules=modules, programs=programs)


def make_environment(job: Job, shell: Shell, *, offline: bool) -> Path:
    """An empty environment; its interpreter."""
    folder = job.folder / "venv"
    if job.interpreter:
        return venvs.make(folder, job.interpreter)
    if offline:
        raise UnavailableError("an environment inside a container needs the index, which --offline forbids")
    shell.run([_inner_python(job, shell), "-m", "venv", str(folder)])
    return venvs.interpreter(folder)


def _inner_python(job: Job, shell: Shell) -> str:
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
        hint="use an image that has it, such as a manylinux image: --image IMAGE",
    )


def builder(job: Job, shell: Shell, interpreter: Path) -> ProjectBuilder:
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


def backend_requires(made: ProjectBuilder, job: Job) -> set[str]:
    return _through(lambda: made.get_requires_for_build("wheel", job.config_settings))


def wheel(made: ProjectBuilder, job: Job) -> Path:
    """The one wheel that the backend wrote."""
    out = job.folder / "out"
    path = Path(_through(lambda: made.build("wheel", out, job.config_settings)))
    there = sorted(out.glob("*.whl"))
    if len(there) != 1 or path.name != there[0].name:
        written = ", ".join(each.name for each in there) or "none"
        raise MalformedError(
            path.name or "the backend",
            f"the backend reported this wheel, but wrote {len(there)}: {written}",
            hint="it must write one wheel and return its name (PEP 517)",
        )
    try:
        parse_wheel_filename(path.name)
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


def installed(folder: Path) -> dict[str, str]:
    """What is in an environment: names and versions."""
    return {each.name: each.version for site in site_packages(folder) for each in distributions(site)}


def keep(built: Path, folder: Path) -> Path:
    """Beside the job's work, where the next run finds it."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*"):
        old.unlink()
    return Path(shutil.move(built, folder / built.name))
