"""From what the stages know to what the answer of a build says."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cuwheel.building import recipes
from cuwheel.report import build_timeline
from cuwheel.report.build import ArchBytes, Failure, LibraryBytes, Recipe, Source, Tools, Wheel
from cuwheel.report.inspect_summary import arch_order
from cuwheel.units import uncoloured

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cuwheel.building.tables import Table
    from cuwheel.building.values import Project, Tree, Trouble
    from cuwheel.diagnose.values import Cause
    from cuwheel.inspection.values import Library, Survey
    from cuwheel.recording.values import Call, Record
    from cuwheel.report.build import Calls
    from cuwheel.toolchains.values import Toolchain

_OUTPUT = 8000  # characters kept of what a call printed: its end; the record has all


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
        f"{each.version} for {' '.join(each.archs)} with CUDA {each.cuda}: {each.outcome}" for each in recipe.tried
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
    told = found.distribution
    return Wheel(
        path=found.target,
        size=found.size,
        sha256=sha256,
        name=told.name if told else "",
        version=told.version if told else "",
        tags=told.tags if told else (),
        libraries=tuple(
            LibraryBytes(path=library.path, size=library.size, archs=_archs(library, planned))
            for library in found.libraries
        ),
    )


def _archs(library: Library, planned: Collection[str]) -> tuple[ArchBytes, ...]:
    rows: dict[str, tuple[int, int]] = {}
    for row in library.device_code:
        stored, count = rows.get(row.arch, (0, 0))
        rows[row.arch] = stored + row.bytes, count + row.count
    return tuple(
        ArchBytes(arch=arch, bytes=rows[arch][0], count=rows[arch][1], planned=arch in planned)
        for arch in sorted(rows, key=arch_order)
    )


def calls_of(record: Record | None, began: float = 0.0, cached: tuple[int, int] | None = None) -> Calls:
    """`began`: of the record, in seconds since its job did. `cached`: hits and misses as the cache itself counts."""
    return build_timeline.calls_of(record, began, cached)


def failure_of(
    trouble: Trouble, call: Call | None = None, output: str = "", *, replay: str = "", causes: Sequence[Cause] = ()
) -> Failure:
    """`call`: the first that failed and mattered; `output`: what it printed."""
    hint = f" ({trouble.hint})" if trouble.hint else ""
    output = uncoloured(output)[-_OUTPUT:]
    if call is None:
        return Failure(
            what=trouble.what + hint, phase=trouble.phase, output=output, replay=replay, causes=tuple(causes)
        )
    how = f"signal {call.signal}" if call.signal else f"exit status {call.status}"
    if call.state == "not-started":
        how = call.problem or "it could not be started"
    return Failure(
        what=f"call {call.number}, {call.name} {build_timeline.source_of(call)}".rstrip() + f": {how}",
        phase=trouble.phase,
        call=call.number,
        command=shlex.join((call.program, *call.words)),
        cwd=call.cwd,
        status=call.status,
        output=output,
        replay=replay,
        causes=tuple(causes),
    )
