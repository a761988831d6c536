"""`cuwheel build --editable`: a project installed from its own folder, for people who work on it.

The toolchain, the compiler and the variables are those of a build; the environment is a person's own. As with
`install`, it is put back as it was where anything fails, and `install --undo` takes the last one back.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import workspace
from cuwheel.building.decide import decide_jobs, plan_architectures, read_source
from cuwheel.delivery import applying, environment_changes, source_builds
from cuwheel.delivery.install_answer import EditablePlan, initial_answer
from cuwheel.diagnosis import failures
from cuwheel.errors import ToolError, UnavailableError, UsageError
from cuwheel.facts import packages
from cuwheel.machine import fleet
from cuwheel.network import venvs
from cuwheel.support import files, log, process, quoting, system_calls
from cuwheel.support.finding import finding
from cuwheel.wheel import journal_file
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import distributions, site_packages
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.building.request import BuildRequest
    from cuwheel.building.settings import BuildSettings
    from cuwheel.building.values import BuildPlan, DecidedJob
    from cuwheel.delivery.environment_changes import Place
    from cuwheel.delivery.install_answer import Install
    from cuwheel.machine.fleet import Machine

_HOOK_S = 600.0
_ASK_S = 120.0
_LIBRARY = lazy_pattern(r"/(?:lib[^/]+\.so(?:\.\d+)*|[^/]+\.dll)$")  # none that Python itself imports
_SHOWN = ("CUDA_HOME", "CUDACXX", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDAHOSTCXX", "CC", "CXX")


def install_editable(request: BuildRequest, env: Path | None, caller: Mapping[str, str]) -> Install:
    folder = files.absolute(request.source)
    if not folder.is_dir():
        raise UsageError(
            f"--editable is for a folder that you work in, not for {request.source}", hint="cuwheel build --editable ."
        )
    given = {"--cluster": request.cluster, "--lock": request.lock, "--locked": request.locked}
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} makes wheels, --editable makes none: give one of them")
    place = environment_changes.locate_environment(env)
    with ExitStack() as stack:
        if not request.dry_run:
            process.require_extra("an editable install", modules=["build"], programs=[])
            stack.enter_context(journal_file.locked(place.prefix))
            recovered, findings = place.copy.recover()
        else:
            recovered, findings = "", ()
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-")))
        build, machines = _decided(request, place, scratch, caller)
        job = build.jobs[0]
        source = folder / job.subdirectory
        # What is compiled today is compiled again tomorrow, and CMake notes where its tools are.
        tools = build.store.folder / "editable" / files.sha256_of(os.fsencode(source))[:16]
        environ = _environ(job, place, caller, tools)
        plan = _plan(build, job, place, source, environ)
        start = initial_answer(
            build.project.name,
            place.prefix,
            machines=machines,
            editable=plan,
            dry_run=request.dry_run,
            recovered=recovered,
            findings=(*findings, *build.findings, *job.notes),
        )
        if request.dry_run:
            return start
        _make_links(job, tools)
        before = environment_changes.installed_versions(place.prefix)
        return applying.restored_on_failure(  # the environment; the project's folder is not ours
            place, start.name, lambda: _apply(start, place, job, source, environ, before)
        )


def _decided(
    request: BuildRequest, place: Place, scratch: Path, caller: Mapping[str, str]
) -> tuple[BuildPlan, tuple[Machine, ...]]:
    """One job: for the GPU of this machine or those that are named, with the environment's Python and torch."""
    python = venvs.version_of(place.interpreter)
    if python is None:
        raise UnavailableError(f"{place.interpreter} does not run", hint="python -m venv .venv, then --env .venv")
    settings: BuildSettings = {**request.settings, "naming": "local", "merge": False, "variants": False}
    asked = with_fields(request, python=(python,), settings=settings, shares=False, output=scratch / "unused")
    plan = read_source(asked)
    if request.machines or not (machines := _with_gpu(fleet.machines_asked_for((), env=place.prefix))):
        named = plan.table.for_
        machines = fleet.machines_asked_for(named, env=place.prefix) if named else ()
    if not _with_gpu(machines):
        raise UsageError("this machine has no GPU that could be asked: name one", hint="--for h100")
    rows = scratch / "machines.toml"
    rows.write_text("".join(map(source_builds.fleet_row, machines)), encoding="utf-8")
    plan = plan_architectures(replace(plan, table=replace(plan.table, for_=(str(rows),))))
    best = max(plan.planned, key=lambda each: versions.key(each.cuda))  # all of them serve; one can be installed
    plan = decide_jobs(replace(plan, planned=(best,)), [python], caller)
    if plan.jobs[0].toolchain.prefix:
        raise UsageError("a toolkit in a container cannot compile into this environment", hint="--provider index")
    return plan, machines


def _with_gpu(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    return tuple(each for each in machines if each.capability)


def _environ(job: DecidedJob, place: Place, caller: Mapping[str, str], tools: Path) -> dict[str, str]:
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


def _plan(build: BuildPlan, job: DecidedJob, place: Place, source: Path, environ: Mapping[str, str]) -> EditablePlan:
    compiler, toolkit = job.toolchain.host_compiler, job.toolchain.toolkit
    lists = [each.name for each in job.settings if "ARCH" in each.name]
    shown = {name: environ[name] for name in (*_SHOWN, *lists) if name in environ}
    requires = tuple(dict.fromkeys((*build.project.requires, *job.requires)))
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


def _options(job: DecidedJob) -> list[str]:
    settings = [f"{name}={value}" for name, value in job.config_settings.items()]
    return ["--no-build-isolation", *(word for each in settings for word in ("--config-settings", each))]


def _apply(
    start: Install, place: Place, job: DecidedJob, source: Path, environ: Mapping[str, str], before: Mapping[str, str]
) -> Install:
    try:
        _install_requirements(place, job, source, environ)
        changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
        if replaced := [each for each in changes if each.from_ and packages.is_framework(each.name)]:
            # Its other users may not run with another release; a build tool may be newer.
            what = ", ".join(f"{each.name} {each.from_} by {each.to}" for each in replaced)
            return replace(start, changes=changes, problem=f"what it is built with would replace {what}")
        log.info("compiling %s for %s", start.name, ", ".join(start.editable.archs if start.editable else ()))
        reinstall = ["--reinstall-package", start.name] if venvs.uv() else []  # which takes what it built before
        venvs.install(place.interpreter, [*reinstall, *_options(job), "--editable", source], env=environ)
        place.copy.must_keep_out()
        place.copy.must_leave_others({normalised(start.name)})
    except CuwheelError as error:
        facts = failures.facts(job.toolchain, source) if isinstance(error, ToolError) else None
        return applying.with_failure(start, error, facts, building=True)
    changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
    # Its files are elsewhere, so the environment's Python is asked: what top_level.txt names, else the module that is
    # called like the distribution.
    name = normalised(start.name)
    installed = [each for folder in site_packages(place.prefix) for each in distributions(folder) if each.name == name]
    listed = next((metadata.read_info_file(each.info, "top_level.txt").split() for each in installed), [])
    question = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n)))"
    words = [str(place.interpreter), "-I", "-c", question, *(listed or [name.replace("-", "_")])]
    modules = process.run(words, timeout=_ASK_S, check=False).stdout.split()
    # scikit-build-core leaves the Python files where they are and puts what was compiled into the environment. Its
    # finder brings modules together again, but no library that is loaded by its path.
    paths = [path for each in installed for path in metadata.installed_files(each.info)]
    apart = [path for path in paths if _LIBRARY.search(path) and path.partition("/")[0] in modules]
    own = (path for name in modules for path in source.glob(f"**/{name}/**/*.py"))
    if (
        apart
        and not any(path.endswith("/__init__.py") for path in paths)
        and any(b"__file__" in path.read_bytes() for path in own if path.is_file())
    ):
        told = finding(
            "libraries-apart",
            f"{', '.join(apart)}: in the environment, not beside the Python files, one of which uses __file__",
            fix=f'find it by importlib.resources.files("{modules[0]}"), which looks in both, not by __file__',
        )
        start = replace(start, findings=(*start.findings, told))
    driver = any(each.driver for each in start.machines)
    return applying.with_imports(replace(start, changes=changes), place, modules, {}, driver=driver)


def _make_links(job: DecidedJob, tools: Path) -> None:
    """Tools, and the compiler by the names that build systems look for, where the system's folders lack them."""
    for name, place in job.links if os.name == "posix" else ():
        tools.mkdir(parents=True, exist_ok=True)
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(place)


def _install_requirements(place: Place, job: DecidedJob, source: Path, environ: Mapping[str, str]) -> None:
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
