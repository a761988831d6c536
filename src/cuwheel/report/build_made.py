"""From what the stages know to what the answer of a build says."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import recipes
from cuwheel.errors import UnreadableError
from cuwheel.report import build_document, html
from cuwheel.report.answer import to_json
from cuwheel.report.build import ArchBytes, Build, Job, LibraryBytes, Merged, Recipe, Source, Tools, Wheel
from cuwheel.report.inspect_document import arch_order
from cuwheel.support import files, masking
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cuwheel.building import values as building
    from cuwheel.building.tables import Table
    from cuwheel.building.values import BuildResult, JobResult, MadeWheel, MergedWheel, Project, Tree
    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.diagnosis.diagnosis import Failure
    from cuwheel.facts.arch import Arch
    from cuwheel.toolchains.toolchain import Toolchain


def answer_of(made: BuildResult, failures: Sequence[Failure | None]) -> Build:
    """`failures`: why each job ended without its wheel, None where it did not."""
    order = made.order
    return Build(
        cuwheel=__version__,
        source=source_of(order.tree, order.project),
        configuration=(str(made.configuration),) if made.configuration else (),
        recipe=recipe_of(made.recipe, order.table),
        began=made.began,
        seconds=made.seconds,
        dry_run=order.request.dry_run,
        output=str(order.request.output),
        jobs=tuple(job_of(each, failure) for each, failure in zip(made.jobs, failures, strict=True)),
        merged=tuple(_merged(each) for each in made.merged),
        variants=made.variants.sets,
        variants_failed=made.variants.reason,
        unserved=made.unserved,
        findings=(*made.findings, *made.variants.findings),
        workers=made.spans,
    )


def job_of(result: JobResult, failure: Failure | None = None) -> Job:
    answer = Job(
        id=result.id,
        cuda=result.plan.cuda,
        python=result.python,
        archs=result.plan.archs,
        ptx=result.plan.ptx,
        outcome=result.outcome,
        reason=result.reason,
        phases=result.phases,
        seconds=result.seconds,
        wheel=_wheel(result.wheel),
        listed=result.listed,
        findings=result.findings,
        failure=failure,
    )
    job, built = result.job, result.built
    if job is None:
        return answer
    answer = replace(
        answer,
        coverage=job.plan.coverage,
        backend=job.backend,
        commands=tuple(masking.known(each, job.environ) for each in _commands(job)),
        settings=tuple(replace(each, value=masking.variable(each.name, each.value)) for each in job.settings),
        tools=tools_of(job.toolchain, built.others if built else None),
    )
    if built is None:
        return answer
    cached = built.cached
    counted = (cached.hits, cached.misses) if cached and not cached.problem else None
    calls = build_document.calls_of(result.record, built.recorded, counted)
    return replace(answer, calls=calls, log=built.log, record=built.record)


def _commands(job: building.Job) -> Iterator[str]:
    if job.requires:
        yield shlex.join(["install", *job.requires])
    yield from job.before
    options = [f"-C{name}={value}" for name, value in job.config_settings.items()]
    yield shlex.join(["python", "-m", "build", "--wheel", *options])
    if job.force_archs:
        yield shlex.join(["nvcc", *job.force_archs]) + "   (instead of every list that it is given)"


def _merged(made: MergedWheel) -> Merged:
    return Merged(jobs=made.jobs, wheel=_wheel(made.wheel), reason=made.reason, findings=made.findings)


def _wheel(made: MadeWheel | None) -> Wheel | None:
    return wheel_of(made.survey, made.sha256, made.planned) if made else None


def source_of(tree: Tree, project: Project) -> Source:
    return Source(
        asked=tree.asked,
        name=project.name,
        version=project.version,
        sha256=tree.sha256,
        files=len(tree.files),
        commit=tree.commit,
    )


def recipe_of(recipe: recipes.Recipe | None, table: Table) -> Recipe | None:
    if recipe is None:
        return None
    tried = (
        f"{each.version} for {' '.join(each.archs)} with CUDA {each.cuda}"
        + (f" and torch {each.torch}" if each.torch else "")
        + f": {each.outcome}"
        for each in recipe.tried
    )
    return Recipe(name=recipe.name, why=recipe.why, settings=recipes.in_effect(recipe, table), tried=tuple(tried))


def tools_of(toolchain: Toolchain, others: Mapping[str, str] | None = None) -> Tools:
    kit = toolchain.toolkit
    return Tools(
        cuda=kit.cuda,
        nvcc=kit.version,
        root=kit.root,
        provider=kit.provider,
        identity=kit.identity,
        host_compiler=toolchain.host_compiler,
        archives=kit.archives,
        others=dict(others or {}),
    )


def wheel_of(found: Survey, sha256: str, planned: Collection[str]) -> Wheel:
    """`planned`: machine code and PTX of the plan."""
    distribution = found.distribution
    return Wheel(
        path=found.target,
        size=found.size,
        sha256=sha256,
        name=distribution.name if distribution else "",
        version=distribution.version if distribution else "",
        tags=distribution.tags if distribution else (),
        libraries=tuple(
            LibraryBytes(path=library.path, size=library.size, archs=_archs(library, planned))
            for library in found.libraries
        ),
    )


def _archs(library: Library, planned: Collection[str]) -> tuple[ArchBytes, ...]:
    rows: dict[Arch, tuple[int, int]] = {}
    for row in library.device_code:
        stored, count = rows.get(row.arch, (0, 0))
        rows[row.arch] = stored + row.bytes, count + row.count
    return tuple(
        ArchBytes(arch=arch, bytes=rows[arch][0], count=rows[arch][1], planned=arch in planned)
        for arch in sorted(rows, key=arch_order)
    )


# What is written beside the wheels: `SHA256SUMS`, the page, and `build.json`, which is the answer itself.

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\0]+\.whl)", re.ASCII)
SUMS, PAGE, ANSWER = "SHA256SUMS", "build.html", "build.json"


def write_beside_wheels(answer: Build, folder: Path) -> Build:
    """Each beside, then renamed; `build.json` last, because it names the others. Returns what it says."""
    sums = _sums(answer, folder)
    names = [*([SUMS] if sums else []), PAGE, ANSWER]
    complete = replace(answer, written=tuple(str(folder / name) for name in names))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    if sums:
        files.write(folder / SUMS, sums)
    html.save(complete, folder / PAGE)
    files.write(folder / ANSWER, to_json(complete))
    return complete


def _sums(answer: Build, folder: Path) -> str:
    """As `sha256sum --check` reads it, from within the folder: every wheel once, by name.

    What an earlier build wrote of wheels that are still there stays: a folder may be filled by several.
    """
    wheels = _earlier(folder)
    single = [job.wheel for job in answer.jobs if job.outcome != "refused"] if not answer.merged else []
    for wheel in (*single, *(each.wheel for each in answer.merged)):
        if wheel and wheel.sha256:
            wheels[_from(folder, wheel.path)] = wheel.sha256
    for made in answer.variants:
        wheels |= {_from(folder, each.path): each.sha256 for each in made.wheels}
        wheels |= {_from(folder, each): files.sha256(Path(each)) for each in made.plain}
    return "".join(f"{wheels[name]}  {name}\n" for name in sorted(wheels))


def _earlier(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines))
    return {match[2]: match[1] for match in matches if (folder / match[2]).is_file()}


def _from(folder: Path, path: str) -> str:
    """As it is called from there; in full on another drive of Windows."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path
