"""From what the stages know to what the answer of a build says."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import recipes
from cuwheel.report import build_timeline
from cuwheel.report.build import ArchBytes, Build, Job, LibraryBytes, Merged, Recipe, Source, Tools, Wheel
from cuwheel.report.inspect_document import arch_order
from cuwheel.support import masking
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
    calls = build_timeline.calls_of(result.record, built.recorded, counted)
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
