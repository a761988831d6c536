"""What to do with all libraries of a target: decided before anything is written, from surveys alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import Dropped, FileChange, LibraryPlan
from cuwheel.changes.slim.decide import decide_library, host_debug_of
from cuwheel.device_code.libraries import Library
from cuwheel.facts import packages
from cuwheel.support import files
from cuwheel.support.finding import Finding, finding
from cuwheel.support.wording import a_few, file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.slim.request import SlimTask
    from cuwheel.machine.fleet import Machine
    from cuwheel.tracing.traced import Workload

_PROPRIETARY = re.compile(r"^License(?:-Expression)?:.*NVIDIA.*Proprietary", re.IGNORECASE | re.MULTILINE)


class Kept(Struct, frozen=True, kw_only=True):
    """What is left of a library after cutting by use: pieces are containers, and cubins that stand in none.

    `loaded` is false where the workload never loaded anything of it: whatever needs it will no longer work.
    """

    path: str
    pieces: int
    kept: int
    loaded: bool


class SlimPlan(Struct, frozen=True, kw_only=True):
    """`plans` and `removed` go by the paths of the libraries. `refused`: why nothing may be written.

    `kept`: what cutting by use leaves of each.
    """

    libraries: tuple[Library, ...]
    plans: dict[str, LibraryPlan]
    removed: tuple[str, ...]
    findings: tuple[Finding, ...]
    refused: tuple[Finding, ...]
    kept: tuple[Kept, ...] = ()

    @property
    def to_write(self) -> tuple[LibraryPlan, ...]:
        """The largest first: it takes longest."""
        plans = (plan for path, plan in self.plans.items() if plan.changes and path not in self.removed)
        return tuple(sorted(plans, key=lambda plan: -plan.bytes_before))

    @property
    def expected(self) -> tuple[FileChange, ...]:
        """What becomes of every library with device code; sizes are estimates."""
        return self._with_removals(plan.expected for plan in self.plans.values())

    def files(self, results: Iterable[Rewritten]) -> tuple[FileChange, ...]:
        """What became of every library with device code."""
        done = {result.change.path: result.change for result in results}
        return self._with_removals(done.get(path, plan.unchanged) for path, plan in self.plans.items())

    def _with_removals(self, changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
        removed = [
            FileChange(
                path=library.path,
                fate="removed",
                bytes_before=library.size,
                bytes_after=0,
                dropped=tuple(
                    Dropped(kind=row.kind, arch=row.arch, section=row.section, count=row.count, bytes=row.bytes)
                    for row in library.device_code
                ),
            )
            for library in self.libraries
            if library.path in self.removed
        ]
        return tuple(sorted([*changes, *removed], key=lambda each: each.path))


class PackageRelease(NamedTuple):
    """A distribution, and the release by whose rules it chooses its libraries; None: the newest that is known."""

    name: str
    release: str | None


def release_in_folder(name: str, version: str | None, folder: Path) -> PackageRelease:
    """The package of libraries in a folder; its release by the files beside them, else by its version."""
    return PackageRelease(name, packages.shown_release(name, lambda file: files.head(folder / file)) or version)


def make_plan(
    libraries: Sequence[Library], task: SlimTask, package_of: Callable[[str], PackageRelease | None]
) -> SlimPlan:
    """`package_of`: the distribution that a library belongs to, by the library's path."""
    strips = task.request.strip_debug
    with_code = [each for each in libraries if each.device_code or (strips and host_debug_of(each))]
    removed, findings = _for_other_cuda(with_code, task.cuda, package_of) if task.cuda else ((), ())
    plans = {each.path: decide_library(each, task) for each in with_code if each.path not in removed}
    kept: list[Kept] = []
    refused: list[Finding] = []
    if task.workload:
        refused += _trace_problems(with_code, task.machines, task.workload)
        kept += [_kept(plans[each.path], each, task.workload) for each in with_code if each.path in plans]
    return SlimPlan(
        libraries=tuple(libraries),
        plans=plans,
        removed=removed,
        findings=(*findings, *(naming_library(plan.path, each) for plan in plans.values() for each in plan.untouched)),
        refused=(*refused, *(naming_library(plan.path, each) for plan in plans.values() for each in plan.refused)),
        kept=tuple(kept),
    )


def naming_library(path: str, found: Finding) -> Finding:
    """A plan speaks of its own library; among many one must know which."""
    name = file_name(path)
    return found if name in found.message else replace(found, message=f"{name}: {found.message}")


def _for_other_cuda(
    libraries: Iterable[Library], cuda: str, package_of: Callable[[str], PackageRelease | None]
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Of packages with one library for each CUDA version, those that are never loaded with this one."""
    versions: dict[PackageRelease, dict[str, str]] = {}
    for library in libraries:
        owner = package_of(library.path)
        profile = packages.find_profile(*owner) if owner else None
        if owner and profile and profile.loads == "one" and (version := packages.made_for(profile, library.path)):
            versions.setdefault(owner, {})[library.path] = version
    if not versions:
        words = f"--cuda {cuda} changes nothing: no package here is known to have one library per CUDA version"
        return (), (finding("cuda-changes-nothing", words),)
    removed: list[str] = []
    findings = []
    for owner, made_for in versions.items():
        profile = packages.find_profile(*owner)
        best = packages.best_version(profile, made_for.values(), cuda) if profile else None
        if best is not None:
            removed += [path for path, version in made_for.items() if version != best]
            continue
        known = ", ".join(sorted(set(made_for.values())))
        findings.append(
            finding(
                "no-library-for-cuda",
                f"{owner.name} has no library for CUDA {cuda}: all of its libraries were kept",
                evidence=(f"it has libraries for {known}",),
                fix=f"use --cuda with one of {known}, or another version of {owner.name}",
                severity="warning",
            )
        )
    return tuple(removed), tuple(findings)


def _trace_problems(
    libraries: Sequence[Library], machines: Sequence[Machine] | None, workload: Workload
) -> Iterator[Finding]:
    """Why nothing may be cut by these traces."""
    if libraries and all(each.format == "pe" for each in libraries):
        yield finding(
            "trace-is-of-linux",
            "these are Windows binaries, and programs are traced on Linux alone: no trace tells what a "
            "workload loads of them",
        )
        return
    found = [
        ("trace-incomplete", f"what the trace lists may not be all that the workload loads: {problem}")
        for problem in workload.problems
    ]
    known = {(each.build_id, each.size) for each in libraries if each.build_id}
    names = {file_name(each.path) for each in libraries}
    others = {use.name for use in workload.uses if use.name in names and (use.build_id, use.size) not in known}
    if not any((use.build_id, use.size) in known for use in workload.uses):
        found.append(("trace-of-another-build", "nothing here is of the builds that were traced"))
    elif others:
        words = f"{a_few(sorted(others))} have another build id or size here than when they were traced"
        found.append(("trace-of-another-build", words))
    traced = set(workload.gpus)
    if missing := [each.name for each in machines or () if each.capability not in traced]:
        gpus = a_few(sorted(traced))
        words = f"the workload was traced on {gpus}, which tells nothing of what {a_few(missing)} would load"
        found.append(("trace-of-another-gpu", words))
    for rule, message in found:
        yield finding(
            rule,
            message,
            fix="trace the workload with exactly these files and GPUs: cuwheel trace -o trace.json -- COMMAND "
            "(where they were slimmed before: cuwheel slim --undo first)",
        )


def _kept(plan: LibraryPlan, library: Library, workload: Workload) -> Kept:
    pieces: dict[tuple[int | None, int], bool] = {}
    for each in plan.entries:
        key = (each.entry.container, each.index if each.entry.container is None else -1)
        pieces[key] = pieces.get(key, False) or each.keep
    loaded = workload.use_of(library.build_id, library.size) is not None
    return Kept(path=plan.path, pieces=len(pieces), kept=sum(pieces.values()), loaded=loaded)


def licence_findings(metadata: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the licences say of changes, as far as METADATA tells; no legal advice. `metadata`: by distribution."""
    names = sorted(name for name, text in metadata.items() if _PROPRIETARY.search(text.partition("\n\n")[0]))
    if not names:
        return ()
    return (
        finding(
            "licence-on-changes",
            "by their metadata, some of these packages are under NVIDIA's terms, which restrict changes",
            evidence=(a_few(names, 4),),
        ),
    )
