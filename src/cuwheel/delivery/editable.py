"""`cuwheel build --editable`: a project installed from its own folder, for people who work on it.

The toolchain, the compiler and the variables are those of a build; the environment is a person's own. As with
`install`, it is put back as it was where anything fails, and `install --undo` takes the last one back.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import workspace
from cuwheel.building.steps import Steps
from cuwheel.delivery import choosing, environment_changes, installing
from cuwheel.delivery.installing import EditablePlan, Installed, broken_requirements, place_of
from cuwheel.diagnosis import failed_job, inquiry
from cuwheel.errors import CuwheelError, ToolError, UnavailableError, UsageError
from cuwheel.facts import packages, versions
from cuwheel.machine import named
from cuwheel.network import venvs
from cuwheel.support import extras, files, log, process, quoting, system_calls
from cuwheel.wheel import journal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.building.request import BuildRequest
    from cuwheel.building.values import Job
    from cuwheel.delivery.installing import Place
    from cuwheel.machine.fleet import Machine

_HOOK_S = 600.0
_SHOWN = ("CUDA_HOME", "CUDACXX", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDAHOSTCXX", "CC", "CXX")


def install(request: BuildRequest, env: Path | None, caller: Mapping[str, str]) -> Installed:
    folder = Path(request.source).absolute()
    _refuse(request, folder)
    place = place_of(env)
    with ExitStack() as stack:
        if not request.dry_run:
            extras.require("an editable install", modules=["build"], programs=[])
            stack.enter_context(journal.locked(place.prefix))
            recovered, findings = place.copy.recover()
        else:
            recovered, findings = "", ()
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-")))
        steps, machines = _decided(request, place, scratch, caller)
        job = steps.jobs[0]
        source = folder / job.subdirectory
        # What is compiled today is compiled again tomorrow, and CMake notes where its tools are.
        tools = steps.store.folder / "editable" / files.sha256_of(os.fsencode(source))[:16]
        environ = _environ(job, place, caller, tools)
        plan = _plan(steps, job, place, source, environ)
        start = Installed(
            name=steps.project.name,
            prefix=str(place.prefix),
            machines=machines,
            names=(steps.project.name,),
            editable=plan,
            recovered=recovered,
            findings=(*findings, *steps.findings, *job.notes),
        )
        if not request.dry_run:
            _make_links(job, tools)
            return _apply_or_restore(start, place, job, source, environ)
        return start


def _refuse(request: BuildRequest, folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(
            f"--editable is for a folder that you work in, not for {request.source}", hint="cuwheel build --editable ."
        )
    given = {"--cluster": request.cluster, "--lock": request.lock, "--locked": request.locked}
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} makes wheels, --editable makes none: give one of them")


def _decided(
    request: BuildRequest, place: Place, scratch: Path, caller: Mapping[str, str]
) -> tuple[Steps, tuple[Machine, ...]]:
    """One job: for the GPU of this machine or those that are named, with the environment's Python and torch."""
    python = venvs.version_of(place.interpreter)
    if python is None:
        raise UnavailableError(f"{place.interpreter} does not run", hint="python -m venv .venv, then --env .venv")
    settings = {**request.settings, "naming": "local", "merge": False, "variants": False}
    asked = with_fields(request, python=(python,), settings=settings, shares=False, output=scratch / "unused")
    steps = Steps(asked)
    if request.machines or not (machines := _with_gpu(named.machines_asked_for((), env=place.prefix))):
        machines = named.machines_asked_for(steps.table.for_, env=place.prefix) if steps.table.for_ else ()
    if not _with_gpu(machines):
        raise UsageError("this machine has no GPU that could be asked: name one", hint="--for h100")
    rows = scratch / "machines.toml"
    rows.write_text("".join(map(choosing.fleet_row, machines)), encoding="utf-8")
    steps.table = replace(steps.table, for_=(str(rows),))
    best = max(steps.plan(), key=lambda each: versions.key(each.cuda))  # all of them serve; one can be installed
    steps.prepare([best], [python], caller)
    if steps.jobs[0].toolchain.prefix:
        raise UsageError("a toolkit in a container cannot compile into this environment", hint="--provider index")
    return steps, machines


def _with_gpu(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    return tuple(each for each in machines if each.capability)


def _environ(job: Job, place: Place, caller: Mapping[str, str], tools: Path) -> dict[str, str]:
    """A build's variables, with the person's own home, temporary files and environment."""
    own = {workspace.MARK, "SOURCE_DATE_EPOCH", "SKBUILD_BUILD_DIR", *system_calls.home_variables(Path(), Path())}
    made = {name: value for name, value in job.environ.items() if name not in own}
    made |= {name: caller[name] for name in own if name in caller}
    made["VIRTUAL_ENV"] = str(place.prefix)
    folders = {
        str(venvs.interpreter(job.folder / "venv").parent): str(place.interpreter.parent),
        str(job.folder / "bin"): str(tools) if job.links else "",
    }
    words = (folders.get(each, each) for each in made["PATH"].split(os.pathsep))
    made["PATH"] = os.pathsep.join(filter(None, words))
    return made


def _plan(steps: Steps, job: Job, place: Place, source: Path, environ: Mapping[str, str]) -> EditablePlan:
    compiler, toolkit = job.toolchain.host_compiler, job.toolchain.toolkit
    lists = [each.name for each in job.settings if "ARCH" in each.name]
    shown = {name: environ[name] for name in (*_SHOWN, *lists) if name in environ}
    requires = tuple(dict.fromkeys((*steps.project.requires, *job.requires)))
    python = str(place.interpreter)
    first = [quoting.here([python, "-m", "pip", "install", *requires])] if requires else []
    install = [python, "-m", "pip", "install", *_options(job), "--editable", str(source)]
    bin_folder = quoting.here([f"{job.toolchain.root}/bin"])
    assigned = [f'PATH={bin_folder}:"$PATH"', *(f"{name}={quoting.here([value])}" for name, value in shown.items())]
    return EditablePlan(
        folder=str(source),
        cuda=job.cuda,
        archs=tuple(map(str, (*job.plan.archs, *job.plan.ptx))),
        toolkit=f"{toolkit.release} ({toolkit.provider})",
        compiler=f"{compiler.kind} {compiler.version}" if compiler else "",
        commands=(*first, " ".join((*assigned, quoting.here(install)))),
    )


def _options(job: Job) -> list[str]:
    given = [f"{name}={value}" for name, value in job.config_settings.items()]
    return ["--no-build-isolation", *(word for each in given for word in ("--config-settings", each))]


def _apply_or_restore(start: Installed, place: Place, job: Job, source: Path, environ: Mapping[str, str]) -> Installed:
    """Whatever happens in between, Ctrl-C too, leaves the environment as it was; the project's folder is not ours."""
    before = environment_changes.installed_versions(place.prefix)
    broken = set(venvs.conflicts(place.interpreter))
    place.copy.begin(start.name)
    try:
        done = _apply(start, place, job, source, environ, before)
        if done.problem:
            return replace(done, rolled_back=True, findings=(*done.findings, *place.copy.restore()))
    except BaseException:
        place.copy.restore()
        raise
    place.copy.finish()
    news = broken_requirements(set(venvs.conflicts(place.interpreter)) - broken)
    return replace(done, written=True, findings=(*done.findings, *news))


def _apply(
    start: Installed, place: Place, job: Job, source: Path, environ: Mapping[str, str], before: Mapping[str, str]
) -> Installed:
    try:
        _install_requirements(place, job, source, environ)
        changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
        if replaced := [each for each in changes if each.from_ and packages.is_framework(each.name)]:
            # Its other users may not run with another release; a build tool may be newer.
            what = ", ".join(f"{each.name} {each.from_} by {each.to}" for each in replaced)
            return replace(start, changes=changes, problem=f"what it is built with would replace {what}")
        log.info("compiling %s for %s", start.name, ", ".join(start.editable.archs if start.editable else ()))
        again = ["--reinstall-package", start.name] if venvs.uv() else []  # which takes what it built before
        venvs.install(place.interpreter, [*again, *_options(job), "--editable", source], env=environ)
        place.copy.must_keep_out()
    except ToolError as error:
        causes = inquiry.causes(error.output or error.message, failed_job.facts(job.toolchain, source), building=True)
        return replace(start, problem=error.message, causes=causes)
    except CuwheelError as error:
        return replace(start, problem=error.message)
    changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
    driver = any(each.driver for each in start.machines)
    modules = installing.modules_of_editable(place.prefix, place.interpreter, start.name)
    checks = installing.import_modules(place.prefix, place.interpreter, modules, {}, driver=driver)
    bad = installing.failed_imports(checks)
    problem = f"{bad[0].name}: {bad[0].problem or bad[0].outcome}" if bad else ""
    causes = inquiry.causes("\n".join(f"{each.output}\n{each.problem}" for each in bad)) if bad else ()
    return replace(start, changes=changes, checks=checks, causes=causes, problem=problem)


def _make_links(job: Job, tools: Path) -> None:
    """Tools, and the compiler by the names that build systems look for, where the system's folders lack them."""
    for name, place in job.links if os.name == "posix" else ():
        tools.mkdir(parents=True, exist_ok=True)
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(place)


def _install_requirements(place: Place, job: Job, source: Path, environ: Mapping[str, str]) -> None:
    """What its backend asks for, in the environment itself: it is needed whenever something is compiled again."""
    import build  # noqa: PLC0415 - the library of that name, not our room

    def runner(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
        process.run(list(cmd), cwd=Path(cwd or source), env={**environ, **(extra_environ or {})}, timeout=_HOOK_S)

    made = build.ProjectBuilder(source, str(place.interpreter), runner)
    named_in_files = sorted({*made.build_system_requires, *job.requires})
    venvs.install(place.interpreter, named_in_files, env=environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = made.get_requires_for_build("editable", job.config_settings)
    except build.BuildBackendException as error:
        if isinstance(error.exception, ToolError):
            raise error.exception from error
        raise ToolError(["the backend"], f"failed: {error.exception}") from error
    venvs.install(place.interpreter, sorted(asked), env=environ)
