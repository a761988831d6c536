"""What to do with each library of a target: pure, decided before anything is written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.decisions import Dropped, LibraryPlan, Recompressed
from cuwheel.changes.slim import decide as decisions
from cuwheel.changes.slim import use
from cuwheel.changes.slim.outcome import FileChange, Heavy, Remaining
from cuwheel.changes.slim.use import Kept
from cuwheel.device_code.libraries import Library
from cuwheel.facts import packages
from cuwheel.support import files
from cuwheel.support.finding import Finding
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cuwheel.changes.binaries.decisions import EntryDecision, FileResult, SlimOptions

_HEAVY = 5
_HEAVY_BYTES = 1_000_000
_NEARLY_ALL = 0.95


class Proposal(Struct, frozen=True, kw_only=True):
    """`plans` and `removed` go by the paths of the libraries. `refused`: nothing may be written.

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


class Owning(NamedTuple):
    """A distribution, and the release by whose rules it chooses its libraries; None: the newest that is known."""

    name: str
    release: str | None


def owning(name: str, version: str | None, folder: Path) -> Owning:
    """Of libraries in a folder: by the files beside them, else by its version."""
    return Owning(name, packages.shown_release(name, lambda file: files.head(folder / file)) or version)


def propose(
    libraries: Sequence[Library], options: SlimOptions, *, cuda: str | None, package_of: Callable[[str], Owning | None]
) -> Proposal:
    """`package_of`: the distribution that a library belongs to. `cuda`: the version that will load it."""
    with_code = [each for each in libraries if each.device_code]
    removed, findings = _not_loaded(with_code, cuda, package_of) if cuda else ((), ())
    plans = {each.path: decisions.decide(each, options) for each in with_code if each.path not in removed}
    forbidden = use.refusals(with_code, options.targets, options.workload) if options.workload else ()
    return Proposal(
        libraries=tuple(libraries),
        plans=plans,
        removed=removed,
        findings=(*findings, *(_about(plan.path, each) for plan in plans.values() for each in plan.untouched)),
        refused=(*forbidden, *(_about(plan.path, each) for plan in plans.values() for each in plan.refused)),
        kept=tuple(use.kept(plans[each.path], each) for each in with_code if each.path in plans)
        if options.workload
        else (),
    )


def _about(path: str, finding: Finding) -> Finding:
    """A plan speaks of its own library; among many one must know which."""
    name = file_name(path)
    return finding if name in finding.message else replace(finding, message=f"{name}: {finding.message}")


def met(proposal: Proposal, results: Iterable[FileResult]) -> tuple[Finding, ...]:
    """What writing met that the plans had not told."""
    return tuple(
        _about(result.path, each)
        for result in results
        for each in result.findings
        if each not in proposal.plans[result.path].untouched
    )


def _not_loaded(
    libraries: Iterable[Library], cuda: str, package_of: Callable[[str], Owning | None]
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Of packages with one library for each CUDA version, those that are never loaded with this one."""
    versions: dict[Owning, dict[str, str]] = {}
    for library in libraries:
        owner = package_of(library.path)
        profile = packages.find_profile(*owner) if owner else None
        if owner and profile and profile.loads == "one" and (version := packages.made_for(profile, library.path)):
            versions.setdefault(owner, {})[library.path] = version
    removed: list[str] = []
    findings = [] if versions else [_no_such_package(cuda)]
    for owner, made_for in versions.items():
        profile = packages.find_profile(*owner)
        best = packages.best_version(profile, made_for.values(), cuda) if profile else None
        if best is None:
            findings.append(_none_fits(owner.name, cuda, sorted(set(made_for.values()))))
        else:
            removed += [path for path, version in made_for.items() if version != best]
    return tuple(removed), tuple(findings)


def expected(proposal: Proposal) -> tuple[FileChange, ...]:
    """What the plans come to without writing: sizes are estimates."""
    by_path = {library.path: library for library in proposal.libraries}
    changes = [
        FileChange(
            path=path,
            fate="slimmed" if plan.changes else "unchanged",
            bytes_before=plan.bytes_before,
            bytes_after=plan.bytes_after_estimate,
            dropped=_dropped(plan.entries),
            recompressed=_recompressed(plan, by_path[path]),
        )
        for path, plan in proposal.plans.items()
    ]
    return in_order([*changes, *removals(proposal)])


def removals(proposal: Proposal) -> list[FileChange]:
    by_path = {library.path: library for library in proposal.libraries}
    return [
        FileChange(
            path=path,
            fate="removed",
            bytes_before=by_path[path].size,
            bytes_after=0,
            dropped=tuple(
                Dropped(kind=row.kind, arch=row.arch, section=row.section, count=row.count, bytes=row.bytes)
                for row in by_path[path].device_code
            ),
        )
        for path in proposal.removed
    ]


def in_order(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    return tuple(sorted(changes, key=lambda each: each.path))


def _dropped(entries: Iterable[EntryDecision]) -> tuple[Dropped, ...]:
    found: dict[tuple[str, str, str], Dropped] = {}
    for each in entries:
        if not each.keep:
            key = each.entry.kind, each.entry.arch, each.entry.section
            so_far = found.get(key)
            found[key] = Dropped(
                kind=each.entry.kind,
                arch=each.entry.arch,
                section=each.entry.section,
                count=(so_far.count if so_far else 0) + 1,
                bytes=(so_far.bytes if so_far else 0) + each.bytes,
            )
    return tuple(found.values())


def _recompressed(plan: LibraryPlan, library: Library) -> tuple[Recompressed, ...]:
    """The saving that the plan expects, spread over what it will compress by size."""
    chosen = [each for each in plan.entries if each.keep and each.recompress_to]
    before = sum(each.bytes for each in chosen)
    dropped = sum(each.bytes for each in plan.entries if not each.keep)
    share = min(max((plan.bytes_before - plan.bytes_after_estimate - dropped) / before, 0.0), 1.0) if before else 0.0
    found: dict[tuple[str, ...], Recompressed] = {}
    for each in chosen:
        was = library.entries[each.index].compression
        key = each.entry.kind, each.entry.arch, each.entry.section, was, each.recompress_to or ""
        so_far = found.get(key)
        stored = (so_far.bytes_before if so_far else 0) + each.bytes
        found[key] = Recompressed(
            kind=each.entry.kind,
            arch=each.entry.arch,
            section=each.entry.section,
            before=was,
            after=each.recompress_to or was,
            count=(so_far.count if so_far else 0) + 1,
            bytes_before=stored,
            bytes_after=round(stored * (1 - share)),
        )
    return tuple(found.values())


def remaining(proposal: Proposal, files: Sequence[FileChange]) -> tuple[Remaining, ...]:
    """What the libraries consist of afterwards, the largest part first."""
    gone = set(proposal.removed)
    sums = _bytes_by_part(each for each in proposal.libraries if each.path not in gone)
    kept = [each for each in files if each.path not in gone]
    code = sum(row.bytes for each in kept for row in each.dropped)
    code += sum(row.bytes_before - row.bytes_after for each in kept for row in each.recompressed)
    if code:
        sums["device code"] = max(sums.get("device code", 0) - code, 0)
        sums["other"] = sums.get("other", 0) + code - sum(each.bytes_before - each.bytes_after for each in kept)
    parts = (Remaining(name=name, bytes=count) for name, count in sums.items() if count > 0)
    return tuple(sorted(parts, key=lambda each: -each.bytes))


def heavy(proposal: Proposal, files: Sequence[FileChange]) -> tuple[Heavy, ...]:
    """The largest libraries that hardly became smaller, and what they mostly are."""
    after = {each.path: each for each in files}
    rest = [
        library
        for library in proposal.libraries
        if library.size >= _HEAVY_BYTES
        and ((change := after.get(library.path)) is None or change.bytes_after > _NEARLY_ALL * library.size)
    ]
    largest = sorted(rest, key=lambda library: -library.size)[:_HEAVY]
    return tuple(Heavy(path=each.path, bytes=each.size, mostly=_mostly(each)) for each in largest)


def _bytes_by_part(libraries: Iterable[Library]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for library in libraries:
        for part in library.parts:
            sums[part.name] += part.bytes
    return sums


def _mostly(library: Library) -> str:
    sums = _bytes_by_part([library])
    return max(sums, key=lambda name: sums[name]) if sums else "other"


def _no_such_package(cuda: str) -> Finding:
    return Finding(
        rule="cuda-changes-nothing",
        severity="note",
        message=f"--cuda {cuda} changes nothing: no package here is known to have one library per CUDA version",
    )


def _none_fits(name: str, cuda: str, there: list[str]) -> Finding:
    return Finding(
        rule="no-library-for-cuda",
        severity="warning",
        message=f"{name} has no library for CUDA {cuda}: all of its libraries were kept",
        evidence=(f"it has libraries for {', '.join(there)}",),
        fix=f"use --cuda with one of {', '.join(there)}, or another version of {name}",
    )
