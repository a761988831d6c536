"""From a plan, toolchains and Pythons to jobs: every command and every variable, before anything is done."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier
from packaging.tags import compatible_tags, cpython_tags

from cuwheel.building import crossing, tables, workspace
from cuwheel.building.answer import Job, Outcome, tools_of
from cuwheel.building.values import BuildPlan, DecidedJob, Project, Tree
from cuwheel.device_code.description import BuildRecord
from cuwheel.errors import UnavailableError, UsageError
from cuwheel.facts import spellings, toolchain_parts
from cuwheel.machine import system
from cuwheel.network import venvs
from cuwheel.support import codec, files, limited, masking, process
from cuwheel.support.finding import finding
from cuwheel.toolchains.toolchain import Toolchain, command_where_toolkit_is
from cuwheel.version import __version__
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from cuwheel.building.tables import Naming, Table
    from cuwheel.network.venvs import Python
    from cuwheel.verdicts.planning.plan import Job as PlanJob
    from cuwheel_core.support.finding import Finding

# How fast it is built, and how the network is reached: no part of what comes out.
_NO_INPUT = frozenset(("MAX_JOBS", "NVCC_THREADS", "CMAKE_BUILD_PARALLEL_LEVEL", "CARGO_BUILD_JOBS", "USER", "LOGNAME"))
_ASK_S = 60.0


def project_files(tree: Tree, subdirectory: str) -> tuple[Path, tuple[str, ...]]:
    """The folder of a source's project, and its files."""
    if not subdirectory:
        return tree.folder, tree.files
    start = subdirectory.strip("/") + "/"
    return tree.folder / subdirectory, tuple(each.removeprefix(start) for each in tree.files if each.startswith(start))


def pythons(table: Table, project: Project) -> tuple[str, ...]:
    """The minor versions to build for, oldest first: an abi3 wheel of the oldest serves the others."""
    wanted = table.python or (venvs.find_python().minor,)
    chosen = tuple(sorted(dict.fromkeys(wanted), key=versions.key))
    try:
        allowed = limited.specifiers(project.requires_python)
    except InvalidSpecifier:
        return chosen  # the backend will have its own word on it

    def fits(minor: str) -> bool:
        return allowed.contains(f"{minor}.0") or allowed.contains(f"{minor}.99")

    refused = [each for each in chosen if not fits(each)]
    if refused:
        other = next((f"3.{minor}" for minor in range(8, 40) if fits(f"3.{minor}")), None)
        raise UsageError(
            f"{project.name} does not support Python {', '.join(refused)}: requires-python is "
            f"{project.requires_python}",
            hint=f"choose another: --python {other}" if other else "build another release of it",
        )
    return chosen


def interpreters(wanted: Sequence[str]) -> tuple[dict[str, Python], dict[str, UnavailableError]]:
    """The interpreters of these versions that are on this machine, and why the others are not found."""
    found: dict[str, Python] = {}
    missing: dict[str, UnavailableError] = {}
    for each in wanted:
        try:
            found[each] = venvs.find_python(each)
        except UnavailableError as error:
            missing[each] = error
    return found, missing


def refuse_without(missing: Collection[UnavailableError]) -> None:
    """Names all interpreters that a build lacks at once, before a toolkit is downloaded for nothing."""
    if missing:
        messages = "; ".join(each.message for each in missing)
        raise UnavailableError(messages, hint="; ".join(each.hint for each in missing))


def python_finding(python: str, error: UnavailableError) -> Finding:
    return finding(
        "python-not-here",
        f"Python {python} is not on this machine: a dry run does without it, the build needs it",
        fix=error.hint,
    )


def image_paths(toolchains: Iterable[Toolchain]) -> dict[str, tuple[str, ...]]:
    """Where images have their programs: compilers for wheels are in places of their own there."""
    found = {}
    for each in toolchains:
        if each.prefix:
            output = process.run(command_where_toolkit_is(each.toolkit, ["env"]), timeout=_ASK_S).stdout
            paths = [line.partition("=")[2] for line in output.splitlines() if line.startswith("PATH=")]
            found[each.identity] = tuple(paths[0].split(":")) if paths else workspace.SYSTEM_PATH
    return found


def job_name(cuda: str, python: str) -> str:
    return f"cu{cuda.replace('.', '')}-cp{python.replace('.', '')}"


def make_job(
    plan: BuildPlan,
    planned: PlanJob,
    toolchain: Toolchain,
    python: str,
    interpreter: Python | None,
    caller: Mapping[str, str],
    *,
    by_shares: bool = False,
) -> DecidedJob:
    """Everything that a build of this wheel depends on, decided before it begins; its key is made of that."""
    archs = (*planned.archs, *planned.ptx)
    # Shares are built at one place whatever the list: names of kernels depend on it.
    listed: tuple[str, ...] = ("shares",) if by_shares else archs
    target = toolchain.toolkit.target
    listed = (*listed, target) if target else listed
    folder = workspace.job_folder(plan.store, name=plan.project.name, cuda=planned.cuda, archs=listed, python=python)
    # Programs that run during the build are compiled by this machine's own.
    chosen = () if target else workspace.compiler_links(toolchain.host_compiler)
    links = () if toolchain.prefix else (*workspace.tool_links(caller.get("PATH", "")), *chosen)
    inputs = workspace.VariableInputs(
        plan=plan,
        planned=planned,
        toolchain=toolchain,
        share=system.compile_share(len(archs), jobs=plan.request.jobs),
        folder=folder,
        python=python,
        caller=caller,
        path=plan.images.get(toolchain.identity, workspace.system_path(links)),
    )
    values = workspace.placeholders(inputs)
    # What nvcc is told in place of the architectures that the build gives it; nothing where the build is trusted.
    forced: tuple[str, ...] = ()
    only: tuple[Arch, ...] = ()
    module_ids: dict[str, str] = {}
    if fit := plan.request.fit:
        from cuwheel.changes.graft import subject  # noqa: PLC0415 - few builds must fit another

        only = tuple(map(Arch.parse, fit.archs))
        origin = subject.match_module_ids(fit.module_ids, plan.tree.files)
        module_ids = origin.assigned(folder / "src")
        # With the list of the others, which CUB and Thrust put into names.
        forced = (*gencode(only), *arch_list(planned.archs), *as_if_at(folder / "src", origin.folder_of(fit.paths)))
    elif plan.table.force_archs:
        forced = tuple(shlex.split(planned.flags.nvcc or ""))
    installed = {} if toolchain.prefix else versions_on_path(workspace.SYSTEM_PATH, dict(links))
    minimum = minimum_cmake(*project_files(plan.tree, plan.table.subdirectory))
    minimum = max(minimum, crossing.LEAST_CMAKE, key=versions.key) if target else minimum
    tools = build_tool_requirements(plan.project.backend, plan.table.before, archs, minimum, installed)
    job = DecidedJob(
        id=job_name(planned.cuda, python),
        cuda=planned.cuda,
        python=python,
        interpreter=interpreter,
        plan=replace(planned, archs=only, ptx=()) if only else planned,
        backend=plan.project.backend,
        toolchain=toolchain,
        folder=folder,
        settings=workspace.job_settings(inputs),
        before=tuple(tables.fill_placeholders(each, values) for each in plan.table.before),
        requires=(*plan.table.requires, *tools),
        subdirectory=plan.table.subdirectory,
        config_settings={
            name: tables.fill_placeholders(each, values) for name, each in plan.table.config_settings.items()
        },
        force_archs=forced,
        module_ids=module_ids,
        links=links,
        by_shares=by_shares,
        notes=tuple(_notes(plan, planned, toolchain, by_shares=by_shares)),
    )
    return replace(job, key=_key(job, plan))


def _notes(plan: BuildPlan, planned: PlanJob, toolchain: Toolchain, *, by_shares: bool) -> Iterator[Finding]:
    """What is known beforehand and may surprise."""
    if (plan.table.force_archs or by_shares) and toolchain.prefix:
        raise UsageError(
            f"--{'shares' if by_shares else 'force-archs'} does not work in a container: nvcc cannot be wrapped there",
            hint="use another provider: --provider index,redist",
        )
    table = plan.table
    texts = (*table.environment.values(), *table.before, *table.config_settings.values())
    own = any("{archs." in text for text in texts)
    name = next((row.name for row in spellings.ROWS if plan.project.backend in row.backends), None)
    if plan.table.force_archs:
        return
    if name and not own:
        spelling = getattr(planned.spellings, name)
        if spelling.value is None:
            yield finding(
                "list-cannot-be-said",
                f"{spelling.variable} cannot express this list: {spelling.reason}",
                evidence=(f"using the nearest: {spelling.nearest}",) if spelling.nearest else (),
            )
    if name is None and not own:
        yield finding(
            "no-spelling",
            "it is not known how this project takes its architecture list",
            evidence=(f"{plan.project.backend}: {plan.project.evidence}",),
        )


def build_record(job: DecidedJob, installed: Mapping[str, str]) -> BuildRecord:
    """What a wheel says of its build, so that code of another build can be held against it.

    Places are left out: the same build on another machine says the same. `installed`: versions, by name.
    """
    places = ((str(job.folder), "{job}"), (job.toolchain.root, "{toolkit}"))
    flags = codec.encode([*_flags(job), job.force_archs, job.backend]).decode()
    for place, name in places:
        flags = flags.replace(place, name)
    return BuildRecord(
        flags=files.sha256_of(flags.encode()),
        installed=files.sha256_of(codec.encode(sorted(installed.items()))),
        listed=(*job.plan.archs, *job.plan.ptx),
    )


def _flags(job: DecidedJob) -> tuple[object, ...]:
    """Every command, option and variable that the build is given."""
    return [job.before, job.requires, job.config_settings, job.subdirectory], variables_of(job)


def variables_of(job: DecidedJob) -> list[tuple[str, str]]:
    """Those that say what comes out."""
    passed = workspace.passed_names(job.environ)
    return [(each.name, each.value) for each in job.settings if each.name not in _NO_INPUT | passed]


def _key(job: DecidedJob, plan: BuildPlan) -> str:
    """A hash of everything that goes in. A folder's place counts too: names of kernels depend on it."""
    compiler = job.toolchain.host_compiler
    parts = [
        __version__,
        [plan.tree.sha256, plan.tree.commit, plan.tree.described],
        [job.plan.archs, job.plan.ptx, job.cuda, job.backend, job.force_archs, job.by_shares],
        sorted(job.module_ids.items()),
        [job.toolchain.identity, job.toolchain.toolkit.version],
        [compiler.kind, compiler.version, compiler.path] if compiler else None,
        [job.python, job.interpreter.version if job.interpreter else None],
        str(job.folder),
        *_flags(job),
    ]
    return files.sha256_of(codec.encode(parts))


def serves(wheel: str, python: str) -> bool:
    """Whether a wheel can be installed for another minor version than it was built with."""
    name = WheelName.parse(wheel)
    version = [bounded.digits(part) for part in python.split(".")]
    platforms = name.platforms if name else ()
    known = (
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, f"cp{python.replace('.', '')}", platforms),
    )
    return name is not None and not set(map(str, known)).isdisjoint(name.tags)


def job_answer(job: DecidedJob, outcome: Outcome) -> Job:
    """The answer of a job of which no more is known than was decided. Secrets are masked: answers are kept and sent."""
    return Job(
        id=job.id,
        cuda=job.cuda,
        python=job.python,
        archs=job.plan.archs,
        ptx=job.plan.ptx,
        outcome=outcome,
        coverage=job.plan.coverage,
        backend=job.backend,
        commands=tuple(masking.known(each, job.environ) for each in _commands(job)),
        settings=tuple(replace(each, value=masking.variable(each.name, each.value)) for each in job.settings),
        tools=tools_of(job.toolchain),
        findings=job.notes,
    )


def _commands(job: DecidedJob) -> Iterator[str]:
    if job.requires:
        yield shlex.join(["install", *job.requires])
    yield from job.before
    options = [f"-C{name}={value}" for name, value in job.config_settings.items()]
    yield shlex.join(["python", "-m", "build", "--wheel", *options])
    if job.force_archs:
        yield shlex.join(["nvcc", *job.force_archs]) + "   (instead of every list that it is given)"


# What nvcc is told of architectures where a build's own list does not count.

_LIST = "__CUDA_ARCH_LIST__"
_SEED = "-frandom-seed"
_NVCC_HELP_S = 60.0
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


def gencode(archs: Iterable[Arch]) -> Iterator[str]:
    for arch in archs:
        yield from ("-gencode", f"arch=compute_{arch.number},code={arch}")


def arch_list(archs: Iterable[Arch]) -> tuple[str, str]:
    """The list as CUB and Thrust see it, whatever is compiled."""
    numbers = sorted({arch.capability.number for arch in archs})
    return f"-U{_LIST}", f"-D{_LIST}=" + r"\,".join(f"{number}0" for number in numbers)


def as_if_at(folder: Path, other: str | None) -> tuple[str, ...]:
    """Paths that `assert` and `__FILE__` put into code, as they are where the source is in another folder."""
    # nvcc splits words at commas and runs a shell, and `other` was read from a wheel.
    if not other or os.name == "nt" or not _PLAIN.fullmatch(f"{folder}{other}"):
        return ()
    return "-Xcompiler", f"-fmacro-prefix-map={folder}={other}"


@cache
def random_seed(root: str) -> tuple[str, ...]:
    """Names that do not depend on the process number, where the nvcc of a toolkit can do that.

    Relocatable code has such names where a file defines nothing that others see: two calls would not fit together.
    """
    try:
        known = process.run([Path(root, "bin", "nvcc"), "--help"], timeout=_NVCC_HELP_S).stdout
    except CuwheelError:
        return ()
    return (f"{_SEED}=cuwheel",) if _SEED in known else ()


# How the names of wheels for several CUDA versions differ.


def choose_naming(table: Table, cudas: Sequence[str]) -> Naming:
    """The naming as requested; else local versions if there are wheels for several CUDA versions.

    A project that writes such a label itself is given the same one.
    """
    if table.merge:
        return table.naming or "none"
    return table.naming or ("local" if len(set(cudas)) > 1 else "none")


def names_collide(table: Table, cudas: Sequence[str]) -> bool:
    """Whether two of these CUDA versions would give wheels of the same name, and that matters."""
    if table.merge:
        return False
    labels = {"suffix": [each.split(".")[0] for each in cudas], "local": list(cudas)}
    labels_itself = any("{cuda" in text for text in table.environment.values())  # makes its version of that variable
    return len(set(labels.get(table.naming or "none", [""]))) < len(set(cudas)) and not labels_itself


def naming_finding(cudas: Sequence[str]) -> Finding:
    digits = [each.replace(".", "") for each in cudas]
    return finding(
        "naming-chosen",
        f"wheels for {len(cudas)} CUDA versions: each is named in the local version, such as +cu{digits[0]}",
        evidence=tuple(f"CUDA {cuda}: +cu{label}" for cuda, label in zip(cudas, digits, strict=True)),
    )


# CMake and ninja for a job: the system's where they will do, else from the index into its environment.

_TOOL_VERSION_S = 20.0
_VERSION = re.compile(r"(\d+(?:\.\d+)+)")
_MINIMUM = re.compile(r"^\s*cmake_minimum_required\s*\(\s*VERSION\s+(\d+(?:\.\d+)*)", re.IGNORECASE | re.MULTILINE)


def build_tool_requirements(
    backend: str, before: Sequence[str], archs: Iterable[Arch], minimum: str, installed: Mapping[str, str]
) -> Iterator[str]:
    """`installed`: the versions of these programs that the job finds anyway. `minimum`: of CMake, by its sources."""
    programs = tables.BACKENDS[backend].programs
    uses_cmake = "cmake" in programs or any(re.search(r"\bcmake\b", each) for each in before)
    if uses_cmake:
        found = installed.get("cmake")
        # The version that is asked for; empty where what was found will do.
        kinds = {each.suffix or "plain" for each in archs}
        wanted = [
            toolchain_parts.find_cmake_spelling(kind).since
            for kind in kinds
            if found is None or not toolchain_parts.cmake_takes(found, kind)
        ]
        if minimum and not (found and versions.at_least(found, minimum)):
            wanted.append(minimum)
        least = max(wanted, key=versions.key, default="")
        if found is None or least:
            yield f"cmake>={least}" if least else "cmake"
    if (uses_cmake or "ninja" in programs) and "ninja" not in installed:
        yield "ninja"


def minimum_cmake(folder: Path, files: Iterable[str]) -> str:
    """The newest CMake that a CMakeLists.txt at the top or one folder below it asks for."""
    found = []
    for name in files:
        if name.rpartition("/")[2] == "CMakeLists.txt" and name.count("/") <= 1:
            try:
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found += _MINIMUM.findall(text)
    return max(found, key=versions.key, default="")


def versions_on_path(folders: Sequence[str], links: Mapping[str, str]) -> dict[str, str]:
    """The versions of cmake and ninja on the path of a job."""
    found = {}
    for name in ("cmake", "ninja"):
        places = [links[name]] if name in links else [str(Path(each, name)) for each in folders]
        for place in places:
            if version := _asked(place) if Path(place).is_file() else None:
                found[name] = version
                break
    return found


def _asked(program: str) -> str | None:
    try:
        match = _VERSION.search(process.run([program, "--version"], timeout=_TOOL_VERSION_S).stdout)
    except CuwheelError:
        return None
    return match[1] if match else None
